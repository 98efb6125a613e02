# Everything that one does in a checkout. Needs python3 (3.11 or newer), git and make; the rest goes into .venv: `run` installs
# smart-fork alone, everything else PyTorch and the tools of development as well.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
LIGHT := .venv/.light
# Environments beside .venv: one without PyTorch for the tests, and the programs that build and check what is published.
TRIED := build/light/.installed
RELEASE := build/release/.installed

# What the person typed reaches the commands as an environment variable, never as text of a command line: `value`
# keeps make from expanding its dollars, and the recipe quotes it.
override INTENT := $(value INTENT)
override PROJECT := $(value PROJECT)
export INTENT PROJECT

.PHONY: help run install test thorough quick generated test-light coverage check lint dist docs reference bench which-session bench-report catalogue json-docs sentences golden gauges screenshots recording clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

run: $(LIGHT) ## the main job: INTENT="what you want to do" [PROJECT=dir]; without an intent, on example sessions
	@command -v smart-fork >/dev/null || echo "(smart-fork is $(BIN)/smart-fork here; the README says how to install it)" >&2
	@if [ -z "$$INTENT" ]; then exec $(BIN)/smart-fork demo; fi; \
	$(BIN)/smart-fork find --project "$${PROJECT:-.}" -- "$$INTENT" || { \
		status=$$?; [ $$status -eq 3 ] || exit $$status; \
		echo "No session of this project to search. The same job on example sessions:" >&2; \
		exec $(BIN)/smart-fork demo; }

install: $(STAMP) ## all that developers need, with PyTorch

# Four at a time: many wait for an agent or a server, and each more collects all tests once more. The tests of a file share a
# process, and so do the files of an `xdist_group` (tests/conftest.py).
PARALLEL := -n 4 --dist loadfile --no-loadscope-reorder

test: $(STAMP) lint ## the checks that take seconds, then the tests; ARGS goes to pytest
	@.ci/programs
	@# Compiled once: in a new checkout each of the four would do it.
	@[ -d tests/__pycache__ ] || $(BIN)/pytest --collect-only -q >/dev/null 2>&1 || true
	$(BIN)/pytest $(PARALLEL) -m 'not thorough' $(ARGS)

thorough: $(STAMP) ## further cases of what `make test` tries, which take long; CI runs both
	@.ci/programs
	$(BIN)/pytest $(PARALLEL) -m 'thorough or hypothesis' $(ARGS)

quick: $(STAMP) ## most tests, in three minutes: those that run no agent and are not marked as slow
	$(BIN)/pytest $(PARALLEL) -n logical -m 'not e2e and not slow and not thorough' $(ARGS)

coverage: ARGS += --cov # apart, for it makes the suite slower
coverage: test ## the same, and which lines no test has run

test-light: $(TRIED) ## the tests that need no other program, without PyTorch
	build/light/bin/python -m pytest $(PARALLEL) -m 'not e2e and not full' $(ARGS)

check: lint docs ## imports, lint, format, types, documentation
	$(BIN)/mypy

docs: $(STAMP) ## the documentation as a site in build/site; strict: a broken link fails
	$(BIN)/zensical build --strict --clean

reference: $(STAMP) ## docs/reference: commands, tools and settings, made of the code
	$(BIN)/python scripts/reference.py

lint: $(STAMP) ## imports, lint, format
	$(BIN)/lint-imports --no-logo
	$(BIN)/ruff check
	$(BIN)/ruff format --check

dist: $(RELEASE) ## dist/: sdist and wheel, checked, and installed into empty environments; PYTHONS="python3.11 python3.13"
	build/release/bin/python scripts/distribution.py

# Real logs with labelled queries (see benchmarks/retrieval.py). Without them only what makes its own data is measured.
CORPUS ?= $(wildcard ../shared/corpus)
LAID_OUT := $(if $(wildcard $(CORPUS)/lay_out.py),build/bench/corpus,$(CORPUS))
STATE := build/bench/state
INDEXED := $(if $(LAID_OUT),$(if $(QUICK),$(wildcard $(STATE)/index.db),yes))
BENCH ?= search_speed serving $(if $(LAID_OUT),indexing) $(if $(INDEXED),retrieval tuning) $(if $(QUICK),,$(if $(LAID_OUT),peers))
ARGS_search_speed := $(if $(QUICK),--quick)
ARGS_serving := $(if $(INDEXED),$(LAID_OUT) --home $(STATE))
ARGS_indexing := $(LAID_OUT) $(if $(QUICK),--no-vectors)
PHRASINGS := $(wildcard $(CORPUS)/also.jsonl)
ARGS_retrieval := $(LAID_OUT) --home $(STATE) $(if $(PHRASINGS),--also $(PHRASINGS))
ARGS_tuning := $(ARGS_retrieval) $(if $(QUICK),--quick)
ARGS_peers := $(LAID_OUT) --home $(STATE)

bench: $(STAMP) $(LAID_OUT) ## speed and quality; QUICK=1 in two minutes, BENCH=retrieval for one, CORPUS=folder of labelled logs
	@mkdir -p build/bench
	@$(foreach name,$(BENCH),echo "== $(name)"; \
		$(BIN)/python benchmarks/bench.py $(name) $(ARGS_$(name)) $(ARGS) --json build/bench/$(name).json || exit;)

which-session: $(STAMP) ## which earlier session knew: CLONES="git clones that keep their agents' sessions"; harm, with a CORPUS
	@mkdir -p build/bench
	$(BIN)/python -m benchmarks.which_session $(CLONES) $(if $(wildcard $(CORPUS)/lay_out.py),--corpus $(CORPUS)) $(ARGS) --json build/bench/which_session.json

build/bench/corpus:
	@mkdir -p $(@D)
	$(BIN)/python $(CORPUS)/lay_out.py $@

bench-report: $(STAMP) ## the tables and plots of docs/explanation/benchmarks.md, from what `make bench` has measured
	$(BIN)/python benchmarks/bench.py report

catalogue: $(STAMP) ## smart_fork/cli/mcp.json, from which `smart-fork mcp` answers before it has imported its server
	$(BIN)/python scripts/catalogue.py

json-docs: $(STAMP) ## the tables of docs/reference/json.md, made of the values that are answered
	$(BIN)/python scripts/json_docs.py

sentences: $(STAMP) ## tests/golden/sentences.txt: every sentence that people are shown, to be read
	$(BIN)/python scripts/sentences.py

# In this order: pages of the reference show the tools, and the golden files all of it.
GENERATED := catalogue json-docs reference sentences golden gauges

generated: $(STAMP) ## every file that is made of the code, anew: read the diff before you commit it
	@for target in $(GENERATED); do $(MAKE) --no-print-directory $$target || exit; done

golden: $(STAMP) ## tests/golden: answers, lists, help pages and sentences, as they are now
	GOLDEN=write $(BIN)/pytest -q tests/golden

gauges: $(STAMP) ## tests/gauges.toml: lower the numbers that tests refuse to see grow to those that are there
	$(BIN)/python -m tests.gauges --lower

screenshots: $(STAMP) ## docs/images, of the page with the demo's sessions; needs Chromium
	$(BIN)/python -m tests.e2e.screenshots docs/images

recording: $(STAMP) ## docs/images/*.svg, of the demo's sessions; needs Claude Code
	$(BIN)/python scripts/recording.py

clean: ## remove .venv and whatever the tools left behind
	rm -rf .venv build dist .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is touched last, so an installation that was interrupted is taken up again.
define VENV
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "smart-fork needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(BIN:/bin=) || { \
	echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
@echo "Installing into $(BIN:/bin=) (once; some minutes) ..." >&2
endef
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

INSTALLED_FROM := pyproject.toml constraints.txt hatch_build.py

$(LIGHT): $(INSTALLED_FROM)
	$(VENV)
	@$(PIP) -c constraints.txt -e .
	@touch $@

$(STAMP): $(INSTALLED_FROM)
	$(VENV)
	@$(PIP) -c constraints.txt -e '.[dev,sentence-transformers]'
	@touch $(LIGHT) $@

$(TRIED): BIN := build/light/bin
$(TRIED): $(INSTALLED_FROM)
	$(VENV)
	@$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

$(RELEASE): BIN := build/release/bin
$(RELEASE): $(INSTALLED_FROM)
	$(VENV)
	@$(PIP) -c constraints.txt build twine hatchling hatch-fancy-pypi-readme pip
	@touch $@
