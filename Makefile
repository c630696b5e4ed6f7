# Everything starts here; needs Python 3.11 and make only. Paths are relative, so the checkout may lie under any name.
.DEFAULT_GOAL := help
.PHONY: help setup demo test check lint types imports lock bench-demo bench-privacy clean

PYTHON ?= $(shell for p in python3.11 python3 python; do "$$p" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
BIN := .venv/bin
PACKAGES := pipelines infra tasks flows
PYTEST_ARGS ?=
LOCK := $(BIN)/uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-emit-find-links --no-header --no-annotate \
	--generate-hashes --overrides infra/locks/overrides.txt $(if $(PIP_FIND_LINKS),--find-links "$(PIP_FIND_LINKS)",--torch-backend cpu)

help:  ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

setup:  ## Build the two locked environments (does nothing when they are current)
	@if [ -z "$(PYTHON)" ]; then echo "error: no Python 3.11 found; install python3.11, or run: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; fi
	@"$(PYTHON)" infra/environments.py

demo: setup  ## Run one whole cycle on the demo agent and print what it gained
	@$(BIN)/everloop demo

test: setup  ## Run the tests (PYTEST_ARGS="-k name" for some)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: setup lint types imports test  ## Everything that CI checks

lint: setup  ## Style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## Types, strictly
	$(BIN)/python -m mypy

imports: setup  ## Import rules between the layers
	$(BIN)/lint-imports

lock: setup  ## Resolve the dependencies anew and write infra/locks
	$(LOCK) --group dev --output-file infra/locks/control.txt pyproject.toml
	$(LOCK) --output-file infra/locks/serving.txt infra/locks/serving.in

bench-demo: setup  ## Measure the demo: time, memory, points gained, over three seeds
	$(BIN)/python -m infra.benchmarks.bench_demo

bench-privacy: setup  ## Measure redaction: recall and false positives per kind, on two corpora
	$(BIN)/python -m infra.benchmarks.bench_privacy

clean:  ## Remove the environments and caches; the state in .everloop stays
	rm -rf .venv .venv-serving .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist *.egg-info
