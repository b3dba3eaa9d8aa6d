# Two commands matter: `make demo` and `make test`. Both install what they need into .venv.

PYTHON ?= python3
BIN := .venv/bin

# torch by this exact version and by pip: other versions bring gigabytes of CUDA.
# tensorflow-cpu with tf_keras without its dependencies, for the same reason.
TENSORFLOW := 'tensorflow-cpu==2.21.*'
OTHERS := torch==2.13.0 jax jaxlib obstore tensorboard
TOOLS := ruff mypy types-PyYAML pytest pytest-timeout pytest-xdist build jsonschema

.PHONY: install demo test check bench soak clean

demo: .venv/.demo
	$(BIN)/oarlock run examples/mnist_keras

install: .venv/.all

test: .venv/.all
	$(BIN)/python tests/run.py

check: .venv/.all
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/.all
	$(BIN)/python bench/all.py

soak: .venv/.all
	OARLOCK_MOMENTS=50 $(BIN)/python -m pytest -p conftest soak tests/agent/test_random_ends.py tests/frameworks tests/test_mutated_jobs.py
	OARLOCK_MOMENTS=200 $(BIN)/python -m pytest -p conftest tests/training/test_saving.py

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache dist

.venv/.demo: pyproject.toml Makefile
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -e . $(TENSORFLOW)
	touch $@

.venv/.all: .venv/.demo
	$(BIN)/python -m pip install -q $(TOOLS) $(OTHERS)
	$(BIN)/python -m pip install -q --no-deps 'tf_keras==2.21.*'
	touch $@
