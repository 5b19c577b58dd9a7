# Rewind: every command a developer needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is imported is compiled at its first import; the other modules need not be.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
    --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo spark up unit test test-all coverage check docs bench bench-peers clean services

help:  ## List the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# An environment is made again when its Python is too old or gone, or has no pip. PHONY: the rule then
# runs although the file is there, and so do the rules of all that was installed into it.
IS_SUPPORTED := import sys; sys.exit(sys.version_info < (3, 11))
ifneq ($(shell $(BIN)/python -c 'import pip; $(IS_SUPPORTED)' 2>/dev/null || echo unusable),)
.PHONY: $(BIN)/python
endif

$(BIN)/python:
	@$(PYTHON) -c '$(IS_SUPPORTED)' 2>/dev/null || { \
	    version=$$($(PYTHON) -c 'import sys; print(sys.version.split()[0])' 2>/dev/null || echo not found); \
	    echo "Python 3.11 or newer is required; $(PYTHON) is $$version." \
	        "Set PYTHON=..., for example: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
	    exit 1; }
	$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.run: pyproject.toml constraints.txt $(BIN)/python
	$(INSTALL) --editable '.[service]'
	@touch $@

$(VENV)/.spark: $(VENV)/.run
	$(INSTALL) --editable '.[spark]'
	@touch $@

# Hundreds of processes load these modules, so they are compiled beforehand.
$(VENV)/.test: $(VENV)/.run
	$(INSTALL) --editable '.[test,bench]'
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib app logbroker spark_jobs
	@touch $@

# Without a C compiler, or Python's header files, the broker runs the same code as pure Python.
$(VENV)/.compiled: $(VENV)/.test setup.py logbroker/records/validation.py
	@mkdir -p build
	@if command -v cc >/dev/null; then \
	    $(BIN)/python -W ignore setup.py in-place >build/compile.log 2>&1 \
	    || { tail -n 3 build/compile.log >&2; echo "not compiled; see build/compile.log" >&2; }; fi
	@touch $@

demo: $(VENV)/.run  ## Install, then show a missed event being replayed, every check printed
	$(BIN)/rewind demo

spark: $(VENV)/.spark  ## Install what the data pipeline needs: PySpark, beside a Java runtime of yours

up: $(VENV)/.run  ## Run broker, API, live path and worker until Ctrl-C, data in ./.rewind
	$(BIN)/rewind up --data-dir .rewind

services:  ## Install what the tests need from Debian: MariaDB's server, Chromium, kcat and more
	tests/install-services

# The first process that loads a module compiles it for all, whatever the environment says.
demo up unit test test-all coverage: export PYTHONDONTWRITEBYTECODE =

T := tests/unit
# The tests of one file run in one process: a second one would only import them.
UNIT_PROCESSES = $(if $(findstring .py,$(T)),0,2)
unit: $(VENV)/.compiled  ## Test without starting a process: all, or a part with T=path
	$(BIN)/python -m pytest -n $(UNIT_PROCESSES) --dist loadgroup -m "not processes and not long" $(T)

test: $(VENV)/.compiled services  ## Install what the tests need, then run all but the long ones
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "not long"

test-all: $(VENV)/.compiled services  ## Run the long tests, which `make test` leaves out, and property tests at length
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "long or hypothesis" --hypothesis-profile thorough

coverage: $(VENV)/.compiled services  ## Run the tests of `make test`, then show branch coverage by package
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n 3 --dist loadgroup -m "not long"
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m tests.coverage_by_package

check: $(VENV)/.compiled  ## Check style, types, the layers of packages and plain language
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.plain_language

$(VENV)/.docs: $(VENV)/.run
	$(INSTALL) --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## Build the documentation as a site in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "build/site/index.html"

bench: $(VENV)/.compiled  ## Measure every speed claim against a baseline of the same run
	$(BIN)/python -m benchmarks

bench-peers: $(VENV)/.compiled  ## Measure Kafka, RabbitMQ, NATS and Redis beside logbroker, installed from Debian
	benchmarks/peers/install-brokers
	$(BIN)/python -m benchmarks.peers

clean:  ## Remove the environment and caches; data folders stay
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
