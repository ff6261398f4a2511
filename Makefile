# `make demo` and `make test` work in a fresh clone; everything they install stays in .venv and .local,
# but for Java and Maven, which are installed where that needs no question (root, with apt-get).
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
EXTRAS ?= dev
COMMA := ,
# One for each choice of extras: whoever asks for more of them later gets them.
INSTALLED := $(VENV)/.installed-$(subst $(COMMA),-,$(EXTRAS))
ARGS ?=
PROCESSES ?= 4
SECONDS ?= 1200
SEED ?=

# Where it is set, as in images of Python, each process would compile all modules again, for seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install servers demo test test-all faults soak upgrade drill dist image test-kubernetes dashboards alerts check clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## create .venv with haystream in it

$(INSTALLED): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("haystream needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "installing haystream into $(VENV)"
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock >$(VENV)/uv.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement $(VENV)/uv.lock
	@$(BIN)/uv pip install --quiet --python $(VENV) --constraint requirements.lock --build-constraint requirements.lock \
		--editable '.[$(EXTRAS)]'
	@touch $@

# Quick, and silent, once everything is there. Never fails: the demo then runs in memory, tests skip (in CI they fail).
servers: $(INSTALLED)
	@deploy/kafka/install-java
	@$(BIN)/python -m haystream_service.local

demo: servers ## watch haystream find relevant mail (ARGS='--headless --seconds 20' …)
	@$(BIN)/haystream demo $(ARGS)

# Files whole, those that take long first; each process has servers of its own, and takes 1.5 GB with them. Tests wait
# for half of the time, so there are twice as many processes as the cores that they are meant for; in one thread each,
# they do not wait for each other.
test: servers ## run the tests (ARGS='-k kafka' PROCESSES=2 …)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(PROCESSES) --dist loadscope --no-loadscope-reorder $(ARGS)

test-all: servers ## them whole: every seed, more examples of each property, every fault
	@OPENBLAS_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(PROCESSES) --dist loadscope --no-loadscope-reorder \
		--seeds all --faults all --schedules 10000 --api-examples 150 $(ARGS)

faults: servers ## every fault on real servers, 10,000 simulated schedules (ARGS='-k kill' …)
	@$(BIN)/pytest tests/faults tests/simulation tests/api --faults all --schedules 10000 --api-examples 150 $(ARGS)

soak: servers ## two workers under faults at random (SECONDS=1200 SEED=…)
	@$(BIN)/pytest tests/faults/soak.py -s --soak-seconds $(SECONDS) $(if $(SEED),--soak-seed $(SEED)) $(ARGS)

upgrade: servers ## another version, this one, and that one again on the same state (FROM=COMMIT)
	@$(BIN)/pytest tests/faults/upgrade.py --upgrade-from $(FROM) $(ARGS)

dist: $(INSTALLED) ## a wheel and an sdist, in dist/
	@$(BIN)/uv build --quiet --build-constraint requirements.lock --out-dir dist $(ARGS)
	@ls -1 dist/haystream-*

image: ## the image, with docker, podman or buildah (ARGS='--build-arg BASE=… --tag …')
	@deploy/image $(ARGS)

drill: servers ## lose Redis and restore it in every way, on servers of its own (ARGS=topics)
	@$(BIN)/python deploy/drill $(ARGS)

test-kubernetes: $(INSTALLED) ## the manifests on a real API server, built from its Go modules (wants go, kubectl)
	@deploy/kubernetes-tools
	@$(BIN)/pytest tests/kubernetes --kubernetes $(ARGS)

dashboards: servers ## write the dashboards, and draw them from a demo run (wants prometheus; ARGS='--seconds 60')
	@$(BIN)/python deploy/grafana/render
	@$(BIN)/python deploy/grafana/draw $(ARGS)

alerts: servers ## real faults, alerts and notifications, with a table of the times (wants prometheus, Alertmanager)
	@$(BIN)/pytest tests/deploy/test_alerts_live.py --faults all $(ARGS)

check: $(INSTALLED) ## lint, format, types, imports, YAML
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/yamllint --strict .

clean: ## remove what make made here
	rm -rf $(VENV) .local .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
