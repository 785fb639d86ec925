"""Figures in the house style, and sliders that work without a kernel.

Theory is a line and measurement is a marker, so that the eye does the check. Purple is dominant,
orange is bulk, green is zero. Colour-blind readers can tell any two colours apart. A notebook shows
a figure as SVG that carries its numbers, and the built book makes the dark twin and the table.
"""

import base64
import csv
import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import chain, cycle, product
from types import MappingProxyType
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, ScalarFormatter
from numpy.typing import ArrayLike, NDArray

from exacthessian.live import notebook, progress
from exacthessian.spectrum import Spectrum
from exacthessian.widget import Moving, flip_book

PURPLE, ORANGE, GREEN = "#87238b", "#c98600", "#00a068"
BLUE, SKY, VERMILION, GREY = "#0a55c0", "#5a94ec", "#b0431c", "#6b6b6b"
PALETTE = (PURPLE, ORANGE, GREEN, BLUE, VERMILION, SKY, GREY)
MEASURED = "exact Hessian"
LINEAR_STEPS = 10
STYLES = ("--", "-.", ":")
THIN: dict[str, Any] = {"linewidth": 1.3, "zorder": 1}
LONG_RUN = 100
WIDTH = 5.0  # inches: letters of 11 points are still 10 pixels high on a phone
LETTERS = 60  # across the width
MANY = 3000  # points of one line; more are drawn as pixels
HOUSE_STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    **dict.fromkeys(("axes.spines.right", "axes.spines.top", "legend.frameon"), False),
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.figsize": (WIDTH, 3.2),
    **dict.fromkeys(("font.size", "axes.titlesize"), 11),
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 10),
    "grid.alpha": 0.25,
    **dict.fromkeys(("legend.handlelength", "legend.columnspacing"), 1.2),
    "lines.linewidth": 1.8,
}
HALO = withStroke(linewidth=3, foreground="white")
QUIET: dict[str, Any] = {"fontsize": 10, "path_effects": [HALO]}
Points = tuple[ArrayLike, ArrayLike] | NDArray[np.float64]


def house_style() -> Any:
    """A context in which every figure has the house's fonts, colours and sizes.

    >>> with house_style():
    ...     plt.rcParams["axes.spines.top"]
    False
    """
    return plt.rc_context(HOUSE_STYLE)


@dataclass(frozen=True)
class Plot:
    """One pair of axes: `lines` maps a name to theory (x, y), drawn as a line with gaps at NaN;
    `dots` maps one to measurements (x, y), drawn as markers; `levels` maps one to the height of a
    dashed horizontal line, `marks` one to the place of a dotted vertical line, both named in place.

    The n-th line and the n-th dots have the n-th colour of the house, or that in `colours`. `log`
    names the logarithmic axes ("x", "y"; "t" for a long time), `limits` bounds the
    vertical axis and `span` the other. The names of `direct` lines stand at their ends.
    """

    title: str = ""
    x: str = ""
    y: str = ""
    lines: Mapping[str, Points] = field(default_factory=dict)
    dots: Mapping[str, Points] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, float] = field(default_factory=dict)
    log: str = ""
    limits: tuple[float, float] | None = None
    span: tuple[float, float] | None = None
    size: float = 3.0
    width: float = 1.8
    colours: Mapping[str, str] = field(default_factory=dict)
    direct: bool = False

    @property
    def names(self) -> list[str]:
        """What its legend says."""
        named = dict.fromkeys(chain(() if self.direct else self.lines, self.dots))
        return [name for name in named if name.strip() and not name.startswith("_")]


def plots(panels: Sequence[Plot], columns: int = 1, height: float = 3.0) -> Figure:
    """Panels side by side, `columns` in a row, each `height` inches high, with the legend above:
    one for all, where all have the same names.
    """
    shared = len(panels) > 1 and all(panel.names == panels[0].names for panel in panels)
    rows = -(-len(panels) // columns)
    entries = [0 if shared else -(-len(p.names) // _abreast(p.names, columns)) for p in panels]
    tall = [height + 0.19 * max(entries[r * columns : (r + 1) * columns]) for r in range(rows)]
    with house_style():
        figure, grid = plt.subplots(
            rows, columns, squeeze=False, figsize=(WIDTH, 0.3 + sum(tall)), height_ratios=tall
        )
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for place, (panel, axes) in enumerate(zip(panels, grid.flat, strict=False)):
            _draw(axes, panel)
            _name(axes, panel, columns, shared)
            if place % columns and panel.y == panels[place - 1].y:
                axes.set_ylabel("")
                same = panel.limits is not None and panel.limits == panels[place - 1].limits
                axes.tick_params(labelleft=not same)
            if place + columns < len(panels) and panel.x == panels[place + columns].x:
                axes.set_xlabel("")
        if shared and panels[0].names:
            look: dict[str, Any] = {
                "ncols": _abreast(panels[0].names, 1),
                "markerscale": 6 / panels[0].size,
            }
            figure.legend(*_entries(grid[0, 0], panels[0]), loc="outside upper center", **look)
    plt.close(figure)
    return figure


def _letters(text: str) -> int:
    """About how long a text is when its formulas are set."""
    return len(re.sub(r"\\[a-z]+|[${}^_]", "", text))


def _abreast(names: Sequence[str], columns: int) -> int:
    """How many names of a legend stand side by side."""
    longest = max(map(_letters, names), default=1)
    return max(1, min(len(names), (LETTERS - 8 * (columns - 1)) // columns // (longest + 5)))


def _wrapped(title: str, columns: int) -> str:
    """A title in lines that fit its panel, broken between words and not inside formulas."""
    lines = [""]
    for word in re.findall(r"(?:\$[^$]*\$|[^\s$])+", title):
        fits = _letters(f"{lines[-1]} {word}") <= LETTERS // columns - 6
        lines[-1:] = [f"{lines[-1]} {word}".strip()] if fits else [lines[-1], word]
    return "\n".join(filter(None, lines))


def _draw(axes: Axes, panel: Plot) -> None:
    known = {MEASURED: "black", **panel.colours}
    for kind, series in (("-", panel.lines), (".", panel.dots)):
        for (name, (x, y)), colour in zip(series.items(), cycle(PALETTE), strict=False):
            axes.plot(
                *(np.asarray(x), np.asarray(y), kind),
                color=known.get(name, colour),
                alpha=0.6 if kind == "-" and panel.width > 3 else 1,
                linewidth=panel.width,
                markersize=panel.size,
                solid_capstyle="butt",
                label=name,
            )
    # Thin lines lie behind what is measured, and say themselves what they are.
    sides = zip(panel.levels.items(), STYLES, ("right", "left", "center"), strict=False)
    for (name, at), style, side in sides:
        axes.axhline(at, color="black", linestyle=style, label=f"_level: {name}", **THIN)
        x = {"right": 1, "left": 0.01}.get(side, 0.5)
        axes.text(x, at, name, QUIET, ha=side, va="bottom", transform=axes.get_yaxis_transform())
    for (name, at), style in zip(panel.marks.items(), STYLES[::-1], strict=False):
        axes.axvline(at, color=GREY, linestyle=style, label=f"_mark: {name}", **THIN)
        place = axes.get_xaxis_transform()
        axes.text(at, 1, name, QUIET, ha="right", va="top", rotation=90, transform=place)
    axes.set(**{f"{axis}scale": "log" for axis in "xy" if axis in panel.log})
    if "t" in panel.log:
        axes.set_xscale("symlog", linthresh=LINEAR_STEPS)
        axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set(xlim=panel.span, ylim=panel.limits)
    _count(axes, panel)
    if panel.direct:
        _name_ends(axes, list(panel.lines))


def _count(axes: Axes, panel: Plot) -> None:
    """Ticks at whole numbers where nothing else is on the axis."""
    shown = [np.ravel(np.asarray(x, dtype=float)) for x, _ in (panel.dots or panel.lines).values()]
    places = np.unique(np.concatenate([*shown, []]))
    places = places[np.isfinite(places)]
    if "t" in panel.log or not len(places) or np.any(places % 1):
        return
    if "x" not in panel.log:
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    elif len(places) <= 8 and places[-1] < 20 * places[0]:
        axes.set_xticks(places, labels=[f"{place:g}" for place in places])
        axes.set_xticks([], minor=True)


def _name_ends(axes: Axes, names: Sequence[str]) -> None:
    """Each line's name at its right end, in its colour; names that would meet stand apart."""
    onto = axes.transData + axes.transAxes.inverted()
    ends = [np.column_stack(line.get_data())[-1] for line in axes.lines[: len(names)]]
    heights = [float(onto.transform(end)[1]) for end in ends]
    order, places = np.argsort(heights), np.sort(heights)
    for n in range(1, len(places)):
        places[n] = max(places[n], places[n - 1] + 0.08)
    places -= np.mean(places) - np.mean(heights)
    for number, place in zip(order, places, strict=True):
        look = {**QUIET, "color": axes.lines[number].get_color(), "va": "center"}
        axes.text(1.02, place, names[number], transform=axes.transAxes, **look)


def _name(axes: Axes, panel: Plot, columns: int, shared: bool) -> None:
    """Labels, and above the axes the title and, unless it is shared, the legend."""
    axes.set(xlabel=panel.x, ylabel=panel.y)
    title, abreast = _wrapped(panel.title, columns), _abreast(panel.names, columns)
    if shared or not panel.names:
        axes.set_title(title, loc="left")
        return
    above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1), "borderaxespad": 0}
    titled: dict[str, Any] = {"title": title, "title_fontsize": 11, "alignment": "left"}
    axes.legend(
        *_entries(axes, panel), ncols=abreast, markerscale=6 / panel.size, **above, **titled
    )


def _entries(axes: Axes, panel: Plot) -> Any:
    """Handles and names of a legend, a line and its dots once."""
    handles, names = axes.get_legend_handles_labels()
    named = dict(zip(names, handles, strict=True))
    return [named[name] for name in panel.names], panel.names


def strokes(start: ArrayLike, stop: ArrayLike) -> NDArray[np.float64]:
    """One coordinate of separate strokes of a line; the other is repeated three times.

    >>> strokes(0.0, [1.0, 2.0]).tolist()
    [0.0, 1.0, nan, 0.0, 2.0, nan]
    """
    return np.column_stack(np.broadcast_arrays(start, stop, np.nan)).ravel()


def spectrum(
    measured: ArrayLike,
    predicted: Spectrum,
    colours: Mapping[str, str],
    limits: tuple[float, float] | None = None,
    title: str = "",
) -> Figure:
    """Sorted eigenvalues: `measured` as dots, `predicted` as a line coloured by its labels.

    `measured` holds all P eigenvalues in any order; `predicted` has the same size; `colours` maps
    each label of `predicted` to a colour, and its keys are the legend.
    """
    dots = np.sort(np.asarray(measured, dtype=float))[::-1]
    order = np.argsort(predicted.values)[::-1]
    heights = np.repeat(predicted.values[order], predicted.multiplicities[order])
    labels = np.repeat(np.asarray(predicted.labels)[order], predicted.multiplicities[order])
    if len(dots) != len(heights):
        raise ValueError(f"measured must have {len(heights)} eigenvalues, got {len(dots)}")
    ranks = np.arange(1, len(dots) + 1)
    lines = {
        label: (strokes(ranks[mine] - 0.5, ranks[mine] + 0.5), np.repeat(heights[mine], 3))
        for label, mine in ((label, labels == label) for label in colours)
    }
    names = "rank of the eigenvalue, largest first", "eigenvalue of $H$"
    dotted = {MEASURED: (ranks, dots)}
    return plots([Plot(title, *names, lines, dotted, limits=limits, width=6, colours=colours)])


def curves(
    times: Sequence[int],
    predicted: Sequence[Spectrum],
    colours: Mapping[str, str],
    measured: Mapping[int, ArrayLike] = MappingProxyType({}),
    **look: Any,
) -> Plot:
    """Eigenvalues over training: `predicted[n]` at step `times[n]`, labelled and of one size, as
    curves coloured by label, each distinct curve once; `measured` maps a step to eigenvalues found
    there by other means, drawn as dots. `look` is what else a `Plot` has.

    Runs of more than a hundred steps are drawn on a logarithmic axis beyond step 10.

    >>> rising = [Spectrum([height], [3], ["bulk"]) for height in (1.0, 2.0)]
    >>> curves([0, 1], rising, {"bulk": ORANGE}).lines["bulk"][1].tolist()
    [1.0, 2.0, nan]
    """
    lines = {}
    for label in colours:
        heights = np.array([state.select(label).expand() for state in predicted])
        distinct = np.unique(heights.round(5), axis=1).T
        gaps = np.full((len(distinct), 1), np.nan)
        lines[label] = np.tile([*times, np.nan], len(distinct)), np.hstack([distinct, gaps]).ravel()
    found = [(t, v) for t in measured for v in np.unique(np.asarray(measured[t]).round(3))]
    dots = {MEASURED: np.array(found).T} if found else {}
    log = "t" if max(times) > LONG_RUN else ""
    plain: dict[str, Any] = {"x": "step $t$", "y": "eigenvalue of $H$", "width": 1.1, "log": log}
    return Plot(lines=lines, dots=dots, colours=colours, **(plain | look))


def slider(
    draw: Callable[..., Figure],
    describe: Callable[..., str],
    axes: Mapping[str, Sequence[object]],
    caption: str,
) -> Moving:
    """An interactive figure whose frames are drawn now and shown later by the browser alone.

    `axes` names each slider and gives its positions; `draw(*position)` makes the frame and
    `describe(*position)` its text for readers who do not see it. The axes of all frames agree, so
    that the eye sees what moves. The first sentence of `caption` states the message.

    >>> dot = lambda n: spectrum([n], Spectrum.from_values([n], "n"), {"n": BLUE}, (0, 3))
    >>> slider(dot, lambda n: f"One eigenvalue at {n}", {"n": [1, 2]}, "A dot moves.")
    A dot moves.
    """
    if not axes or not all(axes.values()):
        raise ValueError(f"axes must name at least one slider with positions, got {dict(axes)}")
    places = list(product(*axes.values()))
    drawn = [draw(*place) for place in progress(places, "frames")]
    seen = [[(*a.get_xlim(), *a.get_ylim()) for a in frame.axes] for frame in drawn]
    moved = [place for place, limits in zip(places, seen, strict=True) if limits != seen[0]]
    if moved:
        raise ValueError(f"draw must give every frame the same axes, got others at {moved[0]}")
    frames = [_frame(f, describe(*place)) for f, place in zip(drawn, places, strict=True)]
    return flip_book(frames, axes, caption)


def _frame(figure: Figure, description: str) -> str:
    source = f"data:image/svg+xml;base64,{base64.b64encode(_svg(figure).encode()).decode()}"
    return f'<img alt="{escape(description)}" src="{source}">'


def _svg(figure: Figure) -> str:
    """A figure as SVG, the same every time, with its numbers as CSV in its description."""
    for line in (line for axes in figure.axes for line in axes.lines):
        line.set_rasterized(np.size(line.get_xdata()) > MANY)
    file = io.StringIO()
    with plt.rc_context({"svg.hashsalt": "exact Hessian"}):
        about = {"Date": None, "Creator": None, "Description": _numbers(figure)}
        figure.savefig(file, format="svg", dpi=200, metadata=about)
    return file.getvalue()


def _numbers(figure: Figure) -> str:
    """What a figure shows, as CSV: a row for each point of its panels' lines, dots and bars. A
    level goes from 0 to 1 across its panel, a mark from 0 to 1 up.
    """
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["panel", "series", "x", "y"])
    for number, axes in enumerate((axes for axes in figure.axes if axes.get_visible()), start=1):
        series: list[Any] = [(line.get_label(), *line.get_data()) for line in axes.lines]
        for bars in axes.containers:
            ends = [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in bars]
            series.append((bars.get_label(), *zip(*ends, strict=True)))
        for name, x, y in series:
            points = np.column_stack([x, y]).astype(float)
            for point in points[~np.isnan(points[:, 1])]:
                table.writerow([number, str(name).strip("_"), *(f"{v:.7g}" for v in point)])
    return file.getvalue()


def _show_as_svg() -> None:
    """Let a notebook show every figure as SVG."""
    if notebook() is not None:
        import matplotlib_inline.backend_inline  # noqa: F401  # it first sets up its own PNG

        formatters = sys.modules["IPython"].get_ipython().display_formatter.formatters
        formatters["image/png"].pop(Figure, None)
        formatters["image/svg+xml"].for_type(Figure, _svg)


_show_as_svg()
