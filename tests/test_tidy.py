"""Running a page in JupyterLab and saving it does not rewrite it."""

import jupytext
import pytest

import reference
from notebook_text import with_expanded_text
from tidy import in_paragraphs, tidy

PAGE = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

# A page

```{code-cell} ipython3
---
tags: [hide-input]
mystnb:
  figure:
    name: fig-a
    caption: '**The gap is the depth.** It''s a caption of a page, with $\\eta = 0.1$,
      long enough to be wrapped.'
---
1 + 1
```

The end.
"""
FIRST_EDITION = "  name: python3\n  display_name: Python 3\n"


def test_a_tidy_page_stays_as_it_is():
    assert tidy(PAGE) == PAGE


def test_an_edited_cell_changes_alone():
    notebook = jupytext.reads(PAGE, fmt="md:myst")
    notebook.cells[1].source = "1 + 2"
    assert tidy(jupytext.writes(notebook, fmt="md:myst")) == PAGE.replace("1 + 1", "1 + 2")


def test_the_first_edition_s_way_becomes_jupyterlab_s():
    head = "  display_name: Python 3 (ipykernel)\n  language: python\n  name: python3\n"
    start, rest = PAGE.split("    caption: ")
    caption = (
        "    caption: |\n      **The gap is the depth.** It's a caption of a page,\n"
        "      with $\\eta = 0.1$, long enough to be wrapped.\n---\n"
    )
    untidy = start.replace(head, FIRST_EDITION) + caption + rest.split("---\n")[1]
    assert tidy(untidy) == PAGE


@pytest.mark.parametrize("page", reference.notebooks(), ids=reference.name_of)
def test_every_page_is_as_jupyterlab_writes_it(page):
    text = page.read_text(encoding="utf-8")
    assert tidy(text) == text, f"run `python tools/tidy.py {reference.name_of(page)}`"


@pytest.mark.parametrize("page", reference.notebooks(), ids=reference.name_of)
def test_tidying_changes_no_content(page):
    def content(text):
        notebook = with_expanded_text(jupytext.reads(text, fmt="md:myst"))
        cells = [
            (c.cell_type, c.source.rstrip(), in_paragraphs(c.metadata)) for c in notebook.cells
        ]
        return cells

    text = page.read_text(encoding="utf-8")
    assert content(tidy(text)) == content(text)
    assert tidy(tidy(text)) == tidy(text)
