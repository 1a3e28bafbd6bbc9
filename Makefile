# bayeseq: `make demo` shows the main job, `make test` checks everything. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: install demo test lint bench notebooks clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: install
	$(BIN)/bayeseq demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python benchmarks/crf.py

notebooks: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --nbmake notebooks

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
