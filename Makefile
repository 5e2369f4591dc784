# specsim: `make demo` and `make test` set everything up on a machine with Python >= 3.11 and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test test-all check bench reality format docs clean

demo: $(STAMP)           ## run the quickstart: where does speculation stop paying?
	$(BIN)/specsim run quickstart

test: $(STAMP)           ## the test suite, minus what is marked slow
	$(BIN)/python -m pytest -n auto -m "not slow" tests

test-all: $(STAMP)       ## everything, slow tests included
	$(BIN)/python -m pytest -n auto tests

check: $(STAMP)          ## format, lint, types, import floors, structure budgets
	$(BIN)/ruff format --check sim tests
	$(BIN)/ruff check sim tests
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_architecture.py

bench: $(STAMP)          ## timings; never asserted, machines differ
	for script in tests/bench/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

format: $(STAMP)
	$(BIN)/ruff check --fix sim tests
	$(BIN)/ruff format sim tests

reality: $(STAMP)        ## regularities and recorded servers; all suites: specsim validate all --data DIR
	$(BIN)/python -m pytest -q -s tests/reality

docs: $(STAMP)           ## refresh what is generated from the specs
	$(BIN)/specsim schema > docs/scenario.schema.json
	$(BIN)/python docs/generate.py

$(STAMP): pyproject.toml requirements-dev.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "specsim needs Python 3.11 or newer, found %d.%d; try make PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt -e .
	touch $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
