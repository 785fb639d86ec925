"""The reference notebooks: in step with their chapters, fully executed, and really compared."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import nbformat
import pytest
import yaml

import reference
import verdicts
from conftest import ROOT
from exacthessian import claims

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
            # such an output has its numbers in HTML or a picture only, which nobody compares
            assert "<IPython.core.display" not in str(output.get("data", {}).get("text/plain"))


@pytest.mark.parametrize("page", PAGES, ids=reference.name_of)
def test_no_cell_escapes_comparison(page):
    head = yaml.safe_load(page.read_text(encoding="utf-8").split("---\n")[1])
    assert set(head) == reference.HEAD
    notebook = reference.source_notebook(page)
    assert reference.loosened(reference.name_of(page), notebook) == []


@pytest.mark.parametrize(
    ("source", "metadata"),
    [
        ("1", {"tags": ["nbval-skip"]}),
        ("1", {"tags": ["nbval-ignore-output"]}),
        ("1", {"tags": ["hide-input", "raises-exception"]}),
        ("1", {"tags": ["skip-execution"]}),
        ("1", {"tags": ["remove-output"]}),
        ("1", {"tags": ["remove-cell"]}),
        ("1", {"nbval": {"rtol": 2e-3}}),
        ("1", {"nbval": {"rtol": float("nan")}}),
        ("1", {"nbval": {"atol": 1.0}}),
        ("1", {"mystnb": {"remove_code_outputs": True}}),
        ("1", {"nbval-skip": True}),
        ("# NBVAL_IGNORE_OUTPUT\n1", {}),
        ("#nbval_skip\n1", {}),
        ("1  # PYTEST_VALIDATE_IGNORE_OUTPUT", {}),
    ],
)
def test_an_escape_is_found(source, metadata):
    cell = nbformat.v4.new_code_cell(source, metadata=metadata)
    assert len(reference.loosened("page", nbformat.v4.new_notebook(cells=[cell]))) == 1


def test_an_explained_tolerance_is_neither_widened_nor_copied():
    name, (count, most, why) = next(iter(reference.LOOSE.items()))
    assert why

    def found(*rtols):
        cells = [nbformat.v4.new_code_cell("1", metadata={"nbval": {"rtol": r}}) for r in rtols]
        return reference.loosened(name, nbformat.v4.new_notebook(cells=cells))

    assert found(*[most] * count) == []
    assert found(*[most] * (count + 1))
    assert found(*[most * 2] * count)


# What verdicts rest on is pinned


PINNED = json.loads(verdicts.BASELINE.read_text(encoding="utf-8"))


def test_every_change_of_what_a_verdict_rests_on_is_in_the_changelog():
    changed = verdicts.changes(PINNED, verdicts.lines())
    changelog = verdicts.CHANGELOG.read_text(encoding="utf-8")
    unnamed = verdicts.unnamed(list(changed), changelog)
    assert unnamed == [], "\n".join(changed[id] for id in unnamed)
    assert f"baseline `{verdicts.digest(PINNED)}`" in changelog, "name the new baseline"


RECORD = "toy/lemma-1: holds\n  printed form: 3 cases against truth: within 1e-09"
TOY = claims.Claim("toy/lemma-1", "Lemma 1", "The square of n.", ("n > 0",))


@pytest.mark.parametrize(
    ("record", "subject"),
    [
        (RECORD.replace("1e-09", "1e-08"), TOY),
        (RECORD.replace("holds", "fails"), TOY),
        (RECORD.replace("within 1e-09", "off by 0.5 (allowed 1e-09)"), TOY),
        (RECORD, replace(TOY, statement="The square of m.")),
        (RECORD, replace(TOY, hypotheses=("n > 1",))),
        (RECORD, replace(TOY, erratum=claims.Erratum("a", "b", "c"))),
        (RECORD, replace(TOY, kind="number")),
        (RECORD, replace(TOY, loosest=1e-3)),
    ],
)
def test_what_a_verdict_rests_on_is_seen_to_change(record, subject):
    before, after = verdicts.line(RECORD, TOY), verdicts.line(record, subject)
    assert list(verdicts.changes({TOY.id: before}, {TOY.id: after})) == [TOY.id]


def test_the_size_of_an_error_counts_and_its_digits_do_not():
    failing = RECORD.replace("within 1e-09", "off by 0.52 (allowed 1e-09)")
    same, other = failing.replace("0.52", "0.53"), failing.replace("0.52", "0.052")
    assert verdicts.line(failing, TOY) == verdicts.line(same, TOY) != verdicts.line(other, TOY)
    seeds = "toy/lemma-1: analogue agrees\n  effect: 0.8, 95 % interval [0.7, 0.9] over 8 seeds, "
    assert verdicts.line(seeds + "against 0", TOY) != verdicts.line(seeds + "against 0.5", TOY)


def test_a_removed_verdict_is_a_change():
    assert list(verdicts.changes({"a/b": "holds"}, {})) == ["a/b"]
    assert verdicts.lines().keys() == {
        leaf.id for name in claims.REGISTRIES for leaf in claims.paper(name).leaves
    }


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
        ("1e-11", "2e-11", False),
        ("0.0", "1e-11", False),
        ("1 in 3", "1 in 3.0001", False),
        ("12,367", "12,368", False),
        ("10⁻⁵", "10⁻⁶", False),
        ("holds", "holds ", True),
        ("1e400", "2e400", False),
    ],
)
def test_disagreement(old, new, agrees):
    assert (reference.disagreement(old, new, reference.RTOL, reference.ATOL) is None) is agrees
