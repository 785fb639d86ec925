"""The gallery: every figure of every paper beside a small copy of ours.

`{gallery}` makes a table with a row for each figure: our picture, the paper's figure in words, how
close ours is, how long it took, and what the full size would cost. Pictures and times are read from
the outputs of the executed chapters; the small copies are made for the site and kept nowhere else.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from html import escape, unescape
from io import BytesIO
from pathlib import Path
from typing import Any

from docutils import nodes
from nbformat import NotebookNode
from PIL import Image
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from exacthessian import claims
from execution import executed_notebooks
from ledger import LedgerTable, Slot, filter_facts, inline, records_of

WIDTH = 240  # pixels
WITHOUT_PICTURE = ("not possible here", "not attempted")
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
FRAME = re.compile(r'<img class="eh-frame" alt="([^"]*)" src="data:image/png;base64,([^"]*)">')


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
class Picture:
    """A picture that a cell shows, as PNG, and what is seen on it."""

    png: bytes
    alt: str


@dataclass(frozen=True)
class Thumbnail:
    """A small copy of a picture; equal copies have equal names."""

    png: bytes
    alt: str
    size: tuple[int, int]

    @property
    def name(self) -> str:
        """The file's name in the site."""
        return f"thumb-{hashlib.sha256(self.png).hexdigest()[:16]}.png"


def pictures_in(cell: NotebookNode, widgets: dict[str, Any]) -> Iterator[Picture]:
    """The pictures that a cell shows; of a slider, its first frame."""
    about = cell.metadata.get("mystnb", {})
    alt = about.get("image", {}).get("alt") or about.get("figure", {}).get("caption", "")
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/png" in data:
            yield Picture(base64.b64decode(data["image/png"]), " ".join(alt.split()))
        elif WIDGET in data and (frame := first_frame(data[WIDGET]["model_id"], widgets)):
            yield Picture(base64.b64decode(frame[2]), unescape(frame[1]))


def first_frame(model: str, widgets: dict[str, Any]) -> re.Match[str] | None:
    """The first frame of a slider: depth first through the widgets inside it."""
    state = widgets.get(model, {}).get("state", {})
    if frame := FRAME.search(state.get("value") or ""):
        return frame
    inner = (child.removeprefix("IPY_MODEL_") for child in state.get("children", []))
    return next(filter(None, (first_frame(child, widgets) for child in inner)), None)


def pictures_of_figures(notebook: NotebookNode) -> dict[str, Picture]:
    """Which picture belongs to each figure that a notebook records: the first of the same cell, or
    else of the cells after it.
    """
    widgets = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    found: dict[str, Picture] = {}
    waiting: list[str] = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            with suppress(claims.ClaimError):  # a forged record, which the ledger reports
                for record in records_of(output):
                    if "figure" in record and record["figure"]["status"] not in WITHOUT_PICTURE:
                        waiting.append(record["figure"]["id"])
        if picture := next(pictures_in(cell, widgets), None):
            found.update(dict.fromkeys(waiting, picture))
            waiting = []
    return found


def thumbnail(picture: Picture) -> Thumbnail:
    """A copy of a picture that is at most `WIDTH` wide."""
    image = Image.open(BytesIO(picture.png)).convert("RGB")
    if image.width > WIDTH:
        height = round(image.height * WIDTH / image.width)
        image = image.resize((WIDTH, height), Image.Resampling.LANCZOS)
    file = BytesIO()
    image.quantize(64, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return Thumbnail(file.getvalue(), picture.alt, image.size)


def collect(app: Sphinx, env: BuildEnvironment) -> None:
    """Make the small copies from the outputs of all executed notebooks."""
    found: dict[str, Picture] = {}
    for _, notebook in executed_notebooks(app):
        found.update(pictures_of_figures(notebook))
    env.thumbnails = {id: thumbnail(picture) for id, picture in found.items()}


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
    """The small copy with a link to its cell, or a box that says why there is none."""
    if small is None:
        reason = row["note"] or "the cell shows none" if row["cell"] else "no cell has made it"
        return f'<div class="eh-no-thumb">No picture: {escape(reason)}</div>'
    width, height = small.size
    return (
        f'<a href="{up}{row["cell"]}"><img class="eh-thumb" loading="lazy" '
        f'width="{width}" height="{height}" '
        f'src="{up}_images/{small.name}" alt="{escape(small.alt)}"></a>'
    )


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


def write_thumbnails(app: Sphinx, error: Exception | None) -> None:
    """Put the small copies into the site."""
    if error is not None:
        return
    folder = Path(app.outdir) / "_images"
    folder.mkdir(exist_ok=True)
    for small in app.env.thumbnails.values():
        (folder / small.name).write_bytes(small.png)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.setup_extension("ledger")
    app.add_node(FigureSlot)
    app.add_directive("gallery", Gallery)
    app.connect("env-check-consistency", collect)
    app.connect("doctree-resolved", fill_slots)
    app.connect("build-finished", write_thumbnails)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
