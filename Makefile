# For people: the usual words in front of CMake. Everything that is built goes to build/.

PREFIX ?= /usr/local
prefix ?= $(PREFIX)

.PHONY: all run bench test test-all check sanitize ci install clean format help

all: ## build the library, the command, tests and benchmarks
	@scripts/build build

run: all ## four ranks train a small network together
	@build/bin/choir run -n 4 build/bin/examples/data_parallel

bench: all ## Choir beside Open MPI, MPICH, gloo and the limit of memory: build/report.html, in five minutes; more in bench/README.md
	@bench/compare all --quick

test: ## install what the tests need (as root) and run them all
	@scripts/setup
	@scripts/suites test

test-all: ## the same with the long counts, the checks and all sanitizers
	@CHOIR_TEST_LONG=1 scripts/setup
	@scripts/suites all

check: ## layers, API, globals, names, format, man pages
	@scripts/suites check

sanitize: ## unit tests under the address, undefined and thread sanitizers, the Python package under the first two
	@scripts/suites sanitize

ci: ## what every change must pass
	@.ci/run

install: all ## install below PREFIX (/usr/local); DESTDIR is put in front
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(prefix)"

clean: ## remove build/
	rm -rf build

format: ## lay the C sources out as .clang-format says
	@scripts/format

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
