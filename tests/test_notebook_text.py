"""Notebooks are written in words that any Jupyter knows: no macros and directives of ours."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import build
import closed_form
import notebook_text
import reference
from conftest import ROOT
from notebook_text import expanded


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (r"$\E x$", r"$\mathbb{E} x$"),
        (r"$\R^{d}$", r"$\mathbb{R}^{d}$"),
        (r"$\vec(W)$", r"$\operatorname{vec}(W)$"),
        (r"$H_\diag$", r"$H_{\operatorname{diag}}$"),
        (r"$\rank A^\R$", r"$\operatorname{rank} A^{\mathbb{R}}$"),
        (r"$\Re z \trace \vector \Ell$", r"$\Re z \trace \vector \Ell$"),
        (r"$\operatorname{tr} A$", r"$\operatorname{tr} A$"),
        ("```{verdicts} depth-not-data\n```", "*(The site shows the verdicts here.)*"),
        (":::{ledger-counts}\n:::", "*(The site shows the ledger counts here.)*"),
        ("```{prf:theorem} A\nB\n```", "```{prf:theorem} A\nB\n```"),
        (
            "```{install-line}\n```",
            f"```\n%pip install './{notebook_text.WHEEL}[torch]'\n```",
        ),
        (
            "````\n\n```{verdicts} x\n```\n````",
            "````\n\n*(The site shows the verdicts here.)*\n````",
        ),
    ],
)
def test_macros_are_written_out_and_directives_are_replaced(written, shown):
    assert expanded(written) == shown
    assert expanded(shown) == shown


def test_a_closed_form_becomes_its_code():
    path = "claims.source_hash"
    shown = expanded(f"Before.\n\n```{{closed-form}} {path}\n```\n\nAfter.")
    assert shown == f"Before.\n\n```python\n{closed_form.formula(path)}\n```\n\nAfter."


def test_a_closed_form_that_is_missing_is_an_error():
    with pytest.raises(ValueError, match=r"no function .papers\.nothing"):
        expanded("```{closed-form} papers.nothing\n```")


def test_macros_and_directives_are_those_of_the_site():
    assert {"E", "R", "vec", "tr", "diag", "rank"} == set(notebook_text.macros())
    assert {"closed-form", "verdicts", "ledger", "install-line"} <= set(notebook_text.directives())


@pytest.mark.parametrize(
    ("directive", "role"),
    [
        ("```{closed-form} claims.source_hash\n```", "{closed-form}`claims.source_hash`"),
        ("```{install-line}\n```", "{install-line}`install line`"),
        ("Before.\n\n```{errata} x\n```\n\nAfter.", "Before.\n\n{errata}`x`\n\nAfter."),
        ("See {ref}`x`.\n\n```{note}\nIt.\n```", "See {ref}`x`.\n\n```{note}\nIt.\n```"),
    ],
)
def test_a_directive_can_be_a_role_on_its_own_line(directive, role):
    assert notebook_text.as_roles(directive) == role
    assert notebook_text.as_directives(role) == directive
    assert expanded(role) == expanded(directive)


def test_the_site_reads_a_role_as_the_directive_and_keeps_the_lines(scratch_book):
    sound = (ROOT / "tests" / "broken_book" / "sound.md").read_text()
    end = "\n{install-line}`install line`\n\nThe end.\n"
    root = scratch_book({"sound": sound + end})
    clean, log = build.build(root)
    assert clean, log
    page = (root / "_build" / "html" / "book" / "sound.html").read_text()
    assert f"%pip install './{notebook_text.WHEEL}[torch]'" in page.replace("&#39;", "'")
    assert "install line" not in page
    source = [end]
    notebook_text.read_roles(None, "sound", source)
    assert source[0].splitlines().index("The end.") == end.splitlines().index("The end.")


def test_code_is_left_alone():
    cells = [new_code_cell(r'print("\R")'), new_markdown_cell(r"$\R$")]
    notebook = notebook_text.with_expanded_text(new_notebook(cells=cells))
    assert [cell.source for cell in notebook.cells] == [r'print("\R")', r"$\mathbb{R}$"]


@pytest.mark.parametrize("page", reference.notebooks(), ids=reference.name_of)
def test_a_reference_is_written_in_plain_words(page):
    for cell in nbformat.read(page.with_suffix(".ipynb"), as_version=4).cells:
        if cell.cell_type == "markdown":
            assert expanded(cell.source) == cell.source


def test_new_prose_keeps_the_outputs_of_the_same_code():
    ran = new_notebook(cells=[new_markdown_cell("old"), new_code_cell("1", execution_count=1)])
    ran.cells[1].outputs = [nbformat.v4.new_output("stream", text="1\n")]
    page = new_notebook(cells=[new_markdown_cell("new"), new_code_cell("1")])
    refreshed = reference.with_outputs_of(ran, page)
    assert refreshed.cells[0].source == "new"
    assert refreshed.cells[1].outputs == ran.cells[1].outputs
    assert refreshed.cells[1].execution_count == 1
    page.cells[1].source = "2"
    assert reference.with_outputs_of(ran, page) is None
