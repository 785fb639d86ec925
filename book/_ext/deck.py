"""One slide deck for each lecture, and a page of its own for each live figure that it shows.

What a slide names by its label is taken from the built page: statement, equation, figure, exercise
or live figure. So nothing is written twice. A symbol is explained on the slide that first uses it.
"""

import html
import re
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from formulas import with_tex
from lecture import Lecture, LectureError, kind_of, symbols_in
from notebook_text import without_macros

LIVE_SCRIPT = "live-figures"  # what a live figure needs of its page
ID = re.compile(r' id="([^"]+)"')
NAVIGATION, CODE = (re.compile(rf"<{name}\b.*?</{name}>", re.S) for name in ("nav", "pre"))
COLOURS = re.compile(r"</?span[^>]*>")
FORMULA = re.compile(r"\\\((.*?)\\\)|\\\[(.*?)\\\]", re.S)

DECK = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="../_static/reveal/reset.css">
<link rel="stylesheet" href="../_static/reveal/reveal.css">
<link rel="stylesheet" href="../_static/formulas.css">
<link rel="stylesheet" href="../_static/slides.css">
</head>
<body>
<div class="reveal"><div class="slides">
{slides}
</div></div>
<script src="../_static/reveal/reveal.js"></script>
<script src="../_static/reveal/notes.js"></script>
<script src="../_static/slides.js"></script>
</body>
</html>
"""

ALONE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="stylesheet" href="../../_static/exact-hessian.css">
<link rel="stylesheet" href="../../_static/figures.css">
<link rel="stylesheet" href="../../_static/slides.css">
<script src="../../_static/alone.js"></script>
{scripts}
</head>
<body class="eh-alone"><main>{figure}</main></body>
</html>
"""


@dataclass(frozen=True)
class Site:
    """The built site."""

    folder: Path

    def find(self, label: str) -> tuple[Path, Tag]:
        """The page and the element with a label."""
        for name in (label, f"equation-{label}"):
            if path := pages_by_id(self.folder).get(name):
                return path, page_of(path).find(id=name)
        raise LectureError(f"no page of the book has the label {label}")

    def title(self, name: str) -> str:
        """The title of a page, by its path below `book`."""
        return title_of(self.folder / "book" / f"{name}.html") or name


@cache
def pages_by_id(folder: Path) -> dict[str, Path]:
    """Where each id is, on the built pages below `book`."""
    paths = sorted((folder / "book").rglob("*.html"))
    return {name: path for path in paths for name in ID.findall(source_of(path))}


@cache
def source_of(path: Path) -> str:
    """The source of a built page, its formulas as TeX."""
    return with_tex(path.read_text(encoding="utf-8"))


@cache
def page_of(path: Path) -> BeautifulSoup:
    """A built page, without what leads to other pages and without the colours of its code."""
    slim = CODE.sub(lambda code: COLOURS.sub("", code[0]), NAVIGATION.sub("", source_of(path)))
    return BeautifulSoup(slim, "html.parser")


@cache
def title_of(path: Path) -> str:
    """The title of a built page."""
    heading = page_of(path).find("h1")
    return heading.get_text(strip=True).rstrip("#") if heading else ""


def rendered(markdown: str) -> str:
    r"""Markdown with formulas as HTML.

    >>> rendered("Depth $L$.")
    '<p>Depth <span class="math inline">\\(L\\)</span>.</p>\n'
    """
    return _markdown().render(without_macros(markdown))


def deck(lecture: Lecture, meanings: dict[str, str], site: Site) -> str:
    """The slide deck of a lecture, as HTML; a symbol without a meaning is refused."""
    known: set[str] = set()
    slides, passed = [_title_slide(lecture, site)], 0
    for number, slide in enumerate(lecture.slide, start=1):
        try:
            body = without_macros(BODIES[kind_of(slide)](slide, site))
            known |= set(symbols_in(slide.get("defines", "")))
            where = _where(body, meanings, known)
        except LectureError as error:
            raise LectureError(f"{lecture.name}, slide {number}: {error}") from None
        passed += slide.get("minutes", 0)
        slides.append(_section(slide, body + where, passed))
    title = html.escape(f"{lecture.meeting}: {lecture.title}")
    return DECK.format(title=title, slides="\n".join(slides))


def live_page(label: str, site: Site) -> str:
    """A page that holds the live figure of a section and nothing else."""
    path, section, view = _live(label, site)
    head = page_of(path).find("head")
    scripts = [
        f'<script src="{_moved(script["src"], path, site, up="../../")}" defer></script>'
        for script in head.find_all("script", src=True)
        if LIVE_SCRIPT in script["src"]
    ]
    figure = BeautifulSoup(str(view), "html.parser")
    for numbers in figure.find_all(class_="eh-data"):
        numbers.decompose()
    for picture in figure.find_all("img"):
        picture["src"] = _moved(picture["src"], path, site, up="../../")
    return ALONE.format(title=_heading(section), scripts="\n".join(scripts), figure=figure)


@cache
def _markdown() -> MarkdownIt:
    def formula(content: str, config: dict[str, bool]) -> str:
        left, right = (r"\[", r"\]") if config["display_mode"] else (r"\(", r"\)")
        return left + html.escape(content) + right

    return MarkdownIt().enable("table").use(dollarmath_plugin, renderer=formula)


def _section(slide: dict[str, Any], body: str, passed: int) -> str:
    title = f"<h2>{_inline(slide['title'])}</h2>" if "title" in slide else ""
    answer = f'<p class="answer">{_inline(slide["answer"])}</p>' if "answer" in slide else ""
    minutes = slide.get("minutes", 0)
    clock = f"<p>{minutes} min, until {passed // 60}:{passed % 60:02d}</p>" if minutes else ""
    notes = clock + rendered(slide.get("notes", ""))
    return (
        f'<section data-kind="{kind_of(slide)}"><div class="fit">{title}{answer}{body}</div>'
        f'<aside class="notes">{notes}</aside></section>'
    )


def _title_slide(lecture: Lecture, site: Site) -> str:
    when = " · ".join(filter(None, (lecture.meeting, lecture.date)))
    pages = ", ".join(f"<em>{html.escape(site.title(name))}</em>" for name in lecture.reading)
    return (
        f'<section data-kind="title"><div class="fit"><p class="meeting">{html.escape(when)}</p>'
        f"<h1>{_inline(lecture.title)}</h1><p>Afterwards you can {_inline(lecture.goal)}.</p>"
        f'<p class="reading">Read before: {pages}</p><p class="reading">The Exact Hessian</p></div>'
        f'<aside class="notes"><p>{lecture.minutes} minutes. The speaker view is this window; the '
        "right arrow visits every slide.</p></aside></section>"
    )


def _text(slide: dict[str, Any], site: Site) -> str:
    return f'<div class="text">{rendered(slide.get("text", ""))}</div>'


def _vote(slide: dict[str, Any], site: Site) -> str:
    options = "".join(f"<li>{_inline(option)}</li>" for option in slide.get("options", ()))
    question = f'<p class="question">{_inline(slide["vote"])}</p>'
    return (
        f'<p class="tag">vote</p>{question}<ol class="options">{options}</ol>{_text(slide, site)}'
    )


def _board(slide: dict[str, Any], site: Site) -> str:
    head = f'<p class="tag">on the board</p><h2>{_inline(slide["board"])}</h2>'
    return head + _text(slide, site)


def _break(slide: dict[str, Any], site: Site) -> str:
    return f'<p class="pause">{_inline(slide["break"])}</p>'


def _statement(kind: str, slide: dict[str, Any], site: Site) -> str:
    path, element = site.find(slide[kind])
    shown = BeautifulSoup(_clean(element, path, site), "html.parser")
    for hint in shown.find_all("p", string=None):
        if "check_exercise" in hint.get_text():
            hint.decompose()
    said = _text(slide, site)
    return said + str(shown) if kind == "theorem" else str(shown) + said


def _figure(slide: dict[str, Any], site: Site) -> str:
    path, element = site.find(slide["figure"])
    figure = BeautifulSoup(_clean(element, path, site), "html.parser")
    caption = figure.find("figcaption")
    if "caption" in slide and caption:
        caption.clear()
        caption.append(BeautifulSoup(rendered(slide["caption"]), "html.parser"))
    return str(figure) + _text(slide, site)


def _live_slide(slide: dict[str, Any], site: Site) -> str:
    label = slide["live"]
    path, section, view = _live(label, site)
    still = _clean(view.find(class_="eh-frame") or view.find("svg"), path, site)
    address, title = f"live/{label}.html", f"live figure: {_heading(section)}"
    frame = f'<iframe data-src="{address}" title="{title}"></iframe>'
    return f'<div class="live">{frame}<div class="still">{still}</div></div>{_text(slide, site)}'


BODIES = {
    "text": _text,
    "vote": _vote,
    "board": _board,
    "break": _break,
    "figure": _figure,
    "live": _live_slide,
    **{kind: partial(_statement, kind) for kind in ("theorem", "equation", "exercise")},
}


def _inline(markdown: str) -> str:
    return _markdown().renderInline(without_macros(markdown))


def _where(body: str, meanings: dict[str, str], known: set[str]) -> str:
    """What the symbols of a slide mean that no slide before it has used, and theirs in turn."""
    said: list[str] = []
    waiting = _symbols(body)
    while waiting:
        symbol = waiting.pop(0)
        if symbol in known:
            continue
        if symbol not in meanings:
            raise LectureError(f"the symbol {symbol} has no meaning in symbols.toml")
        known.add(symbol)
        said.append(f"<span>{_inline(meanings[symbol])}</span>")
        waiting += _symbols(_inline(meanings[symbol]))
    return f'<p class="where">{" ".join(said)}</p>' if said else ""


def _symbols(body: str) -> list[str]:
    text = html.unescape(body)
    return [symbol for use in FORMULA.findall(text) for symbol in symbols_in("".join(use))]


def _live(label: str, site: Site) -> tuple[Path, Tag, Tag]:
    """The page, the section and the live figure that a label leads to."""
    path, place = site.find(label)
    section = place if place.name == "section" else place.find_parent(["section", "article"])
    own = place if "eh-live" in place.get("class", ()) else None
    view = own or (None if place.name == "figure" else section.find(class_="eh-live"))
    if view is None:
        raise LectureError(f"{label} leads to no live figure")
    return path, section, view


def _heading(section: Tag) -> str:
    return html.escape(section.find(["h1", "h2", "h3"]).get_text(strip=True).rstrip("#"))


def _clean(element: Tag, path: Path, site: Site) -> str:
    """The HTML of an element without ids and links, its pictures where a deck finds them."""
    copy = BeautifulSoup(str(element), "html.parser")
    for mark in copy.find_all(class_=["headerlink", "eqno", "caption-number-hidden", "eh-data"]):
        mark.decompose()
    for link in copy.find_all("a"):
        link.unwrap()
    for node in copy.find_all(id=True):
        del node["id"]
    for picture in copy.find_all(["img", "source"]):
        for key in {"src", "srcset"} & set(picture.attrs):
            picture[key] = _moved(picture[key], path, site)
        for key in {"loading", "width", "height"} & set(picture.attrs):
            del picture[key]
    for node in copy.find_all("section"):
        node.name = "div"  # in a deck a section is a slide
    return str(copy)


def _moved(address: str, path: Path, site: Site, up: str = "../") -> str:
    """An address on the page at `path`, as a page in another folder must write it."""
    if address.startswith("data:"):
        return address
    target = (path.parent / address.partition("?")[0]).resolve()
    return up + target.relative_to(site.folder.resolve()).as_posix()
