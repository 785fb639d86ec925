"""The course kit: decks, handouts and solutions from the lecture files, and zips to carry away.

All of it is made when the site is built, from the built pages, so nothing is written twice. The
course page has empty places, which are filled at the end: reading times, links, sizes of files.
"""

import html
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
from bs4 import BeautifulSoup, NavigableString, PageElement
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx_exercise.nodes import exercise_enumerable_node, exercise_node

import deck
import handout
import lecture
import policy
from archive import write_wheel, write_zip
from exacthessian.exercises import CHECKABLE
from formulas import typeset_files
from launch import git, public_address
from lecture import Lecture, LectureError

LOGGER = logging.getLogger(__name__)
KIT, SITE = "course.zip", "the-exact-hessian.zip"
WORDS_A_MINUTE, WORDS_A_FORMULA = 100, 5  # to study; a displayed formula takes a minute
NOT_READ = {"cell", "exercise", "solution", "highlight", "headerlink"}
FRONT = '<meta http-equiv="Refresh" content="0; url={}.html" />\n'
STATIC = ("slides.css", "slides.js", "alone.js", "live-figures.js")
STATIC += ("formulas.css", "exact-hessian.css", "figures.css")
README = """The Exact Hessian: course kit

slides/      one deck for each meeting: open it in a browser, no network needed.
             Right arrow: next slide. S: speaker view. F: full screen.
handouts/    exercises as notebooks; the wheel beside them installs the package.
solutions/   the same with solutions, for the lecturer.
lectures/    the files that all this is made from. Edit them in book/lectures, then `make course`.
"""


class Place(SphinxDirective):
    """A place on the course page that is filled when everything else is there."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """An empty element that names what belongs there."""
        what = " ".join([self.name, *self.arguments])
        return [nodes.raw("", f'<section data-fill="{what}"></section>', format="html")]


class Meetings(SphinxDirective):
    """The meetings that read pages of a chapter, from their lecture files: `{meetings} lab`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """A list of decks, handouts and solutions; a chapter that no meeting reads is an error."""
        root, chapter = Path(self.env.srcdir), self.arguments[0]
        for path in (root / "book" / "lectures").glob("*.toml"):
            self.env.note_dependency(str(path))
        try:
            lectures = lecture.read_all(root)
        except LectureError as problem:
            raise self.error(str(problem)) from problem
        chosen = [m for m in lectures if any(n.split("/")[0] == chapter for n in m.reading)]
        if not chosen:
            raise self.error(f"meetings: no lecture file reads a page of {chapter!r}")
        here = "../" * self.env.docname.count("/")
        return [nodes.raw("", material(chosen, here), format="html")]


def reading_minutes(page: BeautifulSoup) -> int:
    """How long a built page takes to read, without its code, exercises and solutions.

    >>> text = "<article>" + "word " * 200 + '<div class="math">x</div></article>'
    >>> reading_minutes(BeautifulSoup(text, "html.parser"))
    3
    """
    return round(_minutes(page.find("article") or page))


def _minutes(node: PageElement) -> float:
    if isinstance(
        node, NavigableString
    ):  # of the kinds below it, scripts and comments, none is read
        return len(node.split()) / WORDS_A_MINUTE if type(node) is NavigableString else 0
    kinds = set(node.get("class", ()))
    if kinds & NOT_READ:
        return 0
    if "math" in kinds:
        return 1 if node.name == "div" else WORDS_A_FORMULA / WORDS_A_MINUTE
    return sum(map(_minutes, node.children))


def offer_checks(app: Sphinx, doctree: nodes.document) -> None:
    """Say below an exercise how to check its answer, where its page does not."""
    for exercise in doctree.findall(
        lambda n: isinstance(n, (exercise_node, exercise_enumerable_node))
    ):
        label = exercise.get("label")
        if label in CHECKABLE and "check_exercise" not in exercise.astext():
            hint = nodes.paragraph("", "", nodes.emphasis("", "Check:"), nodes.Text(" "))
            hint += [nodes.literal("", f'check_exercise("{label}", ...)'), nodes.Text(" with ")]
            parts = re.split(r"\$(.*?)\$", f"{CHECKABLE[label]['ask']}.".replace("*", ""))
            hint += [nodes.math(p, p) if i % 2 else nodes.Text(p) for i, p in enumerate(parts)]
            exercise[-1].append(hint)


def write_course(app: Sphinx, error: Exception | None) -> None:
    """Write decks, handouts, solutions and the zips, and fill the course page."""
    root, folder = Path(app.srcdir), Path(app.outdir)
    page = folder / "book" / "course.html"
    if error is not None or app.builder.format != "html" or not page.exists():
        return
    for remembered in (deck.pages_by_id, deck.source_of, deck.page_of, deck.title_of):
        remembered.cache_clear()
    site = deck.Site(folder)
    for name in ("slides", "handouts", "solutions", "lectures"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    wheel = write_wheel(root, folder / "handouts")
    address = public_address(git(root, "remote", "get-url", "origin"))
    source = f"'exacthessian @ git+{address}'" if address else f"./{wheel}"
    lectures = []
    for path in sorted((root / "book" / "lectures").glob("*.toml")):
        shutil.copy(path, folder / "lectures")
        if path.stem == "symbols":
            continue
        try:
            lectures.append(write_lecture(lecture.read(path), root, site, source))
        except LectureError as problem:
            LOGGER.warning("%s", problem, location=f"book/lectures/{path.name}", type="course")
    if not (folder / "index.html").exists():  # jupyter-book writes it later
        (folder / "index.html").write_text(FRONT.format(app.config.master_doc))
    typeset_files(app, sorted((folder / "slides").rglob("*.html")), alone=True)
    policy.protect(folder)
    write_zip(folder / KIT, kit(folder))
    fillings = {
        "course-plan seminar": plan([n for n in lectures if n.name.startswith("seminar")], site),
        "course-plan short": plan([n for n in lectures if n.name.startswith("short")], site),
        "course-material": material(lectures),
    }
    fill(page, fillings)
    typeset_files(app, [page])
    (folder / SITE).unlink(missing_ok=True)
    everything = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (KIT, SITE)
    }
    del everything["book/course.html"]  # it states the size
    write_zip(folder / SITE, everything)
    fill(page, {"course-downloads": downloads(folder)})
    write_zip(folder / SITE, {"book/course.html": page}, mode="a")


def write_lecture(meeting: Lecture, root: Path, site: deck.Site, source: str) -> Lecture:
    """Write all files of a meeting."""
    slides = deck.deck(meeting, lecture.meanings(root, meeting), site)
    (site.folder / "slides" / f"{meeting.name}.html").write_text(slides, encoding="utf-8")
    for slide in meeting.slide:
        if "live" in slide:
            target = site.folder / "slides" / "live" / f"{slide['live']}.html"
            target.parent.mkdir(exist_ok=True)
            target.write_text(deck.live_page(slide["live"], site), encoding="utf-8")
    for name, notebook in (
        ("handouts", handout.handout(meeting, site, source)),
        ("solutions", handout.solutions(meeting, site, root / "book", source)),
    ):
        target = site.folder / name / f"{meeting.name}.ipynb"
        target.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    return meeting


def kit(folder: Path) -> dict[str, Path | str]:
    """What the course zip holds: all that the decks show, and nothing else of the site."""
    made = [
        p
        for name in ("slides", "handouts", "solutions", "lectures")
        for p in folder.glob(f"{name}/**/*")
    ]
    shown = {name for p in made if p.suffix == ".html" for name in _pictures(p.read_text("utf-8"))}
    static = folder / "_static"
    scripts = list((static / "reveal").glob("*"))
    scripts += [static / name for name in STATIC if (static / name).exists()]
    files = [*made, *scripts, *(folder / "_images" / name for name in sorted(shown))]
    paths = {path.relative_to(folder).as_posix(): path for path in files if path.is_file()}
    return {"README.txt": README, **paths}


def plan(lectures: list[Lecture], site: deck.Site) -> str:
    """The table of the meetings: what for, what to read and how long that takes, what to solve."""
    rows = []
    for meeting in lectures:
        minutes = [
            reading_minutes(deck.page_of(site.folder / f"book/{n}.html")) for n in meeting.reading
        ]
        pages = ", ".join(
            f'<a href="{name}.html">{html.escape(site.title(name))}</a>' for name in meeting.reading
        )
        exercises = ", ".join(_exercise_link(label, site) for label in meeting.exercises)
        number = html.escape(meeting.meeting.rpartition(", ")[2]).replace(" ", "&nbsp;")
        when = "<br>".join(filter(None, (number, html.escape(meeting.date))))
        time = f'<span class="eh-minutes">{sum(minutes)}&nbsp;min</span>'
        rows.append((when, _inline(meeting.goal), f"{pages}: {time}", exercises))
    return _table(("meeting", "afterwards you can", "read before", "exercises"), rows)


def material(lectures: list[Lecture], top: str = "../") -> str:
    """The table of decks, handouts and solutions; `top` leads from the page to the site's root."""
    rows = [
        (
            f"{html.escape(meeting.meeting)}: {_inline(meeting.title)}",
            f'<a href="{top}slides/{meeting.name}.html">{len(meeting.slide) + 1} slides</a>',
            f'<a href="{top}handouts/{meeting.name}.ipynb" download>exercises</a>',
            f'<a href="{top}solutions/{meeting.name}.ipynb" download>solutions</a>',
        )
        for meeting in lectures
    ]
    return _table(("meeting", "deck", "handout", "for the lecturer"), rows)


def downloads(folder: Path) -> str:
    """The two zips and their sizes."""
    names = {KIT: "The course kit", SITE: "The whole site"}
    sizes = {name: f"{(folder / name).stat().st_size / 1e6:.0f} MB" for name in names}
    link = '<li><a href="../{}" download>{}</a>, {}</li>'
    return f"<ul>{''.join(link.format(name, names[name], sizes[name]) for name in names)}</ul>"


def fill(page: Path, fillings: dict[str, str]) -> None:
    """Put contents into the empty places of a page, or new ones into filled places."""
    text = page.read_text(encoding="utf-8")
    for name, content in fillings.items():
        place = re.compile(rf'<section data-fill="{name}">.*?</section>', re.S)
        text = place.sub(
            lambda _, n=name, c=content: f'<section data-fill="{n}">{c}</section>', text
        )
    page.write_text(text, encoding="utf-8")


def _pictures(source: str) -> Iterator[str]:
    return (os.path.basename(name) for name in re.findall(r'"(?:\.\./)+_images/([\w.-]+)', source))


def _exercise_link(label: str, site: deck.Site) -> str:
    path, element = site.find(label)
    number = element.find(class_="caption-number").get_text().replace("Exercise", "").strip()
    return f'<a href="{path.relative_to(site.folder / "book").as_posix()}#{label}">{number}</a>'


def _inline(markdown: str) -> str:
    return deck.rendered(markdown).strip().removeprefix("<p>").removesuffix("</p>")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    def row(cells: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    scrolled = f'<table class="table"><thead>{row(head, "th")}</thead><tbody>{body}</tbody></table>'
    return f'<div class="pst-scrollable-table-container">{scrolled}</div>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_directive("course-plan", Place)
    app.add_directive("course-material", Place)
    app.add_directive("course-downloads", Place)
    app.add_directive("meetings", Meetings)
    app.connect("doctree-read", offer_checks)
    app.connect("build-finished", write_course, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
