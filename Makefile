# Every target sets up what it needs. `make` alone prints this list.

# One thread for NumPy and torch: reproducible, and on a busy machine many times faster.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export PYTHONHASHSEED := 0

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
IN_VENV := $(VENV)/bin/python
PINS := pyproject.toml constraints.txt tools/environment.py

.PHONY: help book test test-machines course serve lab accept bench pins clean
.DEFAULT_GOAL := help

help: ## print this list
	@echo "The Exact Hessian: executable papers on the curvature of neural-network losses"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

book: $(VENV)/ready ## set up, run every notebook, build the site, say where it is
	@$(IN_VENV) tools/build.py

test: $(VENV)/ready ## set up and run every check
	@$(IN_VENV) tools/check.py

test-machines: $(VENV)/ready ## the notebooks again on simulated other machines
	@$(IN_VENV) tools/check.py machines

course: book ## the book, and where its slide decks and student notebooks are
	@echo "Slide decks:       $(CURDIR)/_build/html/slides"
	@echo "Student notebooks: $(CURDIR)/_build/html/students"

serve: book ## build and serve the site on localhost
	@echo "Serving on http://localhost:8000 (stop with Ctrl-C)"
	@$(IN_VENV) -m http.server 8000 --bind 127.0.0.1 --directory _build/html

lab: $(VENV)/ready-lab ## JupyterLab, chapters open as notebooks
	@$(IN_VENV) tools/lab.py

accept: $(VENV)/ready ## execute the chapters and rewrite their reference notebooks
	@$(IN_VENV) tools/accept.py

pins: require-python ## resolve the dependencies anew into constraints.txt
	@$(PYTHON) tools/environment.py --resolve

bench: $(VENV)/ready ## measure the exact routes against their peers, as ratios
	@$(IN_VENV) benchmarks/ratios.py

clean: ## remove what builds and set-up made
	rm -rf _build vendor $(VENV) .mypy_cache .ruff_cache .hypothesis src/*.egg-info

$(VENV)/ready: $(PINS) | require-python
	@$(PYTHON) tools/environment.py
	@touch $@

$(VENV)/ready-lab: $(VENV)/ready
	@$(PYTHON) tools/environment.py --extras torch,book,test,lab
	@touch $@

.PHONY: require-python
require-python:
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo 'The book needs Python 3.11 or newer, and none was found on the PATH.' >&2; \
	echo 'Install it, or name it: make book PYTHON=/path/to/python3.11' >&2; exit 1; }
