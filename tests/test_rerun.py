"""A cell that is run again after the page must give what it gave before."""

import os
import subprocess
import sys

import pytest
from nbformat.v4 import new_code_cell, new_notebook

import rerun
from conftest import ROOT

SOUND = ["size = 3", "print('size', size)", "other = size + 0.5\nother"]


@pytest.mark.parametrize(
    ("cells", "problems"),
    [
        (SOUND, []),
        ([*SOUND[:2], "size = 4"], ["code cell 2 gives something else again: 3 became 4"]),
        (
            ["size = 3", "print(1 / size)", "size = 0"],
            ["code cell 2 raises when run again: ZeroDivisionError: division by zero"],
        ),
        (["size = 3", "size += 1", "print(size)"], []),  # what a cell shows counts, not its state
        (["3\n", "1 / 0"], ["code cell 2 raises: ZeroDivisionError: division by zero"]),
        (
            ["count = 0", "count += 1\ncount"],
            ["code cell 2 gives something else again: 1 became 2"],
        ),
    ],
)
def test_a_cell_is_run_again_from_the_end_of_the_page(monkeypatch, tmp_path, cells, problems):
    page = tmp_path / "page.md"
    notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
    monkeypatch.setattr(rerun, "source_notebook", lambda page: notebook)
    assert rerun.in_a_fork(lambda: rerun.rerun(page)) == problems


def test_a_fork_changes_nothing_here():
    names = []
    assert rerun.in_a_fork(lambda: names.append("there") or names) == ["there"]
    assert names == []


def test_a_real_page_can_be_run_again():
    done = subprocess.run(
        [sys.executable, "tools/rerun.py", "notation"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT / "src")),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "notation: 0 cells" in done.stdout
