# `make demo` and `make test` work in a fresh clone; everything they install stays in .venv and .local,
# but for Java and Maven, which are installed where that needs no question (root, with apt-get).
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
INSTALLED := $(VENV)/.installed
EXTRAS ?= dev
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install servers demo test check clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## create .venv with haystream in it

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("haystream needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "installing haystream into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

# Quick, and silent, once everything is there. Never fails: the demo then runs in memory, tests skip (in CI they fail).
servers: $(INSTALLED)
	@deploy/kafka/install-java
	@$(BIN)/python -m haystream_service.local

demo: servers ## watch haystream find relevant mail (ARGS='--headless --seconds 20' …)
	@$(BIN)/haystream demo $(ARGS)

test: servers ## run the tests (ARGS='-k kafka' …)
	@$(BIN)/pytest $(ARGS)

check: $(INSTALLED) ## lint, format, types, imports, YAML
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/yamllint --strict .

clean: ## remove what make made here
	rm -rf $(VENV) .local .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
