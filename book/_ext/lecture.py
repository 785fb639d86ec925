"""Lecture files: one TOML file in `book/lectures` for each meeting, its slides in order.

A slide is one of the kinds in `KINDS`; a slide with none of these keys is text. A lecturer edits,
drops and reorders slides at will; what can't be shown is refused by name.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

KINDS = ("vote", "theorem", "equation", "figure", "live", "board", "exercise", "break")
SHOWN = ("theorem", "equation", "figure", "live", "exercise")  # these name a label of the book
MORE = {"title", "text", "minutes", "notes", "options", "answer", "caption", "defines"}
HEAD = {"title", "meeting", "date", "goal", "reading", "exercises", "symbols", "slide"}
# Indices and e need no definition. A decorated letter is a symbol of its own.
NO_SYMBOLS = {*"ijkle", r"\varepsilon", r"\epsilon"}
WORDS = re.compile(r"\\(?:operatorname|mathrm|text|begin|end|label|tag|textrm|texttt)\*?\{[^}]*\}")
SUBSCRIPT = re.compile(r"_(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\[A-Za-z]+|\S)|'")
GREEK = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta kappa lambda mu nu xi pi rho sigma "
    "tau phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell"
)
SYMBOL = re.compile(
    r"(\\math(?:cal|bb|bf)\s*\{?\s*[A-Za-z1]\}?|"
    rf"\\(?:{'|'.join(GREEK.split())})(?![A-Za-z])|(?<!\\)[A-Za-z])|\\[A-Za-z]+"
)


class LectureError(ValueError):
    """A lecture file that says something the book can't show."""


@dataclass(frozen=True)
class Lecture:
    """A lecture file: its `name` (of the file), and all that is in it."""

    name: str
    title: str
    meeting: str
    goal: str
    reading: tuple[str, ...]
    exercises: tuple[str, ...]
    symbols: tuple[str, ...]
    slide: tuple[dict[str, Any], ...]
    date: str = ""

    @cached_property
    def minutes(self) -> int:
        """How long it takes."""
        return sum(slide.get("minutes", 0) for slide in self.slide)


def read(path: Path) -> Lecture:
    """The lecture in a file, checked."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise LectureError(f"{path.name}: {error}") from None
    if wrong := (set(data) ^ HEAD) - {"date"}:
        raise LectureError(f"{path.name}: unknown or missing: {', '.join(sorted(wrong))}")
    parts = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    lecture = Lecture(name=path.stem, **parts)
    for number, slide in enumerate(lecture.slide, start=1):
        if wrong := set(slide) - MORE - set(KINDS):
            raise LectureError(f"{path.name}, slide {number}: unknown {', '.join(sorted(wrong))}")
        if len(set(slide) & set(KINDS)) > 1:
            raise LectureError(f"{path.name}, slide {number}: it must be of one kind")
    _votes_come_first(lecture)
    return lecture


def read_all(root: Path) -> list[Lecture]:
    """All lectures of the book, in the order of their file names."""
    folder = root / "book" / "lectures"
    return [read(path) for path in sorted(folder.glob("*_*.toml"))]


def meanings(root: Path, lecture: Lecture) -> dict[str, str]:
    """What each symbol of a lecture means: the tables that it names, the last one first."""
    tables = tomllib.loads((root / "book/lectures/symbols.toml").read_text(encoding="utf-8"))
    if wrong := set(lecture.symbols) - set(tables):
        raise LectureError(f"{lecture.name}: symbols.toml has no table {', '.join(wrong)}")
    chosen = ("common", *lecture.symbols)
    return {symbol: text for table in chosen for symbol, text in tables[table].items()}


def kind_of(slide: dict[str, Any]) -> str:
    """The kind of a slide.

    >>> kind_of({"vote": "Which?", "minutes": 3}), kind_of({"title": "Summary"})
    ('vote', 'text')
    """
    return next((kind for kind in KINDS if kind in slide), "text")


def symbols_in(tex: str) -> list[str]:
    r"""The letters of a formula that a reader must know, without their indices.

    >>> symbols_in(r"\operatorname{tr} H_o = \sum_{l=1}^L \mathcal{M}\lambda_l e^{-aT}")
    ['H', 'L', '\\mathcal M', '\\lambda', 'a', 'T']
    """
    bare = SUBSCRIPT.sub(" ", WORDS.sub(" ", tex))
    found = (re.sub(r"[\s{}]+", " ", use).strip() for use in SYMBOL.findall(bare))
    return [use for use in dict.fromkeys(found) if use and use not in NO_SYMBOLS]


def _votes_come_first(lecture: Lecture) -> None:
    """Every vote is answered later, and no slide shows an answer before its vote."""
    open_votes, seen = 0, set()
    for number, slide in enumerate(lecture.slide, start=1):
        label = next((slide[kind] for kind in SHOWN if kind in slide), None)
        if "answer" in slide and not open_votes:
            raise LectureError(f"{lecture.name}, slide {number}: an answer to no vote")
        if "answer" in slide and label in seen:
            raise LectureError(f"{lecture.name}, slide {number}: {label} was shown before its vote")
        open_votes += ("vote" in slide) - ("answer" in slide)
        seen |= {label} - {None}
    if open_votes:
        raise LectureError(f"{lecture.name}: {open_votes} votes without an answer")
