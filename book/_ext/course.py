"""Slide decks and student notebooks, made from the chapters whenever the site is built.

A chapter's lecture plan is the storyboard of its deck: each row becomes a slide, followed by the
figures, theorems, equations and exercises that the row refers to, taken from the built page. A
student notebook is the chapter without its solutions. Nothing is written twice, so nothing can
fall out of step.
"""

import html
import re
from dataclasses import dataclass
from pathlib import Path
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


def storyboard(page: BeautifulSoup, address: str) -> list[Step]:
    """The steps of the lecture plan of a built page; none if it has no plan. `address` is the
    page's own, for what can only be shown live.
    """
    mark = page.find(id=LECTURE)
    if mark is None:
        return []
    table = mark.find_parent("section").find("table")
    steps = []
    for row in table.find("tbody").find_all("tr"):
        minutes, what, _ = row.find_all("td")
        targets = [
            link["href"][1:]
            for link in row.find_all("a", class_="reference")
            if link["href"].startswith("#")
        ]
        shown = [picture for target in targets if (picture := _shown(page, target, address))]
        steps.append(Step(minutes.get_text(" ", strip=True), _inner(what, address), tuple(shown)))
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
    for node in copy.find_all("section"):
        node.name = "div"  # in a deck a section is a slide
    return str(copy)


def _from_deck(link: str, address: str) -> str:
    """A link of the page at `address`, as a deck beside the pages' folder must write it.

    >>> _from_deck("#a", "../book/x.html"), _from_deck("y.html#b", "../book/x.html")
    ('../book/x.html#a', '../book/y.html#b')
    """
    if link.startswith("#"):
        return address + link
    return link if urlsplit(link).scheme else f"{address.rpartition('/')[0]}/{link}"


def _inner(element: Tag, address: str) -> str:
    return (
        BeautifulSoup(_clean(element, address), "html.parser").find(element.name).decode_contents()
    )


def deck(source: str, address: str) -> str | None:
    """The slide deck of a built page, as HTML; None for a page without a lecture plan."""
    page = BeautifulSoup(WIDGET_STATE.sub("", source), "html.parser")
    steps = storyboard(page, address)
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


def material(root: Path) -> list[str]:
    """The names of the chapters that come with a lecture plan, in alphabetical order."""
    pages = sorted((root / "book").glob("*.md"))
    return [
        page.stem for page in pages if re.search(r"^\(sec-.*-lecture\)=$", page.read_text(), re.M)
    ]


class CourseMaterial(SphinxDirective):
    """`{course-material}`: for each chapter with a lecture plan, its deck and student notebook."""

    def run(self) -> list[nodes.Node]:
        """The table, as HTML: the files are written when the pages are."""
        rows = []
        for name in self.config.course_order:
            title = html.escape(_title(Path(self.env.srcdir) / "book" / f"{name}.md"))
            rows.append(
                f'<tr><td><a href="{name}.html">{title}</a></td>'
                f'<td><a href="../slides/{name}.html">slides</a></td>'
                f'<td><a href="../students/{name}.ipynb" download>student notebook</a></td></tr>'
            )
        head = "<tr><th>chapter</th><th>deck</th><th>exercises without solutions</th></tr>"
        table = f'<table class="table"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'
        return [nodes.raw("", table, format="html")]


def _title(page: Path) -> str:
    found = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.M)
    return found[1] if found else page.stem


def set_order(app: Sphinx) -> None:
    """The chapters with a lecture plan, in the order of the table of contents."""
    names = material(Path(app.srcdir))
    toc = (Path(app.srcdir) / "_toc.yml").read_text(encoding="utf-8")
    listed = re.findall(r"book/(\w+)", toc)
    app.config.course_order = [name for name in listed if name in names]


def write_material(app: Sphinx, error: Exception | None) -> None:
    """Write decks and student notebooks into the site."""
    if error is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)
    for folder in ("slides", "students"):
        (site / folder).mkdir(exist_ok=True)
    for name in app.config.course_order:
        page = site / "book" / f"{name}.html"
        if not page.exists():
            continue
        slides = deck(page.read_text(encoding="utf-8"), f"../book/{name}.html")
        if slides is None:
            LOGGER.warning("the lecture plan has no table", location=f"book/{name}")
            continue
        (site / "slides" / f"{name}.html").write_text(slides, encoding="utf-8")
        chapter = jupytext.read(Path(app.srcdir) / "book" / f"{name}.md")
        chapter.metadata = {"kernelspec": chapter.metadata["kernelspec"]}
        student = nbformat.writes(without_solutions(chapter), version=4)
        (site / "students" / f"{name}.ipynb").write_text(student + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_config_value("course_order", [], "env")
    app.add_directive("course-material", CourseMaterial)
    app.connect("builder-inited", set_order)
    app.connect("build-finished", write_material, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
