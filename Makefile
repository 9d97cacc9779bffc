# The developer's kit; `make` alone lists it. Every target first sets up what it needs, from any directory.

SEEDS ?= 2000
CLUSTERS ?= $(if $(filter command,$(firstword $(origin SEEDS))),$(SEEDS),200)
GROUPED ?= $(if $(filter command,$(firstword $(origin SEEDS))),$(SEEDS),100)
SEED ?=
ARGS ?=

# The tests of each tier, by the markers that tests/tiers.py derives from fixtures. Some tests have
# several of them.
IN_PROCESS := not campaign and not cluster and not jvm and not browser and not mutant and not docs \
	and not dist and (not world or sample)
WORKERS ?= 3
ALL_WORKERS ?= 6

# This file's own directory. Not $(dir …): make's functions split a path at its spaces.
HERE := $(shell dirname "$$(printf '%s' "$(MAKEFILE_LIST)" | sed 's/^ *//')")
PYTHON := cd "$(HERE)" && .venv/bin/python

# Compiled modules are kept, whatever the environment says: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test test-all console-test interop spark-versions docs lint check coverage sim chaos campaign fuzz bench bench-kafka sites dist clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1: /p' "$(HERE)/Makefile"

setup: ## create .venv, install what pyproject.toml names, build the kernels
	@sh "$(HERE)/scripts/setup.sh"

demo: ## a cluster on this machine with data flowing through it, into a picture
	@sh "$(HERE)/scripts/setup.sh" demo
	@sh "$(HERE)/scripts/clients.sh" java
	@$(PYTHON) -m samelog demo $(ARGS)

test: setup ## the in-process tests, a sample of worlds, a few real clusters (ARGS="-k name" goes to pytest)
	@sh "$(HERE)/scripts/clients.sh" java
	@$(PYTHON) -m pytest -n $(WORKERS) -m "smoke or ($(IN_PROCESS))" $(ARGS)

test-all: setup ## all tests but the campaigns
	@sh "$(HERE)/scripts/clients.sh" kcat java helm kustomize
	@$(PYTHON) -m pytest -n $(ALL_WORKERS) $(ARGS)

console-test: setup ## every page of the console in headless Chromium (ARGS=--record: rewrite pictures and trees)
	@command -v chromium > /dev/null || { echo "console-test: skipped, there is no chromium: apt-get install chromium" >&2; }
	@$(PYTHON) $(if $(filter --record,$(ARGS)),-m tests.console.showing,-m pytest tests/console tests/http/test_console.py $(ARGS))

interop: setup ## Kafka clients in Java and Go (ARGS=--record: keep the results), Streams, Connect, MirrorMaker, Kafka's tools
	@sh "$(HERE)/scripts/interop.sh"
	@failed=0; for part in "tests.interop $(ARGS)" "pytest -q -m campaign tests/interop" tests.interop.dump; do \
	    ($(PYTHON) -m $$part) || failed=1; \
	done; exit $$failed

spark-versions: setup ## Spark's tests and pages of docs/ with other versions of PySpark (fetches 1.5 GB, once)
	@sh "$(HERE)/scripts/clients.sh" java mvn
	@sh "$(HERE)/scripts/spark_versions.sh" $(ARGS)

docs: setup ## rewrite the tables of docs/ that are made from code, and the site in build/site
	@$(PYTHON) -m tests.kafka.test_docs
	@$(PYTHON) -m tests.http.test_docs
	@$(PYTHON) -m tests.http.test_runbooks
	@$(PYTHON) -m tests.config.test_docs
	@$(PYTHON) -m tests.k8s.test_manifests
	@$(PYTHON) -m tests.test_docs_layout
	@$(PYTHON) -m tests.campaign.page
	@$(PYTHON) -m scripts.site

lint: setup ## style, types, import rules, tidiness
	@sh "$(HERE)/scripts/lint.sh"

check: setup ## lint, and the tests that need neither nodes nor Java, a browser, planted bugs or pages
	@sh "$(HERE)/scripts/lint.sh" --tests "$(IN_PROCESS)"

coverage: setup ## how much of each package the tests reach; ARGS="tests/wire" for some tests
	@$(PYTHON) -m tests.coverage $(ARGS)

sim: setup ## simulate groups and clusters under faults: SEEDS=how many of each, or SEED=the one to replay
	@$(PYTHON) -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)
	@$(PYTHON) -m tests.cluster_sim $(if $(SEED),--seed $(SEED),--seeds $(CLUSTERS)) $(ARGS)
	@$(PYTHON) -m tests.cluster_sim --groups $(if $(SEED),--seed $(SEED),--seeds $(GROUPED)) $(ARGS)
	@$(PYTHON) -m tests.cluster_sim --converting $(if $(SEED),--seed $(SEED),--seeds $(GROUPED)) $(ARGS)

chaos: setup ## real faults on real processes (ARGS="kill-leader --runs 5"; ARGS=--list names all)
	@sh "$(HERE)/scripts/chaos.sh" $(ARGS)
	@$(PYTHON) -m tests.chaos $(ARGS)

campaign: setup ## what is missing of the tables of docs/reliability.md (ARGS="--minutes 60"; ARGS=--list)
	@sh "$(HERE)/scripts/chaos.sh"
	@$(PYTHON) -m tests.campaign $(ARGS)

fuzz: setup ## damaged input to every parser, guided by coverage (ARGS="--seconds 600 batches")
	@cd "$(HERE)" && { .venv/bin/python -c "import atheris" 2>/dev/null || \
		.venv/bin/python -m pip install --quiet --disable-pip-version-check "atheris>=2.3,<4" || \
		echo "fuzz: atheris cannot be installed: random damage instead" >&2; }
	@$(PYTHON) -m tests.fuzz $(ARGS)

bench: setup ## measure
	@$(PYTHON) -m bench $(ARGS)

bench-kafka: setup ## what is missing of the comparison with Kafka (an hour; ARGS="--rounds 1"; ARGS=--list)
	@sh "$(HERE)/scripts/clients.sh" java mvn nats
	@$(PYTHON) -m bench kafka $(ARGS)

sites: setup ## acknowledgements at one site beside another one, 80 ms away and cut off (root; ARGS="--rounds 5")
	@$(PYTHON) -m bench sites $(ARGS)

dist: setup ## what is released of the last commit, in dist/: sdist, wheel, SBOM; the wheel is tried
	@sh "$(HERE)/scripts/dist.sh"

clean: ## remove what was built and cached (.venv stays)
	@sh "$(HERE)/scripts/clean.sh"
