# Pillarbox: the commands for development. Needs make, git and a Python; the rest is installed into .venv and .tools.
.DEFAULT_GOAL := help
.PHONY: help install demo up bench bench-accounts bench-analytics bench-core bench-smtpd bench-flow bench-http bench-long-queue bench-poisoned bench-web bench-webhooks attack chaos chaos-apart chaos-mutants soak test test-all test-fast test-web test-operators test-postgres15 check check-types check-layout format lock java package-test compose-test systemd-test docs sbom audit deb peers clean ready-demo ready-test ready-docs

PY := .venv/bin/python
PYTEST := JAVA_HOME="$(CURDIR)/.tools/java" $(PY) -m pytest
# Most tests wait for other processes, so two run at a time on each processor. conftest.py groups tests that share state.
AT_ONCE := -n $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN) ))) --dist loadfile --no-loadscope-reorder
# The rings that take minutes; `make test-all` runs them too. Besides the crash matrix and the benchmarks' tests: packages
# are built and installed from an index into new environments, and of analytics a cluster of Spark and one with Spark
# Connect are started, every command of its pages runs as a process with a Java of its own, and streams are killed.
HEAVY := tests/chaos tests/integration/bench tests/package $(addprefix tests/analytics/,test_pages.py with_spark/test_cluster.py with_spark/test_stream_killed.py)
POSTGRES15 := /usr/lib/postgresql/15/bin/postgres
# The tests that query PostgreSQL also run on its oldest supported version; the other folders do not depend on it, and the
# pages of docs/ are commands whose statements these folders run.
ASKS_POSTGRES := $(addprefix tests/integration/,accounts claim client commands doctor login maintenance pacing partitions quarantine queue result schema settings spool)
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
SOURCES := $(wildcard smtpd queued collect shared operate httpd scripts sql clients tests conftest.py)
export PYTHON
# Tests start hundreds of processes, so bytecode is always cached.
unexport PYTHONDONTWRITEBYTECODE

help:  ## list these targets
	@awk 'BEGIN {FS = ":[^#]*## "} /^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo '  ARGS="…" passes options to the command, for example: make demo ARGS="--mail DIR"'

install: ready-demo  ## put the command `pillarbox` on PATH: a link in PREFIX/bin (~/.local; as root /usr/local)
	@mkdir -p "$(PREFIX)/bin" && ln -sfn "$(CURDIR)/.venv/bin/pillarbox" "$(PREFIX)/bin/pillarbox"
	@echo "pillarbox: the command is $(PREFIX)/bin/pillarbox"
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; \
	 *) echo 'pillarbox: your PATH lacks it; type: export PATH="$(PREFIX)/bin:$$PATH"' ;; esac

demo: ready-demo  ## deliver sample mail through real daemons; needs no installation
	@.venv/bin/pillarbox demo $(ARGS)

up: ready-demo  ## run the smtpd and queued workers of config/ until Ctrl-C
	@.venv/bin/pillarbox up --sink $(ARGS)

bench: ready-demo  ## measure messages per second through the whole system, with Postfix's load tools
	@$(PY) -m scripts.bench.burst $(ARGS)

bench-analytics: ready-test  ## measure export and report, and their effect on a live queue
	@$(PY) -m scripts.analytics.java_runtime
	@$(PY) -m scripts.bench.analytics $(ARGS)

bench-smtpd: ready-test  ## measure acceptance, compared with Postfix if it is installed
	@$(PY) -m scripts.dev.peers || true
	@$(PY) -m scripts.bench.smtpd $(ARGS)

bench-flow: ready-test  ## measure mail from acceptance to delivery, compared with Postfix if it is installed
	@$(PY) -m scripts.dev.peers || true
	@$(PY) -m scripts.bench.flow $(ARGS)

bench-poisoned: ready-test  ## measure the delay of healthy mail beside 10,000 domains that do not answer
	@$(PY) -m scripts.bench.poisoned $(ARGS)

bench-http: ready-demo  ## measure sending by HTTP, compared with SMTP into the same queue
	@$(PY) -m scripts.bench.http $(ARGS)

bench-long-queue: ready-test  ## measure mail and commands beside ten million recipients that wait
	@$(PY) -m scripts.dev.peers || true
	@$(PY) -m scripts.bench.long_queue $(ARGS)

bench-web: ready-test  ## measure the console over a million queued recipients, in Chromium, and what 50 viewers cost delivery
	@$(PY) -m scripts.bench.web $(ARGS)

bench-webhooks: ready-demo  ## measure the events that a webhook takes in a second
	@$(PY) -m scripts.bench.webhooks $(ARGS)

bench-accounts: ready-demo  ## measure mail queued by SQL, and the collector of account mail beside a bare loop over the same tokens
	@$(PY) -m scripts.bench.enqueue
	@$(PY) -m scripts.bench.accounts $(ARGS)

bench-core: ready-demo  ## measure the queue core, compared with pgmq (PGMQ_SQL=FILE) and PgQueuer
	@$(PY) -m scripts.bench.core $(ARGS)

test: ready-test  ## run the tests, including Spark and Postfix's programs, without the slow rings
	@$(PY) -m scripts.analytics.java_runtime || true
	@$(PY) -m scripts.dev.peers || true
	@$(PYTEST) $(AT_ONCE) $(addprefix --ignore=,$(HEAVY)) $(ARGS)

test-all: ready-test ready-docs  ## run every test, including PostgreSQL 15, the crash matrix, failover and the benchmarks' tests
	@$(PY) -m scripts.analytics.java_runtime || true
	@$(PY) -m scripts.dev.peers || true
	@if [ -x $(POSTGRES15) ]; then $(MAKE) --no-print-directory test-postgres15; \
	 else echo 'pillarbox: PostgreSQL 15 is missing; its tests are skipped (Debian 12: apt-get install postgresql-15)'; fi
	@$(PYTEST) $(AT_ONCE) $(ARGS)

attack: ready-test  ## run every attack against a running `pillarbox up`
	@$(PY) -m scripts.dev.peers || true
	@PILLARBOX_ATTACK=up $(PYTEST) -q $(AT_ONCE) $(wildcard tests/integration/attacks tests/*/*/test_attack_*.py) \
		tests/property/shared/test_domain.py tests/unit/commands/test_quarantine_render.py $(ARGS)

chaos: ready-test  ## run the crash matrix: faults under load, no mail may be lost (ARGS=--short: under 3 minutes)
	@$(PY) -m scripts.dev.peers || true
	@$(PY) -m tests.chaos $(ARGS)

chaos-apart: ready-test  ## test failover (also with Patroni and etcd), rolling upgrade and full disk under load
	@$(PY) -m tests.chaos.apart $(ARGS)

chaos-mutants: ready-test  ## remove each safeguard in turn: the crash matrix must fail; kill the stream at each step
	@PILLARBOX_CHAOS=all $(PYTEST) -q tests/chaos/test_safeguards.py tests/analytics/with_spark/test_stream_killed.py $(ARGS)

soak: ready-test  ## inject all faults at random for HOURS (default 1), with limits on memory, files and backlog
	@$(PY) -m tests.chaos.soak --hours $(or $(HOURS),1) $(ARGS)

test-fast: ready-test  ## run the tests that need no server: unit, property, layout
	@$(PY) -m pytest tests/unit tests/property tests/layout $(ARGS)

test-web: ready-test  ## run the tests of the console, in a real Chromium too (apt-get install chromium)
	@$(PYTEST) -q $(AT_ONCE) tests/integration/console $(ARGS)

test-operators: ready-test  ## hold, release and delete 100,000 recipients while mail flows, with a command killed midway
	@PILLARBOX_TEST_HELD=100000 $(PY) -m pytest -q -rP tests/scenario/operation/test_operators_beside_mail.py -k half $(ARGS)

docs: ready-docs  ## build the documentation site into build/site; a dead link or a page left out is an error
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict $(ARGS)
	@echo 'pillarbox: the first page is build/site/index.html'

package-test: ready-test ready-docs  ## build the wheel, install it into an empty environment of each Python, deliver mail with it
	@$(PY) -m pytest -q tests/package $(ARGS)

compose-test: ready-test  ## bring docker-compose.yml up, kill containers, take it down and upgrade it: no mail may be lost (root)
	@$(PY) -m tests.package.compose_up

systemd-test: ready-test  ## install the Debian package where systemd boots (a container), kill its daemons: no mail may be lost (root)
	@$(PY) -m tests.package.systemd_up

sbom: ready-demo  ## list what an installation consists of, with licences, in build/sbom.cdx.json (CycloneDX)
	@sh scripts/dev/release.sh sbom build/sbom.cdx.json

audit: ready-demo  ## ask whether a fault of a pinned package is known; says so where that cannot be asked
	@sh scripts/dev/release.sh audit

deb: ready-demo  ## build the Debian package into build/ (PYTHON=/usr/bin/python3.13; on the release that it is for)
	@sh scripts/dev/deb.sh build

test-postgres15: ready-test  ## run the tests that query PostgreSQL on Debian's PostgreSQL 15
	@$(PY) -m scripts.dev.peers || true
	@PILLARBOX_TEST_POSTGRES=debian15 $(PY) -m pytest $(AT_ONCE) $(ASKS_POSTGRES) $(ARGS)

check: ready-test  ## check format, lint, strict types and layout
	@$(MAKE) --no-print-directory -j 2 check-types check-layout

check-types:
	@$(PY) -m mypy

check-layout:
	@$(PY) -m ruff format --check $(SOURCES)
	@$(PY) -m ruff check $(SOURCES)
	@$(PY) -m pytest -q tests/layout tests/unit/pages/test_reference_pages.py

format: ready-test  ## format the code and apply lint's fixes
	@$(PY) -m ruff format $(SOURCES)
	@$(PY) -m ruff check --fix $(SOURCES)

lock: ready-demo  ## regenerate constraints.txt from pyproject.toml
	@sh scripts/dev/lock.sh

java: ready-test  ## provide a Java for Spark in .tools/java
	@$(PY) -m scripts.analytics.java_runtime

peers: ready-test  ## install Postfix's load tools, swaks, msmtp and other peers for the tests
	@$(PY) -m scripts.dev.peers

clean:  ## remove everything built or downloaded; keeps var/, which holds mail
	rm -rf .venv .tools build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

ready-demo:
	@sh scripts/dev/bootstrap.sh demo

ready-test:
	@sh scripts/dev/bootstrap.sh test

ready-docs:
	@sh scripts/dev/bootstrap.sh docs
