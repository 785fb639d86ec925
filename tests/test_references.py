"""The reference notebooks: in step with their chapters, fully executed, and really compared."""

import json
import os
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


@pytest.fixture
def validate(tmp_path):
    """A function that gives nbval a reference with one cell, and says whether it passes."""

    def run(source: str, printed: str | None, **metadata) -> bool:
        shutil.copy(ROOT / "book" / "conftest.py", tmp_path)
        cell = nbformat.v4.new_code_cell(source, execution_count=1, metadata=metadata)
        if printed is not None:
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=printed)]
        notebook = nbformat.v4.new_notebook(cells=[cell])
        path = tmp_path / "one_cell.ipynb"
        path.write_text(json.dumps(notebook))
        command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env"]
        done = subprocess.run(
            [*command, "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, path],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=dict(os.environ, PYTHONPATH=str(ROOT / "tools")),
        )
        assert "1 passed" in done.stdout or "1 failed" in done.stdout, done.stdout + done.stderr
        return done.returncode == 0

    return run


COMPUTED = "print('sharpness', 0.123456789012345, 'rank', 12)"


@pytest.mark.parametrize(
    ("printed", "passes"),
    [
        ("sharpness 0.123456789012345 rank 12\n", True),
        ("sharpness 0.123456789012346 rank 12\n", True),  # the last bit
        ("sharpness 0.123457789012345 rank 12\n", False),  # a digit
        ("sharpness 0.123456789012345 rank 13\n", False),  # an integer
        ("sharpness -0.123456789012345 rank 12\n", False),  # a sign
        ("flatness 0.123456789012345 rank 12\n", False),  # a word
        ("sharpness 0.123456789012345 rank 12\nmore\n", False),  # a line too much
        (None, False),  # an output that is missing from the reference
    ],
)
def test_nbval_compares_words_exactly_and_numbers_as_numbers(validate, printed, passes):
    assert validate(COMPUTED, printed) is passes


def test_a_missing_output_fails(validate):
    assert not validate("pass", "sharpness 0.1\n")


def test_a_cell_can_state_its_own_tolerance(validate):
    assert validate("print(1.0004)", "1.0000\n", nbval={"rtol": 1e-3})
    assert not validate("print(1.004)", "1.0000\n", nbval={"rtol": 1e-3})


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
