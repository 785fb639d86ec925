"""Handouts: the exercises of a meeting as a short notebook, and their solutions as another.

Both are made from the built pages, where numbers and references are resolved, and say everything
in plain Markdown that any Jupyter renders.
"""

import dis
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType

import jupytext
from bs4 import BeautifulSoup, NavigableString, Tag
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from deck import Site
from exacthessian.exercises import CHECKABLE
from lecture import Lecture, LectureError
from notebook_text import without_macros

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
INSTALL = """try:
    import exacthessian
except ModuleNotFoundError:
    %pip install --quiet {source}"""
START = "from exacthessian.exercises import check_exercise"
WRAPPED = {"em": "*", "i": "*", "strong": "**", "b": "**"}
GAPS = re.compile(r"\n{3,}")


def handout(lecture: Lecture, site: Site, source: str) -> NotebookNode:
    """The exercises, with a cell for each answer; `source` is what pip installs."""
    intro = (
        f"{_head(lecture, site)}\n\nExercises are numbered as on the pages. `check_exercise` says "
        "whether an answer is right, and if it is not, what is off. Numbers, fractions such as "
        '`"2/5"`, and lists in any order are understood.'
    )
    cells = [new_markdown_cell(intro), new_code_cell(INSTALL.format(source=source))]
    cells.append(new_code_cell(START))
    for label in lecture.exercises:
        title, exercise, _ = _exercise(label, site)
        question = f"## {title}\n\n{markdown(exercise)}"
        if label in CHECKABLE:
            cells.append(new_markdown_cell(f"{question}\n\n*Enter* {CHECKABLE[label]['ask']}."))
            cells.append(new_code_cell(f'answer = ...\ncheck_exercise("{label}", answer)'))
        else:
            cells += [new_markdown_cell(f"{question}\n\n*Your answer:*"), new_code_cell("")]
    return _notebook(cells)


def solutions(lecture: Lecture, site: Site, book: Path, source: str) -> NotebookNode:
    """The solutions, for the lecturer. In front of a solution's code stand the cells of its page in
    the folder `book` that it needs.
    """
    cells = [new_markdown_cell(f"{_head(lecture, site)}\n\nSolutions, for the lecturer.")]
    cells.append(new_code_cell(INSTALL.format(source=source)))
    last, given = "", []
    for label in lecture.exercises:
        title, exercise, solution = _exercise(label, site)
        page = site.find(label)[0].relative_to(site.folder / "book").with_suffix(".md")
        if str(page) != last:  # another page may mean something else by a name
            last, given = str(page), []
        pieces = list(_pieces(solution))
        answers = [text for is_code, text in pieces if is_code]
        before = (
            needed(_code_before(book / page, answers[0]), "\n".join(answers)) if answers else []
        )
        cells.append(new_markdown_cell(f"## {title}\n\n{markdown(exercise)}\n\n### Solution"))
        cells += [new_code_cell(text) for text in before if text not in given]
        given += before
        for is_code, text in pieces:
            cells.append(new_code_cell(text) if is_code else new_markdown_cell(text))
    return _notebook(cells)


def needed(before: list[str], code: str) -> list[str]:
    """Of the cells `before` some code, those that it needs, directly or not.

    >>> needed(["import math", "a = 1", "b = math.pi", "a = b"], "print(a)")
    ['import math', 'b = math.pi', 'a = b']
    """
    wanted, chosen = _names(code)[0], []
    for cell in reversed(before):
        read, made = _names(cell)
        if made & wanted:
            chosen.insert(0, cell)
            wanted = (wanted - made) | read
    return chosen


def _names(code: str) -> tuple[set[str], set[str]]:
    """The global names that code reads, and those that it binds."""
    read: set[str] = set()
    made: set[str] = set()
    waiting = [compile(code, "cell", "exec")]
    for part in waiting:
        waiting += [inner for inner in part.co_consts if isinstance(inner, CodeType)]
        for step in dis.get_instructions(part):
            if step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
                read.add(step.argval)
            elif step.opname in ("STORE_NAME", "STORE_GLOBAL"):
                made.add(step.argval)
    return read, made


def _code_before(page: Path, code: str) -> list[str]:
    """The code cells of a page in front of the one that holds this code."""
    cells = _code(page, page.stat().st_mtime_ns)
    at = next((n for n, cell in enumerate(cells) if code.split() == cell.split()), None)
    if at is None:
        raise LectureError(f"{page.name} has no cell that begins {code.splitlines()[0]!r}")
    return cells[:at]


@cache
def _code(page: Path, written: int) -> list[str]:
    return [cell.source for cell in jupytext.read(page).cells if cell.cell_type == "code"]


def markdown(node: Tag | NavigableString) -> str:
    r"""The text of a built element as plain Markdown, without paragraphs about `check_exercise`.

    >>> text = r'<p>A <em>b</em> <span class="math">\(\E x\)</span></p>'
    >>> markdown(BeautifulSoup(text, "html.parser"))
    'A *b* $\\mathbb{E} x$'
    """
    return GAPS.sub("\n\n", without_macros(_markdown(node))).strip()


def _markdown(node: Tag | NavigableString) -> str:
    if isinstance(node, NavigableString):
        return str(node)
    inside = "".join(map(_markdown, node.children))
    kinds = node.get("class", ())
    if "math" in kinds:
        tex = node.get_text().strip().removeprefix(r"\(").removesuffix(r"\)")
        if node.name != "div":
            return f"${tex}$"
        body = re.search(r"\\\[(.*)\\\]", tex, re.S)
        lines = re.sub(r"\\(begin|end)\{split\}", r"\\\1{aligned}", body[1] if body else tex)
        return f"\n\n$$\n{lines.strip()}\n$$\n\n"
    if {"headerlink", "cell_output"} & set(kinds):
        return ""
    if node.name == "p":
        return "" if "check_exercise" in inside else f"\n\n{inside.strip()}\n\n"
    if node.name in WRAPPED:
        return WRAPPED[node.name] + inside.strip() + WRAPPED[node.name]
    if node.name == "code":
        return f"`{node.get_text()}`"
    if node.name == "pre":
        return f"\n\n```\n{node.get_text().strip()}\n```\n\n"
    if node.name == "li":
        mark = "1. " if node.parent and node.parent.name == "ol" else "* "
        return "\n" + mark + GAPS.sub("\n\n", inside.strip()).replace("\n", "\n  ")
    if node.name in ("ul", "ol", "table"):
        return f"\n\n{inside.strip()}\n\n"
    if node.name == "tr":
        cells = [" ".join(_markdown(cell).split()) for cell in node.find_all(["td", "th"])]
        rule = "\n|" + "---|" * len(cells) if node.find("th") else ""
        return f"\n| {' | '.join(cells)} |{rule}"
    return inside


def _pieces(node: Tag) -> Iterator[tuple[bool, str]]:
    """Text and code of a solution in their order."""
    text = ""
    for child in node.children:
        cell = child.find(class_="cell_input") if isinstance(child, Tag) else None
        if cell is None:
            text += str(child)
            continue
        if said := markdown(BeautifulSoup(text, "html.parser")):
            yield False, said
        text = ""
        if "cell" in child.get("class", ()):
            yield True, cell.find("pre").get_text().strip("\n")
        else:
            yield from _pieces(child)
    if said := markdown(BeautifulSoup(text, "html.parser")):
        yield False, said


def _exercise(label: str, site: Site) -> tuple[str, Tag, Tag]:
    """The title of an exercise as its page prints it, and the page; its text; its solution."""
    path, element = site.find(label)
    title = " ".join(markdown(element.find(class_="admonition-title")).split())
    page = site.title(path.relative_to(site.folder / "book").with_suffix("").as_posix())
    solution = element.find_next_sibling("div")
    if solution is None or "solution" not in solution.get("class", ()):
        raise LectureError(f"the exercise {label} is not followed by its solution")
    return f"{title}, from *{page}*", element.find("section"), solution.find("section")


def _head(lecture: Lecture, site: Site) -> str:
    pages = ", ".join(f"*{site.title(name)}*" for name in lecture.reading)
    when = f" ({lecture.date})" if lecture.date else ""
    return f"# {lecture.meeting}{when}: {without_macros(lecture.title)}\n\nRead before: {pages}."


def _notebook(cells: list[NotebookNode]) -> NotebookNode:
    for number, cell in enumerate(cells, start=1):
        cell.id = f"cell-{number:02d}"
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
