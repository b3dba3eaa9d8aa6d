# Two commands matter: `make demo` and `make test`. Both install what they need into .venv.

PYTHON ?= python3
BIN := .venv/bin

# What requirements/*.txt pin, by their hashes and nothing else; `make constraints` renews them.
INSTALL := $(BIN)/python -m pip install -q --no-deps
PINNED := $(INSTALL) --require-hashes -r
# torch stands apart, without a hash: the builds for CPUs alone are of an index of their own, and those of the
# usual index bring gigabytes of CUDA. Where pip finds a build for CPUs of this version, it takes that one.
TORCH := torch==2.13.0
COMPILE := $(BIN)/uv pip compile -q --upgrade --universal --python-version 3.10 --generate-hashes --no-annotate \
	--no-header pyproject.toml

.PHONY: install demo test check docs bench soak constraints clean

demo: .venv/.demo
	$(BIN)/oarlock run examples/mnist_keras

install: .venv/.all

test: .venv/.all
	$(BIN)/python tests/all.py

check: .venv/.all
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tests/strict_types.py

# The site, in build/site; a warning is an error.
docs: .venv/.all
	$(BIN)/python docs/job_file_reference.py
	$(BIN)/sphinx-build -q -W --keep-going -c docs . build/site

bench: .venv/.all
	$(BIN)/python bench/all.py

# tests/test_conventions.py: whatever leaves a part to the soak is named here.
LONG := $(BIN)/python -m pytest -o timeout=7200
soak: .venv/.all
	OARLOCK_MOMENTS=50 $(LONG) soak tests/agent tests/docs/test_recipes_train.py tests/examples tests/frameworks \
		tests/job/test_mutated_jobs.py tests/program/test_frameworks.py tests/serving/server tests/training/keras \
		tests/training/frameworks tests/training/task tests/training/test_parameter_servers.py \
		tests/cli/verbs/test_chaos.py tests/cli/verbs/test_tensorboard.py
	OARLOCK_ODD_ROUNDS=50 $(LONG) tests/agent/protocol/test_fuzz.py tests/run/test_run_events.py \
		tests/records/test_odd_records.py tests/serving/http/test_odd_requests.py
	OARLOCK_MOMENTS=50 $(LONG) tests/kubernetes
	OARLOCK_MOMENTS=200 $(LONG) tests/training/saving/test_saving.py tests/cli/verbs/test_delete_and_resume.py

clean:
	rm -rf .venv build .mypy_cache .pytest_cache .ruff_cache dist

# tf_keras asks for tensorflow; tensorflow-cpu is there in its stead. torch stands apart.
constraints: .venv/.all
	$(BIN)/python -m pip install -q 'uv==0.13.*'
	printf '%s\n' "tensorflow ; python_version < '3'" "torch ; python_version < '3'" | \
		$(COMPILE) --override - requirements/all.in -o requirements/all.txt
	$(COMPILE) --extra serve -c requirements/all.txt requirements/demo.in -o requirements/demo.txt
	$(COMPILE) --extra serve --resolution lowest-direct requirements/lowest.in -o requirements/lowest.txt

.venv/.demo: pyproject.toml Makefile requirements/demo.txt
	$(PYTHON) -m venv .venv
	$(PINNED) requirements/demo.txt
	$(INSTALL) --no-build-isolation -e .
	touch $@

.venv/.all: .venv/.demo requirements/all.txt
	$(PINNED) requirements/all.txt
	$(BIN)/python -m pip install -q $(TORCH)
	touch $@
