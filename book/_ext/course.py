"""Slide decks and student notebooks, made from the chapters whenever the site is built.

A chapter's lecture plan is the storyboard of its deck: each row becomes a slide, followed by the
figures, theorems, equations and exercises that the row refers to, taken from the built page. A
student notebook is the chapter without its solutions. Nothing is written twice, so nothing can
fall out of step.
"""

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from posixpath import join, normpath
from urllib.parse import urlsplit

import jupytext
import nbformat
from bs4 import BeautifulSoup, Tag
from docutils import nodes
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from notebook_text import with_expanded_text

LOGGER = logging.getLogger(__name__)
LECTURE, TAKEAWAY = re.compile(r"^sec-.*-lecture$"), re.compile(r"^sec-.*-takeaway$")
WIDGET_STATE = re.compile(
    r'<script type="application/vnd\.jupyter\.widget-state\+json">.*?</script>', re.S
)
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
SOLUTION_START = re.compile(r"^```\{solution-start\} (\S+)\n.*?^```$", re.M | re.S)
SOLUTION_END = re.compile(r"^```\{solution-end\}\n```$", re.M)
SOLUTION_WHOLE = re.compile(r"^(`{3,})\{solution\} (\S+)\n.*?^\1$", re.M | re.S)
ANSWER = "*Your answer:*"
EXERCISE = re.compile(r"^`{3,}\{exercise\}", re.M)
Loader = Callable[[str], BeautifulSoup | None]

DECK = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: slides</title>
<link rel="stylesheet" href="../_static/reveal/reset.css">
<link rel="stylesheet" href="../_static/reveal/reveal.css">
<link rel="stylesheet" href="../_static/slides.css">
{mathjax}
</head>
<body>
<div class="reveal"><div class="slides">
{slides}
</div></div>
<script src="../_static/reveal/reveal.js"></script>
<script>Reveal.initialize({{hash: true, width: 1200, height: 760, margin: 0.05}});</script>
</body>
</html>
"""


@dataclass(frozen=True)
class Step:
    """One row of a lecture plan: its `minutes`, what happens, and the pictures, statements and
    exercises to show, all as HTML.
    """

    minutes: str
    what: str
    shown: tuple[str, ...]


def without_solutions(notebook: NotebookNode) -> NotebookNode:
    """A chapter's notebook in which every solution is an empty cell to fill in.

    >>> solution = "```{solution-start} x\\n```\\n\\nIt is 2.\\n\\n```{solution-end}\\n```"
    >>> cells = [new_markdown_cell("Find it.\\n\\n" + solution)]
    >>> [cell.source for cell in without_solutions(nbformat.v4.new_notebook(cells=cells)).cells]
    ['Find it.', '*Your answer:*', '']
    """
    cells, inside = [], False
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            if not inside:
                cells.append(cell)
            continue
        rest = SOLUTION_WHOLE.sub(ANSWER, cell.source)
        while rest:
            mark = (SOLUTION_END if inside else SOLUTION_START).search(rest)
            text, rest = (rest[: mark.start()], rest[mark.end() :]) if mark else (rest, "")
            if not inside and text.strip():
                cells.append(new_markdown_cell(text.strip()))
            if mark and not inside:
                cells += [new_markdown_cell(ANSWER), new_code_cell("")]
            inside = not inside if mark else inside
    if inside:
        raise ValueError("a solution is started and not ended")
    for number, cell in enumerate(cells, start=1):
        cell.id = f"cell-{number:03d}"
    student = nbformat.v4.new_notebook(cells=cells, metadata=notebook.metadata)
    student.nbformat_minor = 5
    return student


def storyboard(page: BeautifulSoup, address: str, load: Loader) -> list[Step]:
    """The steps of the lecture plan of a built page; none if it has no plan. `address` is the
    page's own; `load` reads another page, for what the plan refers to there.
    """
    mark = page.find(id=LECTURE)
    if mark is None:
        return []
    table = mark.find_parent("section").find("table")
    steps = []
    for row in table.find("tbody").find_all("tr"):
        minutes, what, _ = row.find_all("td")
        shown = []
        for link in row.find_all("a", class_="reference"):
            there, _, target = _from_deck(link["href"], address).partition("#")
            other = page if there == address else load(there)
            if target and other is not None:
                shown.append(_shown(other, target, there))
        steps.append(
            Step(
                minutes.get_text(" ", strip=True), _inner(what, address), tuple(filter(None, shown))
            )
        )
    return steps


def _shown(page: BeautifulSoup, target: str, address: str) -> str:
    """What a slide shows for a reference: the figure, statement, equation or exercise itself; of a
    section, its live figure if it has one, else its first figure.
    """
    place = page.find(id=target)
    if place is None:
        return ""
    if place.name == "figure" or (
        place.name == "div" and {"math", "admonition"} & set(place["class"])
    ):
        return _clean(place, address)
    section = place if place.name == "section" else place.find_parent("section")
    if section is None:
        return ""
    if section.find("script", type=WIDGET_VIEW):
        link = f"{html.escape(address)}#{html.escape(target)}"
        return f'<iframe data-src="{link}" title="live figure in the chapter"></iframe>'
    figure = section.find("figure")
    return _clean(figure, address) if figure else ""


def _clean(element: Tag, address: str) -> str:
    """The HTML of an element without its ids and link marks, which belong to the page at `address`;
    other links lead there.
    """
    copy = BeautifulSoup(str(element), "html.parser")
    for mark in copy.find_all("a", class_="headerlink"):
        mark.decompose()
    for node in copy.find_all(id=True):
        del node["id"]
    for link in copy.find_all("a", href=True):
        link["href"] = _from_deck(link["href"], address)
    for picture in copy.find_all("img", src=True):
        picture["src"] = _from_deck(picture["src"], address)
    for node in copy.find_all("section"):
        node.name = "div"  # in a deck a section is a slide
    return str(copy)


def _from_deck(link: str, address: str) -> str:
    """A link of the page at `address`, as a deck beside the pages' folder must write it.

    >>> _from_deck("#a", "../book/x.html"), _from_deck("x/y.html#b", "../book/x.html")
    ('../book/x.html#a', '../book/x/y.html#b')
    """
    if link.startswith("#"):
        return address + link
    return link if urlsplit(link).scheme else normpath(join(address, "..", link))


def _inner(element: Tag, address: str) -> str:
    return (
        BeautifulSoup(_clean(element, address), "html.parser").find(element.name).decode_contents()
    )


def deck(source: str, address: str, load: Loader) -> str | None:
    """The slide deck of a built page, as HTML; None for a page without a lecture plan."""
    page = BeautifulSoup(WIDGET_STATE.sub("", source), "html.parser")
    steps = storyboard(page, address, load)
    if not steps:
        return None
    title = page.find("h1")
    name = _inner(title, address)
    link = f'<a href="{html.escape(address)}">the chapter</a>'
    slides = [f"<h1>{name}</h1><p>The Exact Hessian</p><p>{link}</p>"]
    opening = page.find("figure")
    stacks = [[slides[0], *([_clean(opening, address)] if opening else [])]]
    for step in steps:
        cue = f'<p class="minutes">{step.minutes} min</p><div class="what">{step.what}</div>'
        stacks.append([cue, *step.shown])
    if take := page.find(id=TAKEAWAY):
        section = take.find_parent("section")
        points = section.find("ul")
        stacks.append(
            [f"<h2>{_inner(section.find(['h2', 'h3']), address)}</h2>{_clean(points, address)}"]
        )
    body = "\n".join(
        "<section>" + "".join(f"<section>{slide}</section>" for slide in stack) + "</section>"
        for stack in stacks
    )
    scripts = [
        str(script)
        for script in page.find("head").find_all("script")
        if "MathJax" in str(script) or "mathjax" in script.get("src", "")
    ]
    plain = title.get_text(strip=True).rstrip("#")
    return DECK.format(title=html.escape(plain), mathjax="\n".join(scripts), slides=body)


def contents(root: Path) -> list[str]:
    """The pages in the order of the table of contents, by their path below `book`."""
    toc = (root / "_toc.yml").read_text(encoding="utf-8")
    return re.findall(r"(?:file|root): book/(\S+)", toc)


def material(root: Path) -> dict[str, list[str]]:
    """The chapters that come with a lecture plan, each with those of its pages that have exercises,
    in the order of the table of contents.
    """
    text = {name: (root / "book" / f"{name}.md").read_text() for name in contents(root)}
    chapters = [n for n in text if re.search(r"^\(sec-.*-lecture\)=$", text[n], re.M)]
    return {
        chapter: [
            name
            for name in text
            if (name == chapter or name.startswith(f"{chapter}/")) and EXERCISE.search(text[name])
        ]
        for chapter in chapters
    }


class CourseMaterial(SphinxDirective):
    """`{course-material}`: for each chapter with a lecture plan, its deck and student notebooks."""

    def run(self) -> list[nodes.Node]:
        """The table, as HTML: the files are written when the pages are."""
        root = Path(self.env.srcdir)
        rows = []
        for chapter, pages in material(root).items():
            notebooks = ", ".join(
                f'<a href="../students/{page}.ipynb" download>{_title(root, page)}</a>'
                for page in pages
            )
            rows.append(
                f'<tr><td><a href="{chapter}.html">{_title(root, chapter)}</a></td>'
                f'<td><a href="../slides/{chapter}.html">slides</a></td><td>{notebooks}</td></tr>'
            )
        head = "<tr><th>chapter</th><th>deck</th><th>notebooks without solutions</th></tr>"
        table = f'<table class="table"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'
        return [nodes.raw("", table, format="html")]


def _title(root: Path, name: str) -> str:
    found = re.search(r"^# (.+)$", (root / "book" / f"{name}.md").read_text(encoding="utf-8"), re.M)
    return html.escape(found[1] if found else name)


def write_material(app: Sphinx, error: Exception | None) -> None:
    """Write decks and student notebooks into the site."""
    if error is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)

    @cache
    def load(address: str) -> BeautifulSoup | None:
        file = (site / "slides" / address).resolve()
        if not file.is_file():
            return None
        return BeautifulSoup(WIDGET_STATE.sub("", file.read_text(encoding="utf-8")), "html.parser")

    (site / "slides").mkdir(exist_ok=True)
    for chapter, pages in material(Path(app.srcdir)).items():
        page = site / "book" / f"{chapter}.html"
        slides = deck(page.read_text(encoding="utf-8"), f"../book/{chapter}.html", load)
        if slides is None:
            LOGGER.warning("the lecture plan has no table", location=f"book/{chapter}")
            continue
        (site / "slides" / f"{chapter}.html").write_text(slides, encoding="utf-8")
        for name in pages:
            notebook = with_expanded_text(jupytext.read(Path(app.srcdir) / "book" / f"{name}.md"))
            notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
            student = nbformat.writes(without_solutions(notebook), version=4)
            target = site / "students" / f"{name}.ipynb"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(student + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_directive("course-material", CourseMaterial)
    app.connect("build-finished", write_material, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
