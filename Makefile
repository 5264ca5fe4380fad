# Two commands do everything: `make demo` shows what akx does, `make test` checks all of it.
# Both work in a virtual environment of their own (.venv); a stamp per set of extras keeps later runs quick.

# The first of these that is 3.11 or newer and can make a virtual environment; `make PYTHON=... demo` overrides.
PYTHON ?= $(firstword $(foreach name,python3 python3.12 python3.11 python3.13 python,\
	$(shell $(name) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
VENV ?= .venv
BIN := $(VENV)/bin

# Hundreds of processes import the same modules: each would compile all of them again where bytecode is not kept. It is
# made when it is first needed: pip would compile six thousand modules, most of which nobody asks for.
export PYTHONDONTWRITEBYTECODE :=
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile

.DELETE_ON_ERROR:
.PHONY: demo test nightly lint bench gpu-test gpu-bench clean help

help:
	@echo "make demo      tune a finite-element matrix and a real one, then use the plans from Python"
	@echo "make test      lint, types, layering and every test, from nothing"
	@echo "make nightly   the same with all that is tested in part on every push (hours)"
	@echo "make lint      ruff, mypy --strict and import-linter only"
	@echo "make bench     measure the gallery against SciPy and MKL (long)"
	@echo "make gpu-test  the tests that need an NVIDIA GPU, with a receipt"
	@echo "make gpu-bench measure the gallery against cuSPARSE on an NVIDIA GPU, and matrices beyond a memory budget"
	@echo "make clean     remove what the others made"

demo: $(VENV)/.run
	$(BIN)/python examples/demo.py

# There is a test on each core: threads of BLAS would only wait for one another, at more than twice the processor time.
test: $(VENV)/.dev lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

nightly: $(VENV)/.dev lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal --nightly

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	MYPY_NUM_WORKERS=2 $(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

gpu-test: $(VENV)/.cuda
	$(BIN)/python benchmarks/gpu_receipt.py

gpu-bench: $(VENV)/.cuda
	$(BIN)/python -m benchmarks.gpu
	$(BIN)/python -m benchmarks.stream --large
	$(BIN)/python -m benchmarks.thesis --shared

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find akx tests benchmarks studies examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: found no Python 3.11 or newer that can make a virtual environment;" \
		"install one (on Debian and Ubuntu: python3 python3-venv), or run: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(BIN)/python $(INSTALL) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python $(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.run

$(VENV)/.cuda: pyproject.toml | $(BIN)/python
	$(BIN)/python $(INSTALL) -e '.[dev,cuda]' || \
		$(BIN)/python $(INSTALL) -e '.[dev]' 'cuda-bindings[all]>=12.8'
	@touch $@ $(VENV)/.run

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(BIN)/python $(INSTALL) -e '.[bench]'
	@touch $@ $(VENV)/.run
