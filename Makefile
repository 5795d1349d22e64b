PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JAVA   := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
MATRIX ?= 4.0 4.1 4.3

# Spark's workers would be the python3 of the PATH otherwise.
export PYSPARK_PYTHON        := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)

# Each of them would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-deep lint bench test-matrix clean java

help:
	@echo "make demo         set up and run the tour of pylogtable on the local disk"
	@echo "make test         set up and run lint, types and all tests"
	@echo "make test-deep    the same tests with far more examples and kills, from a new seed; takes long"
	@echo "make lint         ruff and mypy only"
	@echo "make bench        the benchmarks, as a table of ratios (BENCH='throughput --quick' for a part)"
	@echo "make test-matrix  the Spark tests on PySpark $(MATRIX) (MATRIX='4.0' for one of them)"
	@echo "Python 3.10 or newer (PYTHON=python3.11 to choose), and Java 17 or newer for all but lint."

demo: java $(VENV)/.installed
	@$(BIN)/python notebooks/demo.py

test: java lint
	$(BIN)/python -m pytest -n 3

test-deep: export PYLOGTABLE_DEEP := 1
test-deep: test

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: java $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m benchmarks $(BENCH)

test-matrix: java $(MATRIX:%=.venv-spark-%/.installed)
	@for version in $(MATRIX); do \
	  python=$(CURDIR)/.venv-spark-$$version/bin/python; \
	  echo "== PySpark $$version"; \
	  PYSPARK_PYTHON=$$python PYSPARK_DRIVER_PYTHON=$$python \
	    $$python -m pytest -n 2 -p no:cacheprovider tests/spark tests/spark_unit \
	    > .venv-spark-$$version/tests.log 2>&1; \
	  echo $$? > .venv-spark-$$version/exit; \
	  grep -E '^(FAILED|ERROR) ' .venv-spark-$$version/tests.log; \
	  tail -n 1 .venv-spark-$$version/tests.log; \
	done; \
	echo "== Summary"; failed=0; \
	for version in $(MATRIX); do \
	  test "$$(cat .venv-spark-$$version/exit)" = 0 && word=passed || { word=FAILED; failed=1; }; \
	  python=.venv-spark-$$version/bin/python; \
	  exact=$$($$python -c 'import pyspark, sys; print(pyspark.__version__, "on Python", sys.version.split()[0])'); \
	  echo "PySpark $$exact: $$word, see .venv-spark-$$version/tests.log"; \
	done; exit $$failed

clean:
	rm -rf $(VENV) .venv-spark-* .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis

java:
	@found=$$("$(JAVA)" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	if [ "$${found:-0}" -lt 17 ]; then \
	  if [ -n "$$found" ]; then \
	    echo "Spark needs Java 17 or newer, and '$(JAVA)' is older:"; "$(JAVA)" -version 2>&1 | head -n 1; \
	  else \
	    echo "Spark needs Java 17 or newer, and there is no '$(JAVA)' that runs."; \
	  fi; \
	  echo "  Debian, Ubuntu:  sudo apt-get install -y openjdk-17-jre-headless"; \
	  echo "  macOS:           brew install openjdk@17"; \
	  echo '                   export JAVA_HOME="$$(brew --prefix openjdk@17)"'; \
	  echo "If you have one elsewhere, set JAVA_HOME to its directory, the one that holds bin/java."; \
	  exit 1; \
	fi

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "pylogtable needs Python 3.10 or newer; set PYTHON=python3.11, say"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "no venv module: on Debian and Ubuntu 'apt-get install python3-venv'"; exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[spark]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed

.venv-spark-%/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-spark-$*
	.venv-spark-$*/bin/python -m pip install --quiet --upgrade pip
	.venv-spark-$*/bin/python -m pip install --quiet --editable '.[dev]' 'pyspark[connect]==$*.*'
	@touch $@
