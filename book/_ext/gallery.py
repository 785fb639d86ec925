"""The gallery: every figure of every paper beside a small copy of ours.

`{gallery}` makes a table with a row for each figure: our picture, the paper's figure in words, how
close ours is, how long it took, and what the full size would cost. Pictures and times are read from
the outputs of the executed chapters.
"""

import base64
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from html import escape, unescape
from typing import Any

from docutils import nodes
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from exacthessian import claims
from execution import executed_notebooks
from ledger import LedgerTable, Slot, filter_facts, inline, records_of
from pictures import Picture

WIDTH = 240  # pixels
WITHOUT_PICTURE = ("not possible here", "not attempted")
FRAME = re.compile(r'<img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]*)">')


class FigureSlot(Slot):
    """A place in the gallery that waits for what the chapters made of a figure."""


class Gallery(LedgerTable):
    """The table of every figure of every paper, with controls to filter it."""

    kind = "figures"
    titles = ("our picture", "figure of the paper", "how close")

    def cells(self, subject: claims.Claim) -> list[list[nodes.Node]]:
        """One figure: a slot for our picture, what the paper shows, a slot for how close it is."""
        return [
            [FigureSlot("", content="picture", figure=subject.id)],
            [
                nodes.paragraph("", subject.place),
                nodes.literal(text=subject.id),
                inline(self, subject.statement),
            ],
            [FigureSlot("", content="facts", figure=subject.id)],
        ]


@dataclass(frozen=True)
class Thumbnail:
    """A picture that a cell shows: its file, its shape, and what is seen on it."""

    name: str
    size: tuple[int, int]
    alt: str

    @classmethod
    def of(cls, svg: str, alt: str) -> "Thumbnail":
        """Of a picture as the cell shows it."""
        picture = Picture(svg)
        return cls(picture.name, picture.size, alt)

    def html(self, up: str, alt: str, more: str = "") -> str:
        """A small image; `up` leads to the site's root."""
        width, height = self.size
        size = f'width="{WIDTH}" height="{round(height * WIDTH / width)}"'
        address = f"{up}_images/{self.name}.svg"
        return f'<img {more}loading="lazy" {size} src="{address}" alt="{escape(alt)}">'


def pictures_in(cell: NotebookNode) -> Iterator[Thumbnail]:
    """The pictures that a cell shows; of a flip-book, its first frame."""
    about = cell.metadata.get("mystnb", {})
    alt = about.get("image", {}).get("alt") or about.get("figure", {}).get("caption", "")
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/svg+xml" in data:
            yield Thumbnail.of(data["image/svg+xml"], " ".join(alt.split()))
        elif frame := FRAME.search(data.get("text/html", "")):
            yield Thumbnail.of(base64.b64decode(frame[2]).decode(), unescape(frame[1]))


def pictures_of_figures(notebook: NotebookNode) -> dict[str, Thumbnail]:
    """Which picture belongs to each figure that a notebook records: the first of the same cell, or
    else of the cells after it.
    """
    found: dict[str, Thumbnail] = {}
    waiting: list[str] = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            with suppress(claims.ClaimError):  # a forged record, which the ledger reports
                for record in records_of(output):
                    if "figure" in record and record["figure"]["status"] not in WITHOUT_PICTURE:
                        waiting.append(record["figure"]["id"])
        if picture := next(pictures_in(cell), None):
            found.update(dict.fromkeys(waiting, picture))
            waiting = []
    return found


def collect(app: Sphinx, env: BuildEnvironment) -> None:
    """Find the pictures in the outputs of all executed notebooks."""
    env.thumbnails = {}
    for _, notebook in executed_notebooks(app):
        env.thumbnails.update(pictures_of_figures(notebook))


def fill_slots(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the slots of the gallery by what the whole book found."""
    rows = {row["id"]: row for row in app.env.ledger["figures"]}
    up = "../" * docname.count("/")
    for waiting in list(doctree.findall(FigureSlot)):
        row = rows[waiting["figure"]]
        if waiting["content"] == "picture":
            html = picture_html(row, app.env.thumbnails.get(row["id"]), up)
        else:
            html = facts_html(row, up)
        waiting.replace_self(nodes.raw("", html, format="html"))


def picture_html(row: dict[str, Any], small: Thumbnail | None, up: str) -> str:
    """The picture with a link to its cell, or a box that says why there is none."""
    if small is None:
        reason = row["note"] or "the cell shows none" if row["cell"] else "no cell has made it"
        return f'<div class="eh-no-thumb">No picture: {escape(reason)}</div>'
    image = small.html(up, small.alt, 'class="eh-thumb" ')
    return f'<a href="{up}{row["cell"]}">{image}</a>'


def facts_html(row: dict[str, Any], up: str) -> str:
    """How close our figure is and why not closer, its run time, and the cost of the full size."""
    lines = [filter_facts(row)]
    if row["status"] not in WITHOUT_PICTURE:
        lines += [escape(row["note"])] if row["note"] else []
        lines.append(f"Run time here: {duration(row['seconds'])}")
    full_size = row["full_size"] or ("this is it" if row["status"] == "as stated" else "")
    if full_size:
        lines.append(f"Full size: {escape(full_size)}")
    if row["cell"]:
        lines.append(f'<a href="{up}{row["cell"]}">see the cell</a>')
    return "".join(f"<p>{line}</p>" for line in lines)


def duration(seconds: float) -> str:
    """A run time, as exactly as a reader wants it.

    >>> duration(0.02), duration(1.64), duration(37.66), duration(150)
    ('under 0.1 s', '1.6 s', '38 s', '2.5 min')
    """
    if seconds < 0.1:
        return "under 0.1 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.setup_extension("ledger")
    app.setup_extension("pictures")
    app.add_node(FigureSlot)
    app.add_directive("gallery", Gallery)
    app.connect("env-check-consistency", collect)
    app.connect("doctree-resolved", fill_slots)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
