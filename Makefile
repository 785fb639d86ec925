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
PINS := pyproject.toml constraints.txt hashes.txt tools/environment.py

STAGES := lint types unit notebooks site live again

.PHONY: help book test $(STAGES) mutate-claims mutate budget new-paper test-machines test-versions test-downloads audit course deck-pdf pdf serve lab accept bench pins clean
.DEFAULT_GOAL := help

help: ## print this list
	@echo "The Exact Hessian: executable papers on the curvature of neural-network losses"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

book: $(VENV)/ready ## set up, run every notebook, build the site, say where it is
	@$(IN_VENV) tools/build.py

test: $(VENV)/ready ## set up and run every check
	@$(IN_VENV) tools/check.py

lint: $(VENV)/ready ## a stage of the test: style
	@$(IN_VENV) tools/check.py lint

types: $(VENV)/ready ## a stage of the test: types
	@$(IN_VENV) tools/check.py types

unit: $(VENV)/ready ## a stage of the test: the package, the tools, every docstring's example
	@$(IN_VENV) tools/check.py unit

notebooks: $(VENV)/ready ## a stage of the test: the outputs of every page, or of PAGE=depth_not_data/proofs
	@$(IN_VENV) tools/check.py notebooks $(PAGE)

site: $(VENV)/ready ## a stage of the test: the built site in a browser
	@$(IN_VENV) tools/check.py site

live: $(VENV)/ready-lab ## a stage of the test: pages in a real JupyterLab
	@$(IN_VENV) tools/check.py live

again: $(VENV)/ready ## run every cell once more after its page, or of PAGE=..., and compare
	@$(IN_VENV) tools/check.py again $(PAGE)

mutate-claims: $(VENV)/ready ## break each numbered function and see its verdict move (PAGE=... for one page)
	@$(IN_VENV) tools/mutate_claims.py $(PAGE)

mutate: $(VENV)/ready ## break the package in small ways and see its tests notice: MODULE=..., MUTANTS=15 of each
	@$(IN_VENV) tools/mutate.py $(MODULE)

budget: $(VENV)/ready ## how much every page asks of a reader
	@$(IN_VENV) tools/page_budget.py

new-paper: $(VENV)/ready ## start a paper from the template: NAME=short-name
	@$(IN_VENV) tools/new_paper.py "$(NAME)"

test-machines: $(VENV)/ready ## every page, or PAGE=..., on simulated other machines
	@$(IN_VENV) tools/check.py machines $(PAGE)

test-versions: $(VENV)/ready ## the package with the oldest and newest versions it allows
	@$(IN_VENV) tools/versions.py

test-downloads: book ## the notebooks that the site offers, run away from the repository
	@$(IN_VENV) tools/downloads.py $(PAGE)

audit: $(VENV)/ready ## look the pinned packages up among the known vulnerabilities
	@$(IN_VENV) tools/audit.py

course: book ## the book, with decks, handouts, solutions and the zip that holds them
	@echo "Slide decks:  $(CURDIR)/_build/html/slides"
	@echo "Handouts:     $(CURDIR)/_build/html/handouts"
	@echo "Solutions:    $(CURDIR)/_build/html/solutions"
	@echo "All together: $(CURDIR)/_build/html/course.zip"

deck-pdf: $(VENV)/ready ## the decks as PDF, or DECK=seminar_3; after `make course`
	@$(IN_VENV) tools/deck_pdf.py $(DECK)

pdf: book ## the whole book as one PDF, with page numbers, bookmarks and links
	@$(IN_VENV) tools/book_pdf.py

serve: book ## build and serve the site on localhost
	@echo "Serving on http://localhost:8000 (stop with Ctrl-C)"
	@$(IN_VENV) -m http.server 8000 --bind 127.0.0.1 --directory _build/html

lab: $(VENV)/ready-lab ## JupyterLab, pages open as notebooks; its options in ARGS=...
	@$(IN_VENV) tools/lab.py $(ARGS)

accept: $(VENV)/ready ## execute every page, or PAGE=..., and rewrite the reference notebooks
	@$(IN_VENV) tools/accept.py $(PAGE)

pins: require-python ## resolve the dependencies anew into constraints.txt and hashes.txt
	@$(PYTHON) tools/environment.py --resolve

bench: $(VENV)/ready ## measure the exact routes against their peers, as ratios
	@$(IN_VENV) benchmarks/ratios.py

clean: ## remove what builds and set-up made
	rm -rf _build vendor $(VENV) .mypy_cache .ruff_cache .hypothesis src/*.egg-info

# An environment that was moved or copied knows another place: it is made anew.
ifneq ($(shell cat $(VENV)/HOME 2>/dev/null),$(realpath $(VENV)))
.PHONY: $(VENV)/ready
endif

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
