"""Pictures that follow the theme, and the numbers behind them.

A cell shows a figure as SVG in the house's colours, with its numbers in the description. In the
site each becomes a light file, its dark twin, of which the theme shows one, and a table behind a
link below the caption. Frames of sliders become files as well, so that a page does not carry them.
"""

import base64
import hashlib
import io
import re
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import numpy as np
from PIL import Image
from sphinx.application import Sphinx

from exacthessian import figures

PAPER, INK = "#121212", "#e8e8e8"
DARK = {  # what each colour of the house is on dark paper
    "#000000": INK,
    "#ffffff": PAPER,
    "#b0b0b0": "#8a929e",
    figures.PURPLE: "#c07bff",
    figures.ORANGE: "#ffc65a",
    figures.GREEN: "#32c87c",
    figures.BLUE: "#2062fb",
    figures.SKY: "#9fbfef",
    figures.VERMILION: "#f3442a",
    figures.GREY: "#a8a8a8",
}
HEADER = "panel,series,x,y\n"
METADATA = re.compile(r" *<metadata>.*?</metadata>\n?", re.S)
DESCRIPTION = re.compile(r"<dc:description>(.*?)</dc:description>", re.S)
SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"', re.S)
PIXELS = re.compile(r'(href="data:image/png;base64,)([^"]+)')
FIGURE = re.compile(r"<figure\b.*?</figure>", re.S)
SHOWN = re.compile(
    r'<img (?![^>]*eh-(?:light|dark))([^>]*?)src="([./]*_images/)(\w{64})\.svg"([^>]*)>'
)


@dataclass(frozen=True)
class Picture:
    """A figure as a cell shows it."""

    svg: str

    @property
    def name(self) -> str:
        """The stem of its file, as MyST-NB names it."""
        return hashlib.sha256("\n".join(self.svg.splitlines()).encode()).hexdigest()

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels of a page.

        >>> Picture('<svg version="1.1" width="360pt" height="216pt">').size
        (480, 288)
        """
        width, height = SIZE.search(self.svg).groups()
        return round(float(width) / 0.75), round(float(height) / 0.75)

    @property
    def table(self) -> str:
        """Its numbers as CSV, or nothing."""
        found = DESCRIPTION.search(self.svg)
        text = unescape(found[1]) if found else ""
        return text if text != HEADER else ""

    @property
    def light(self) -> str:
        """The picture without its numbers."""
        return METADATA.sub("", self.svg)

    @property
    def dark(self) -> str:
        """The picture on dark paper: no ground of its own, and every colour of the house mapped.

        >>> Picture('<svg ><path style="fill: #ffffff; stroke: #000000"/></svg>').dark
        '<svg fill="#e8e8e8" ><path style="fill: none; stroke: #e8e8e8"/></svg>'
        """
        text = self.light.replace("fill: #ffffff", "fill: none")
        text = re.sub("#[0-9a-f]{6}", lambda colour: DARK.get(colour[0], colour[0]), text)
        text = PIXELS.sub(lambda found: found[1] + darkened(found[2]), text)
        return text.replace("<svg ", f'<svg fill="{INK}" ', 1)

    def write(self, folder: Path) -> None:
        """Write its files."""
        (folder / f"{self.name}.svg").write_text(self.light, encoding="utf-8")
        (folder / f"{self.name}-dark.svg").write_text(self.dark, encoding="utf-8")
        if self.table:
            (folder / f"{self.name}.csv").write_text(self.table, encoding="utf-8")


def darkened(png: str) -> str:
    """A PNG in base64, the colour of each pixel mapped as the nearest one of the house."""
    pixels = np.array(Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA"))
    house, dark = (
        np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours])
        for colours in (DARK, DARK.values())
    )
    kinds, where = np.unique(pixels[..., :3].reshape(-1, 3), axis=0, return_inverse=True)
    distance = np.abs(kinds[:, None].astype(int) - house).sum(axis=-1)
    pixels[..., :3] = dark[distance.argmin(axis=1)][where.reshape(pixels.shape[:2])]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def pair(before: str, place: str, name: str, after: str, size: tuple[int, int]) -> str:
    """Both files of a picture as images, loaded when they come into sight.

    >>> pair('alt="A dot" ', "../_images/", "ab", "", (480, 288)).count("width")
    2
    """
    more = "" if "width=" in before + after else f' width="{size[0]}" height="{size[1]}"'
    more += "" if "loading=" in before + after else ' loading="lazy"'
    found = re.search(r'class="([^"]*)" ?', before)
    own, rest = (found[1] + " ", before.replace(found[0], "")) if found else ("", before)
    return "".join(
        f'<img class="{own}{kind}" {rest}src="{place}{name}{end}.svg"{after.rstrip("/ ")}{more}>'
        for kind, end in (("eh-light dark-light", ""), ("eh-dark dark-light", "-dark"))
    )


def link(place: str, name: str) -> str:
    """The link to the numbers of a picture."""
    return f'<a class="eh-data" href="{place}{name}.csv" download>Data of this figure (CSV)</a>'


def themed(page: str, folder: Path) -> str:
    """A built page whose pictures, which are in `folder`, follow the theme and offer their numbers;
    the frames of sliders do so already.
    """

    def doubled(image: re.Match[str]) -> str:
        before, place, name, after = image.groups()
        size = Picture((folder / f"{name}.svg").read_text(encoding="utf-8")).size
        return pair(before, place, name, after, size)

    def linked(figure: re.Match[str]) -> str:
        image = SHOWN.search(figure[0])
        known = image is not None and (folder / f"{image[3]}.csv").exists()
        if not known or "eh-frame" in figure[0]:
            return figure[0]
        return figure[0].replace("</figcaption>", f"<p>{link(image[2], image[3])}</p></figcaption>")

    return SHOWN.sub(doubled, FIGURE.sub(linked, page))


def write_pictures(app: Sphinx, error: Exception | None) -> None:
    """Write the files of all pictures, and show them on every page."""
    if error is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)
    folder = site / "_images"
    for path in folder.glob("*.svg"):
        picture = Picture(path.read_text(encoding="utf-8"))
        if picture.name == path.stem:  # as a cell made it, not yet without its numbers
            picture.write(folder)
    for path in site.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        if (better := themed(page, folder)) != page:
            path.write_text(better, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension: before the course, whose decks show what the pages show."""
    app.connect("build-finished", write_pictures, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
