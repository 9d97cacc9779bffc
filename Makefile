# The developer's kit; `make` alone lists it. Every target first sets up what it needs, from any directory.

SEEDS ?= 200
SEED ?=
ARGS ?=

# This file's own directory. Not $(dir …): make's functions split a path at its spaces.
HERE := $(shell dirname "$$(printf '%s' "$(MAKEFILE_LIST)" | sed 's/^ *//')")
PYTHON := cd "$(HERE)" && .venv/bin/python

.PHONY: help setup demo test lint sim chaos bench clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1: /p' "$(HERE)/Makefile"

setup: ## create .venv, install what pyproject.toml names, build the kernels
	@sh "$(HERE)/scripts/setup.sh"

demo: setup ## a cluster on this machine with data flowing through it
	@$(PYTHON) -m shiplog demo $(ARGS)

test: setup ## all tests but the campaigns (ARGS="-k name" and so on go to pytest)
	@$(PYTHON) -m pytest -n 2 --dist loadfile $(ARGS)

lint: setup ## style, types, import rules, tidiness
	@sh "$(HERE)/scripts/lint.sh"

sim: setup ## simulate clusters under faults: SEEDS=how many, or SEED=the one to replay
	@$(PYTHON) -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

chaos: setup ## real faults on real processes (ARGS="kill-leader --runs 5"; ARGS=--list names all)
	@sh "$(HERE)/scripts/chaos.sh"
	@$(PYTHON) -m tests.chaos $(ARGS)

bench: setup ## measure
	@$(PYTHON) -m bench $(ARGS)

clean: ## remove what was built and cached (.venv stays)
	@sh "$(HERE)/scripts/clean.sh"
