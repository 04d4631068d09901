# Pillarbox: everything a newcomer types. Needs make, git and a Python; the rest is fetched into .venv and .tools.
.DEFAULT_GOAL := help
.PHONY: help demo up bench bench-analytics bench-core bench-smtpd bench-flow bench-poisoned attack chaos chaos-apart chaos-mutants soak test test-all test-fast test-operators test-postgres15 check format lock java peers clean ready-demo ready-test

PY := .venv/bin/python
PYTEST := JAVA_HOME="$(CURDIR)/.tools/java" $(PY) -m pytest
# Most tests wait for somebody, so two run at a time on each processor. conftest.py says which stay together.
AT_ONCE := -n $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN) ))) --dist loadfile --no-loadscope-reorder
# The rings that take minutes; `make test-all` runs them too.
HEAVY := tests/chaos tests/integration/bench
POSTGRES15 := /usr/lib/postgresql/15/bin/postgres
# What asks PostgreSQL something is tested on its oldest version too; the other rooms would find nothing new there.
ASKS_POSTGRES := $(addprefix tests/integration/,claim commands doctor login maintenance pacing partitions result schema spool)
SOURCES := $(wildcard smtpd queued shared scripts sql tests conftest.py)
export PYTHON
# Tests start hundreds of processes, so bytecode is kept whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

help:  ## list these targets
	@awk 'BEGIN {FS = ":[^#]*## "} /^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo '  ARGS="…" passes options through, for example: make demo ARGS="--mail DIR"'

demo: ready-demo  ## show Pillarbox at work: real mail through real daemons, nothing to install first
	@.venv/bin/pillarbox demo $(ARGS)

up: ready-demo  ## run smtpd and the queued workers of config/ until Ctrl-C
	@.venv/bin/pillarbox up $(ARGS)

bench: ready-demo  ## measure messages per second through the whole system, by Postfix's load tools
	@$(PY) -m scripts.bench.burst $(ARGS)

bench-analytics: ready-test  ## measure export, report, and what a live queue feels of them
	@$(PY) -m scripts.analytics.java_runtime
	@$(PY) -m scripts.bench.analytics $(ARGS)

bench-smtpd: ready-test  ## measure how fast mail is accepted, beside Postfix where it is installed
	@$(PY) -m scripts.dev.peers || true
	@$(PY) -m scripts.bench.smtpd $(ARGS)

bench-flow: ready-test  ## measure the whole way of mail, beside Postfix where it is installed
	@$(PY) -m scripts.dev.peers || true
	@$(PY) -m scripts.bench.flow $(ARGS)

bench-poisoned: ready-test  ## measure what healthy mail feels of 10,000 poisoned domains beside it
	@$(PY) -m scripts.bench.poisoned $(ARGS)

bench-core: ready-demo  ## measure the queue core, beside pgmq (PGMQ_SQL=FILE) and PgQueuer
	@$(PY) -m scripts.bench.core $(ARGS)

test: ready-test  ## run the tests, Spark and Postfix's programs included, but for the heavy rings
	@$(PY) -m scripts.analytics.java_runtime || true
	@$(PY) -m scripts.dev.peers || true
	@$(PYTEST) $(AT_ONCE) $(addprefix --ignore=,$(HEAVY)) $(ARGS)

test-all: ready-test  ## run every test: PostgreSQL 15, the crash matrix, failover and the benchmarks' own too
	@$(PY) -m scripts.analytics.java_runtime || true
	@$(PY) -m scripts.dev.peers || true
	@if [ -x $(POSTGRES15) ]; then $(MAKE) --no-print-directory test-postgres15; \
	 else echo 'pillarbox: PostgreSQL 15 is missing; its ring is left out (Debian 12: apt-get install postgresql-15)'; fi
	@$(PYTEST) $(AT_ONCE) $(ARGS)

attack: ready-test  ## run every attack against a running `pillarbox up`, as a stranger would
	@$(PY) -m scripts.dev.peers || true
	@PILLARBOX_ATTACK=up $(PYTEST) -q $(AT_ONCE) $(wildcard tests/integration/attacks tests/*/*/test_attack_*.py) $(ARGS)

chaos: ready-test  ## the crash matrix: faults by instants under load, nothing lost (ARGS=--short within minutes)
	@$(PY) -m scripts.dev.peers || true
	@$(PY) -m tests.chaos $(ARGS)

chaos-apart: ready-test  ## failover (Patroni and etcd too), rolling upgrade and full disk under load
	@$(PY) -m tests.chaos.apart $(ARGS)

chaos-mutants: ready-test  ## take out each safeguard in turn: the matrix must notice
	@PILLARBOX_CHAOS=all $(PY) -m pytest -q tests/chaos/test_safeguards.py $(ARGS)

soak: ready-test  ## all faults at random for HOURS (default 1), and what must not grow
	@$(PY) -m tests.chaos.soak --hours $(or $(HOURS),1) $(ARGS)

test-fast: ready-test  ## run the rings that need no server: unit, property, layout
	@$(PY) -m pytest tests/unit tests/property tests/layout $(ARGS)

test-operators: ready-test  ## hold 100,000, release and delete them while mail flows, killing a command in the middle
	@PILLARBOX_TEST_HELD=100000 $(PY) -m pytest -q -rP tests/scenario/operation/test_operators_beside_mail.py -k half $(ARGS)

test-postgres15: ready-test  ## run what asks PostgreSQL something on Debian's PostgreSQL 15
	@$(PY) -m scripts.dev.peers || true
	@PILLARBOX_TEST_POSTGRES=debian15 $(PY) -m pytest $(AT_ONCE) $(ASKS_POSTGRES) $(ARGS)

check: ready-test  ## the gate: format, lint, strict types, layout
	@$(PY) -m ruff format --check $(SOURCES)
	@$(PY) -m ruff check $(SOURCES)
	@$(PY) -m mypy
	@$(PY) -m pytest -q tests/layout tests/unit/pages/test_reference_pages.py

format: ready-test  ## write the format the gate asks for
	@$(PY) -m ruff format $(SOURCES)
	@$(PY) -m ruff check --fix $(SOURCES)

lock: ready-demo  ## write constraints.txt anew from pyproject.toml
	@sh scripts/dev/lock.sh

java: ready-test  ## make a Java for Spark ready in .tools/java
	@$(PY) -m scripts.analytics.java_runtime

peers: ready-test  ## make Postfix's load tools, swaks, msmtp and other peers ready for the tests
	@$(PY) -m scripts.dev.peers

clean:  ## remove what was built or fetched; keeps var/, where mail lives
	rm -rf .venv .tools build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

ready-demo:
	@sh scripts/dev/bootstrap.sh demo

ready-test:
	@sh scripts/dev/bootstrap.sh test
