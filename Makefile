# Needs only make and Python 3.11 or newer. Everything else goes into folders of this project:
# .venv, .venv-bench, .venv-crewai and, where uv is not installed, .tools.

PYTHON ?= python3

# Given on the command line only: shells often export HOST with another meaning.
URL =
HOST =
PORT =
PYTEST_ARGS =
# One more than there are cores: some tests wait for servers, browsers and other processes.
JOBS := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
BENCH_ARGS =
TAG =

QUICK = tests/analysis tests/assembly tests/contract/test_contract.py tests/formats tests/store \
	$(filter-out %_environment.py %_snapshots.py %_concurrency.py,$(wildcard tests/test_*.py))
SOAK = tests/contract tests/adapters tests/backends tests/docs/test_backend_page.py tests/importers/test_mutations.py tests/search tests/server/openai_wire/test_relay_chaos.py \
	tests/server/openai_wire/test_schema.py tests/server/test_openapi.py tests/store/test_odd_arguments.py \
	tests/web/test_axe.py tests/web/test_layout.py
UPGRADE =

BIN = .venv/bin
UV := $(shell command -v uv || echo .tools/bin/uv)
# make splits names at spaces, so only a path of this project can be something to make.
OWN_UV = $(filter .tools/bin/uv,$(UV))

export UV_LINK_MODE ?= copy
export UV_PYTHON_DOWNLOADS ?= never

# Tests start hundreds of Pythons, and each would compile all its modules anew where a shell asks for no bytecode files.
# Here they lie in no folder of the source.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX = $(CURDIR)/.tools/pycache

COMPILE = '$(UV)' pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url $(if $(UPGRADE),--upgrade)

.DEFAULT_GOAL := help
.PHONY: help setup serve quick test suite soak check types lint fmt bench docs dist constraints clean

help:
	@echo 'make serve        run the server (URL=, HOST=, PORT=)'
	@echo 'make quick        units, and the contract on memory and SQLite: while you work (PYTEST_ARGS=, JOBS=)'
	@echo 'make test         check, and the whole test suite (PYTEST_ARGS=, JOBS=)'
	@echo 'make suite        only the test suite (PYTEST_ARGS=, JOBS=)'
	@echo 'make soak         kills, damage, chaos and random runs, many times: hours (PYTEST_ARGS=, JOBS=)'
	@echo 'make check        lint, format, types, layers, spelling, names, sizes'
	@echo 'make lint         check without types'
	@echo 'make types        check only types'
	@echo 'make fmt          format, and fix what can be fixed'
	@echo 'make bench        run the benchmarks (BENCH_ARGS=)'
	@echo 'make docs         build the site of the documentation in site/'
	@echo 'make dist         build and check wheel, sdist and bill of materials in dist/ (TAG=)'
	@echo 'make setup        only make .venv'
	@echo 'make constraints  pin what pyproject.toml asks for (UPGRADE=1 for the newest versions)'
	@echo 'make clean        remove everything that these commands made'

setup: .venv/.ready

# The shell becomes the server, so that stopping make stops it: a shell in between would leave it running.
serve: .venv/.ready
	exec env $(if $(URL),HANSARD_URL='$(URL)' )$(BIN)/hansard serve $(if $(HOST),--host '$(HOST)') $(if $(PORT),--port '$(PORT)')

# Types take two minutes of one core where nothing is cached, so they are checked beside the tests. What is wrong is said
# again at the end, where it is seen.
test: lint
	@$(MAKE) --no-print-directory --jobs 2 types suite || { $(BIN)/mypy; exit 1; }

# CrewAI cannot be installed beside the other frameworks. Where it cannot be had at all, its tests say so and are skipped.
suite: .venv/.ready
	-@$(MAKE) --no-print-directory .venv-crewai/.ready
	$(BIN)/python tools/browser.py
	$(BIN)/python tools/axe.py
	$(BIN)/python tools/cassandra.py fetch
	$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal --durations 20 $(PYTEST_ARGS)

quick: JOBS = auto
quick: .venv/.ready
	HANSARD_BACKENDS=memory,sqlite $(BIN)/pytest --numprocesses $(JOBS) --dist worksteal --durations 20 -k 'not blocking' $(QUICK) $(PYTEST_ARGS)

# Each of these scenarios also runs in `make test`, briefly. The environment may set other numbers.
soak: export HANSARD_CRASHES ?= 300
soak: export HANSARD_DAMAGES ?= 1000
soak: export HANSARD_KILLS ?= 100
soak: export HANSARD_EXAMPLES ?= 200
soak: export HANSARD_FUZZED_QUERIES ?= 5000
soak: export HANSARD_MUTATIONS ?= 100
soak: export HANSARD_CONVERSATION ?= 200000
soak: export HANSARD_CONTRACT ?= all
soak: export HANSARD_ADAPTERS ?= all
soak: export HANSARD_WIDTHS ?= all
soak: .venv/.ready
	$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal --durations 20 $(SOAK) $(PYTEST_ARGS)

check: lint types

types: .venv/.ready
	$(BIN)/mypy

lint: .venv/.ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(BIN)/python tools/names.py
	$(BIN)/python tools/sizes.py

fmt: .venv/.ready
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

bench: .venv-bench/.ready
	.venv-bench/bin/python -m benchmarks $(BENCH_ARGS)

docs: .venv/.ready
	$(BIN)/python tools/site.py

dist: .venv/.ready $(OWN_UV)
	TAG='$(TAG)' $(BIN)/python tools/dist.py '$(UV)'

constraints: $(OWN_UV)
	$(COMPILE) pyproject.toml --extra all --extra embeddings --group dev -o constraints.txt
	$(COMPILE) pyproject.toml --extra all --extra embeddings --group bench -o constraints-bench.txt
	$(COMPILE) pyproject.toml --extra crewai --extra testing --group crewai -o constraints-crewai.txt
	echo uv | $(COMPILE) - -o tools/uv.txt

clean:
	rm -rf .venv .venv-bench .venv-crewai .tools build dist site .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# The first step checks every package against its hash. The second builds nothing but the link to src,
# with the build backend that the first one installed.
define install
	'$(UV)' pip sync --quiet --python $(@D) --require-hashes $<
	'$(UV)' pip install --quiet --python $(@D) --no-deps --no-build-isolation --editable .
	@touch $@
endef

define require-python
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
		"Hansard needs Python 3.11 or newer, and $(PYTHON) is %d.%d: try make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
endef

.venv/.ready: constraints.txt pyproject.toml | .venv/bin/python
	$(install)

.venv-crewai/.ready: constraints-crewai.txt pyproject.toml | .venv-crewai/bin/python
	$(install)

.venv-bench/.ready: constraints-bench.txt pyproject.toml | .venv-bench/bin/python
	$(install)

.venv/bin/python .venv-bench/bin/python .venv-crewai/bin/python: | $(OWN_UV)
	$(require-python)
	@# Python has left bytecode in the folder by now, and uv clears none that is no environment yet.
	rm -rf $(@D:/bin=)
	'$(UV)' venv --quiet --python "$$($(PYTHON) -B -c 'import sys; print(sys.executable)')" $(@D:/bin=)

.tools/bin/uv: tools/uv.txt
	$(require-python)
	$(PYTHON) -m venv .tools
	.tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@
