# memlab's own commands; `make help` lists them. Everything is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
SEED := $(shell date +%s)
TIMES := 10
CUDA ?= /usr/local/cuda

# Tests, lessons and benchmarks start memlab hundreds of times: Python keeps the bytecode of its modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help roofline test test-all check fuzz mutants format bench gpu-test gpu-bench docs clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

roofline: .venv/installed ## run the textbook's ladder and draw roofline.png and roofline.csv
	mkdir -p build && rm -f build/roofline.db*
	$(BIN)/memlab roofline --force --store build/roofline.db --output roofline.png

test: .venv/developing ## run the tests that need no GPU, but the slow ones
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m "not gpu and not slow" -n auto --dist worksteal

# Tracing makes memlab's own Python two to three times as slow: only the first cases of two quick tests in three are traced.
test-all: .venv/developing ## run all tests that need no GPU, and measure the coverage of some
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m traced -n auto --dist worksteal --cov --cov-report=term-missing
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m "not gpu and not traced" -n auto --dist worksteal

check: .venv/developing ## lint, types, import floors, format
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fuzz: .venv/developing ## the fuzz tests with TIMES=10 as many cases, drawn from SEED
	@echo "make fuzz SEED=$(SEED) TIMES=$(TIMES)  # draws these cases again"
	MEMLAB_FUZZ=$(TIMES) $(BIN)/python -m pytest tests/fuzz -n auto --hypothesis-seed=$(SEED)

mutants: .venv/developing ## mutation testing: plant faults, list those that no test finds (MUTANTS=--help)
	$(BIN)/python -m tests.mutants $(MUTANTS)

format: .venv/developing ## format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/developing ## speed of the emulator, and model against hardware
	$(BIN)/python -m benchmarks

gpu-test: .venv/developing ## run the tests that need a GPU
	$(BIN)/python -m pytest -m gpu

gpu-bench: .venv/developing ## times, counters and checks on a GPU against NVIDIA's tools
	$(BIN)/python -m benchmarks.counters
	$(BIN)/python -m benchmarks.rates docs/results
	$(BIN)/python -m benchmarks.sanitizer docs/results
	$(BIN)/python -m benchmarks.bars docs/results
	$(BIN)/python -m benchmarks.gpu docs/results

docs: .venv/installed ## make the lessons in docs/gallery again
	$(BIN)/python docs/make.py

clean: ## remove what the commands above made
	rm -rf .venv build *.egg-info .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis

# PyPI has PyCUDA's source alone. Where it cannot be built, all else works without the GPU.
define pycuda
@mkdir -p build; export PATH="$$PATH:$(CUDA)/bin"; \
$(BIN)/pip install -qq --editable '.[gpu]' >build/pycuda.log 2>&1 || { \
  for each in g++ nvcc; do command -v $$each >/dev/null || missing="$$missing $$each"; done; \
  echo "no GPU: PyCUDA cannot be built (build/pycuda.log says why; not found:$${missing:- none});" \
    "install g++ and the CUDA toolkit, then: $(BIN)/pip install --editable '.[gpu]'" >&2; }
endef

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "memlab needs Python 3.11 or later: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install -qq --editable .
	$(if $(shell command -v nvidia-smi),$(pycuda))
	touch $@

.venv/developing: .venv/installed
	$(BIN)/pip install --quiet --group dev
	touch $@
