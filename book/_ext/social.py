"""The picture that stands for the book where somebody shares a link to it: computed, as all are."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sphinx.application import Sphinx

from exacthessian import figures
from exacthessian.aligned import AlignedChain

NAME = "the-exact-hessian.png"
ALT = "Every Hessian eigenvalue of a network of three layers while it learns"
START, TARGET, STEP, STEPS = np.linspace(0.9, 0.4, 3), np.linspace(1.0, 0.8, 3), 0.15, 60


def picture() -> Figure:
    """Every eigenvalue of a small network while it learns, coloured by its kind at the end."""
    chain = AlignedChain.balanced((5, 5, 5, 5), lam=START, target=TARGET)
    rows = []
    for _ in range(STEPS):
        rows.append(np.linalg.eigvalsh(chain.hessian()))
        chain = chain.step(STEP)
    values = np.array(rows)
    colours = np.select(
        [values[-1] > 1.5, values[-1] > 0.1], [figures.PURPLE, figures.ORANGE], figures.GREEN
    )
    with figures.house_style():
        figure = Figure(figsize=(12, 6.3), dpi=100)
        axes = figure.add_subplot()
        for curve, colour in zip(values.T, colours, strict=True):
            axes.plot(curve, color=colour, linewidth=2)
        axes.set_title("The Exact Hessian", fontsize=44, loc="left", pad=16)
        axes.set_xlabel("Every eigenvalue, in closed form, checked by executed cells", fontsize=22)
        axes.set_xticks([])
        axes.set_yticks([])
    return figure


def offer(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Name the picture on every page; a full address needs `html_baseurl`."""
    base = app.config.html_baseurl
    address = f"{base.rstrip('/')}/" if base else context["pathto"]("", 1)
    context["metatags"] = context.get("metatags", "") + (
        f'<meta property="og:image" content="{address}_static/{NAME}">'
        f'<meta property="og:image:alt" content="{ALT}">'
        '<meta property="og:type" content="book">'
    )


def draw(app: Sphinx, error: Exception | None) -> None:
    """Draw the picture."""
    if error is None and app.builder.format == "html":
        picture().savefig(Path(app.outdir) / "_static" / NAME, metadata={"Software": None})


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("html-page-context", offer)
    app.connect("build-finished", draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
