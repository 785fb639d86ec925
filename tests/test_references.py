"""The reference notebooks: in step with their chapters, fully executed, and really compared."""

import json
import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest

import reference
from conftest import ROOT

PAGES = reference.notebooks()


def test_every_page_has_a_reference_and_every_reference_a_page():
    assert PAGES
    references = {path.with_suffix(".md") for path in (ROOT / "book").rglob("*.ipynb")}
    assert references == set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=reference.name_of)
def test_the_pair_is_in_step(page):
    source = reference.source_notebook(page)
    generated = nbformat.read(page.with_suffix(".ipynb"), as_version=4)

    def content(notebook):
        return [(cell.id, cell.cell_type, cell.source, cell.metadata) for cell in notebook.cells]

    assert content(generated) == content(source), f"run `make accept`: {page.name} has changed"


@pytest.mark.parametrize("page", PAGES, ids=reference.name_of)
def test_every_code_cell_of_the_reference_was_executed(page):
    notebook = nbformat.read(page.with_suffix(".ipynb"), as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    # nbval compares nothing for a cell without a count, so a gap here would be a blind spot
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))


@pytest.mark.parametrize("page", PAGES, ids=reference.name_of)
def test_the_reference_holds_text_only(page):
    notebook = nbformat.read(page.with_suffix(".ipynb"), as_version=4)
    assert set(notebook.metadata) == {"kernelspec"}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type in ("stream", "display_data", "execute_result")
            assert output.get("name") != "stderr"
            assert set(output.get("data", {})) <= set(reference.KEPT)


def test_a_stream_is_kept_whole_wherever_it_was_cut():
    pieces = [nbformat.v4.new_output("stream", name="stdout", text=text) for text in ("a", "b\n")]
    (whole,) = reference.compared(pieces)
    assert whole["text"] == "ab\n"


COMPUTED = "print('sharpness', 0.123456789012345, 'rank', 12)"
LOOSE = {"nbval": {"rtol": 1e-3}}
# What a cell computes, what its reference says, its metadata, and whether nbval must pass it.
COMPARED = {
    "the same": (COMPUTED, "sharpness 0.123456789012345 rank 12\n", {}, True),
    "the last bit": (COMPUTED, "sharpness 0.123456789012346 rank 12\n", {}, True),
    "a digit": (COMPUTED, "sharpness 0.123457789012345 rank 12\n", {}, False),
    "an integer": (COMPUTED, "sharpness 0.123456789012345 rank 13\n", {}, False),
    "a sign": (COMPUTED, "sharpness -0.123456789012345 rank 12\n", {}, False),
    "a word": (COMPUTED, "flatness 0.123456789012345 rank 12\n", {}, False),
    "a line too much": (COMPUTED, "sharpness 0.123456789012345 rank 12\nmore\n", {}, False),
    "no output in the reference": (COMPUTED, None, {}, False),
    "no output in the cell": ("pass", "sharpness 0.1\n", {}, False),
    "within its own tolerance": ("print(1.0004)", "1.0000\n", LOOSE, True),
    "beyond its own tolerance": ("print(1.004)", "1.0000\n", LOOSE, False),
}


@pytest.fixture(scope="module")
def nbval_says(tmp_path_factory):
    """Whether nbval passes each cell of one notebook that holds them all."""
    folder = tmp_path_factory.mktemp("nbval")
    shutil.copy(ROOT / "book" / "conftest.py", folder)
    notebook = nbformat.v4.new_notebook()
    for count, (source, printed, metadata, _) in enumerate(COMPARED.values(), start=1):
        cell = nbformat.v4.new_code_cell(source, execution_count=count, metadata=metadata)
        if printed is not None:
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=printed)]
        notebook.cells.append(cell)
    path = folder / "cells.ipynb"
    path.write_text(json.dumps(notebook))
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--nbval", "--nbval-current-env"]
    done = subprocess.run(
        [*command, "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, path],
        cwd=folder,
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT / "tools")),
    )
    outcomes = {
        int(n): word
        for word, n in re.findall(r"^(PASSED|FAILED) .*::Cell (\d+)", done.stdout, re.M)
    }
    assert sorted(outcomes) == list(range(len(COMPARED))), done.stdout + done.stderr
    return dict(zip(COMPARED, (outcomes[n] == "PASSED" for n in sorted(outcomes)), strict=True))


@pytest.mark.parametrize("case", COMPARED)
def test_nbval_compares_words_exactly_and_numbers_as_numbers(nbval_says, case):
    assert nbval_says[case] is COMPARED[case][-1]


@pytest.mark.parametrize(
    ("old", "new", "agrees"),
    [
        ("[0.1 2.0]", "[0.1  2.0]", True),
        ("1e-17", "-3e-16", True),
        ("3.0", "3", True),
        ("2.99999999", "3", True),
        ("W2 x", "W3 x", False),
        ("nan", "inf", False),
        ("−1.5", "-1.5", True),
        ("1 2 3", "1 2", False),
        ("0.25", "0.2500003", False),
    ],
)
def test_disagreement(old, new, agrees):
    assert (reference.disagreement(old, new, reference.RTOL, reference.ATOL) is None) is agrees
