"""Write pages the way JupyterLab writes them, so that opening and running one changes nothing.

JupyterLab saves a page through jupytext: it names the kernel in its own words and wraps the
captions in its own way. A page that is already written so comes back byte for byte, and after an
edit only the edited cell differs. What JupyterLab can't render is rewritten, too: our TeX macros
are written out, our directives become roles. Name pages on the command line, or tidy all.
"""

import re
import sys
from typing import Any

import jupytext
from jupytext.config import load_jupytext_config

from reference import ROOT, name_of, notebooks  # first: it makes the extensions importable

from notebook_text import as_roles, without_macros  # isort: skip

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")


def tidy(text: str) -> str:
    """The text of a page as JupyterLab would save it, with captions in paragraphs, not lines."""
    config = load_jupytext_config(str(ROOT / "book" / "page.md"))
    notebook = jupytext.reads(text, fmt="md:myst", config=config)
    notebook.metadata["kernelspec"] = KERNEL
    for cell in notebook.cells:
        cell.metadata = in_paragraphs(cell.metadata)
        if cell.cell_type == "markdown":
            cell.source = as_roles(without_macros(cell.source))
    tidied = jupytext.writes(notebook, fmt="md:myst", config=config)
    if len(jupytext.reads(tidied, fmt="md:myst").cells) != len(notebook.cells):
        raise ValueError("a fence is not closed: a directive of ours stood inside another one")
    return tidied


def in_paragraphs(entry: Any) -> Any:
    """Metadata in which no text has line breaks other than those between paragraphs.

    >>> in_paragraphs({"caption": "A film.\\nIt moves.\\n\\nIt ends.\\n", "tags": ["hide-input"]})
    {'caption': 'A film. It moves.\\n\\nIt ends.', 'tags': ['hide-input']}
    """
    if isinstance(entry, dict):
        return {name: in_paragraphs(value) for name, value in entry.items()}
    return without_macros(LINE_BREAK.sub(" ", entry.strip())) if isinstance(entry, str) else entry


def main(names: list[str]) -> None:
    """Tidy the named pages, or all, and say which ones changed."""
    for page in notebooks():
        before = page.read_text(encoding="utf-8")
        if (not names or name_of(page) in names) and (after := tidy(before)) != before:
            page.write_text(after, encoding="utf-8")
            print(f"tidied {name_of(page)}")


if __name__ == "__main__":
    main(sys.argv[1:])
