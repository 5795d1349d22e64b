PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help demo test lint bench clean

help:
	@echo "make demo   set up and run the tour of pylogtable on the local disk"
	@echo "make test   set up and run lint, types and all tests"
	@echo "make lint   ruff and mypy only"
	@echo "make bench  the benchmarks, as a table of ratios (BENCH='throughput --quick' for a part)"

demo: $(VENV)/.installed
	$(BIN)/python notebooks/demo.py

test: lint
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m benchmarks $(BENCH)

clean:
	rm -rf $(VENV) .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "pylogtable needs Python 3.10 or newer; set PYTHON=python3.11, say"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "no venv module: on Debian and Ubuntu 'apt-get install python3-venv'"; exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed
