"""Theorems have names, so that their numbers cannot be taken for a paper's.

Ours are called by their titles wherever the site shows them: "Theorem. One bulk for all" in its
box, and Theorem “One bulk for all” where another page refers to it. What stands in parentheses at
the end of a title is the paper's own number, and is shown as such.
"""

import re
from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from exacthessian import claims

NAMES = "names of theorems"  # a key of a page's metadata
KINDS = "Theorem|Lemma|Proposition|Corollary|Definition|Remark|Conjecture|Example|Algorithm"
HEADING = re.compile(
    rf'(<p class="admonition-title"><span class="caption-number">)({KINDS})[\d. ]*</span> '
    r"\((.*)\)</p>"
)
REFERENCE = re.compile(
    rf'(<a class="reference internal" href="[^"#]*#([^"]+)"[^>]*>)({KINDS})[ \d.]*</a>'
)
IN_PAPER = re.compile(
    r" \(((?:[^()]|\([^()]*\))*"
    r"(?:Theorem|Lemma|Proposition|Corollar|Definition|Remark|quation|ppendix|Section)"
    r"(?:[^()]|\([^()]*\))*)\)$"
)


def split(title: str) -> tuple[str, str]:
    """A title without the paper's number, and that number.

    >>> split("The 2-cycle (Theorem 1, corrected and completed)")
    ('The 2-cycle', 'Theorem 1, corrected and completed')
    >>> split("Optima and threshold (Lemmas 1, 2 and 5, equations (17) and (18))")[1]
    'Lemmas 1, 2 and 5, equations (17) and (18)'
    >>> split("One bulk for all")
    ('One bulk for all', '')
    """
    found = IN_PAPER.search(title)
    return (title[: found.start()], found[1]) if found else (title, "")


def note_names(app: Sphinx, doctree: nodes.document) -> None:
    """Remember the names of the theorems on a page, by their labels."""
    names = {}
    for node in doctree.findall(nodes.Admonition):
        title = next(iter(node.findall(nodes.title)), None) if "proof" in node["classes"] else None
        if title is not None and node.get("label"):
            name, _ = split(as_html(title).strip().removeprefix("(").removesuffix(")"))
            if name and not name.startswith(tuple(KINDS.split("|"))):
                names[node["label"]] = name
    app.env.metadata[app.env.docname][NAMES] = names


def as_html(title: nodes.Element) -> str:
    """The text of a title, with formulas as MathJax reads them."""
    parts = (
        rf'<span class="math notranslate nohighlight">\({escape(part.astext())}\)</span>'
        if isinstance(part, nodes.math)
        else escape(part.astext(), quote=False)
        for part in title.children
    )
    return "".join(parts)


def use_names(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Write the names into the boxes of a page, and into its references."""
    if not context.get("body"):
        return
    known = (app.env.metadata[docname].get(NAMES, {}) for docname in app.env.found_docs)
    names = {label: name for one in known for label, name in one.items()}
    chapters = {claims.paper(name).chapter: claims.paper(name) for name in claims.PAPERS}
    paper = next((chapters[part] for part in page.split("/") if part in chapters), None)

    def heading(found: re.Match[str]) -> str:
        name, number = split(found[3])
        if not name:
            return found[0]
        whose = f"paper {paper.number}: " if paper else ""
        behind = f' <span class="eh-in-paper">{whose}{number}</span>' if number else ""
        return f"{found[1]}{found[2]}. </span>{name}{behind}</p>"

    def reference(found: re.Match[str]) -> str:
        name = names.get(found[2])
        return f"{found[1]}{found[3]} “{name}”</a>" if name else found[0]

    context["body"] = REFERENCE.sub(reference, HEADING.sub(heading, context["body"]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-read", note_names)
    app.connect("html-page-context", use_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
