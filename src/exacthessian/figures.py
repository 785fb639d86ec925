"""Figures in the house style, and sliders that work without a kernel.

Theory is a line and measurement is a marker, so that the eye does the check. Colours are from the
Okabe–Ito palette, which colour-blind readers can tell apart.
"""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import product
from typing import Any

import ipywidgets as widgets
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter
from numpy.typing import ArrayLike
from PIL import Image

from exacthessian.live import progress
from exacthessian.spectrum import Spectrum

PURPLE, ORANGE, GREEN = "#7b3f9d", "#e69f00", "#009e73"
BLUE, SKY, VERMILION, GREY = "#0072b2", "#56b4e9", "#d55e00", "#6b6b6b"
BAR_TOLERANCE = 2e-3
CURVE_DECIMALS = 5
LINEAR_STEPS = 10
LONG_RUN = 100
HOUSE_STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=[BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, GREY]),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "figure.figsize": (6.6, 3.6),
    "font.size": 11,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def house_style() -> Any:
    """A context in which every figure has the house's fonts, colours and sizes.

    >>> with house_style():
    ...     plt.rcParams["axes.spines.top"]
    False
    """
    return plt.rc_context(HOUSE_STYLE)


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
    with house_style():
        figure, axes = plt.subplots()
        for label, colour in colours.items():
            mine = labels == label
            start, stop = ranks[mine] - 0.5, ranks[mine] + 0.5
            axes.hlines(heights[mine], start, stop, colour, linewidth=6, alpha=0.5, label=label)
        axes.plot(ranks, dots, ".", color="black", markersize=3, label="exact Hessian")
        axes.set_xlabel("rank of the eigenvalue, largest first")
        axes.set_ylabel("eigenvalue of $H$")
        axes.set_title(title)
        if limits is not None:
            axes.set_ylim(limits)
        axes.legend(loc="upper right")
    plt.close(figure)
    return figure


def png(figure: Figure) -> bytes:
    """A figure as a small PNG: 64 colours are enough for lines and text.

    >>> png(plt.figure())[1:4]
    b'PNG'
    """
    full, small = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=110)
    # The octree keeps rare colours; median cut would merge a few vermilion dots into the orange.
    few = Image.open(full).convert("RGB").quantize(64, method=Image.Quantize.FASTOCTREE)
    few.save(small, format="png", optimize=True)
    return small.getvalue()


def slider(
    draw: Callable[..., Figure],
    describe: Callable[..., str],
    axes: Mapping[str, Sequence[object]],
    caption: str,
) -> widgets.VBox:
    """An interactive figure whose frames are drawn now and shown later by the browser alone.

    `axes` names each slider and gives its positions; `draw(*position)` makes the frame and
    `describe(*position)` its text for readers who do not see it. The first sentence of `caption`
    states the message. It is the same widget in a live notebook and in the built page.

    >>> dot = lambda n: spectrum([n], Spectrum.from_values([n], "n"), {"n": BLUE})
    >>> moving = slider(dot, lambda n: f"One eigenvalue at {n}", {"n": [1, 2]}, "A dot moves.")
    >>> [type(part).__name__ for part in moving.children]
    ['HBox', 'Stack', 'HTML']
    """
    if not axes or not all(axes.values()):
        raise ValueError(f"axes must name at least one slider with positions, got {dict(axes)}")
    controls = [
        widgets.SelectionSlider(
            options=[(str(position), index) for index, position in enumerate(positions)],
            description=name,
            continuous_update=True,
            style={"description_width": "initial"},
        )
        for name, positions in axes.items()
    ]
    frames = {
        position: _frame(draw(*position), describe(*position))
        for position in progress(list(product(*axes.values())), "frames")
    }
    picture = _stack(frames, (), list(axes.values()), controls)
    text = widgets.HTML(f'<p class="eh-caption">{escape(caption)}</p>')
    return widgets.VBox([widgets.HBox(controls), picture, text])


def _frame(figure: Figure, description: str) -> widgets.HTML:
    data = base64.b64encode(png(figure)).decode()
    alt = escape(description, quote=True)
    return widgets.HTML(f'<img class="eh-frame" alt="{alt}" src="data:image/png;base64,{data}">')


def _stack(
    frames: Mapping[tuple[object, ...], widgets.HTML],
    chosen: tuple[object, ...],
    axes: list[Sequence[object]],
    controls: list[widgets.SelectionSlider],
) -> widgets.Widget:
    """A stack for each slider, linked to it in the browser; its leaves are the frames."""
    if not axes:
        return frames[chosen]
    inner = [_stack(frames, (*chosen, here), axes[1:], controls[1:]) for here in axes[0]]
    stack = widgets.Stack(inner, selected_index=0)
    widgets.jslink((controls[0], "index"), (stack, "selected_index"))
    return stack


@dataclass(frozen=True)
class Panel:
    """One training run: the eigenvalues `predicted[n]` at step `times[n]`, labelled and of one
    size; `measured` maps a step to eigenvalues found there by other means; `losses` (T + 1,) are
    the losses at the steps 0..T, or None.
    """

    title: str
    times: Sequence[int]
    predicted: Sequence[Spectrum]
    measured: Mapping[int, ArrayLike] = field(default_factory=dict)
    losses: ArrayLike | None = None


def trajectories(
    panels: Sequence[Panel],
    colours: Mapping[str, str],
    limits: tuple[float, float],
    names: Mapping[str, str] | None = None,
) -> Figure:
    """Eigenvalues over training, a row for each panel: predicted curves coloured by their labels
    and measured values as dots. A last row has the losses of all panels that have them.

    `colours` maps labels to colours, drawn in this order; `names` maps labels to the legend's text.
    Runs of more than a hundred steps are drawn on a logarithmic axis beyond step 10.
    """
    lossy = [panel for panel in panels if panel.losses is not None]
    heights = [3.2] * len(panels) + [2.3] * bool(lossy)
    with house_style():
        figure, grid = plt.subplots(
            len(heights),
            squeeze=False,
            figsize=(6.6, 0.4 + sum(heights)),
            height_ratios=heights,
        )
        for panel, axes in zip(panels, grid[:, 0], strict=False):
            _curves(axes, panel, colours, names or {})
            axes.set_ylim(limits)
            axes.set_title(panel.title)
            axes.legend(loc="upper right", fontsize=9, ncols=2)
        for panel in lossy:
            grid[-1, 0].semilogy(np.asarray(panel.losses), label=panel.title)
            grid[-1, 0].set_ylabel("loss $-$ minimum")
            grid[-1, 0].set_xlabel("step $t$")
            grid[-1, 0].legend(loc="upper right", fontsize=9)
        last = max(max(panel.times) for panel in panels)
        if last > LONG_RUN:
            for axes in grid[:, 0]:
                axes.set_xscale("symlog", linthresh=LINEAR_STEPS)
                axes.set_xlim(-0.5, 1.2 * last)
                axes.xaxis.set_major_formatter(ScalarFormatter())
    plt.close(figure)
    return figure


def snapshot(
    panel: Panel,
    index: int,
    colours: Mapping[str, str],
    limits: tuple[float, float],
    names: Mapping[str, str] | None = None,
) -> Figure:
    """The whole spectrum at one step: on the left where the step lies on the curves of `panel`, on
    the right a bar for each distinct eigenvalue, as long as its multiplicity.
    """
    spectrum_now = panel.predicted[index]
    with house_style():
        figure, (left, right) = plt.subplots(
            1, 2, sharey=True, figsize=(6.6, 3.8), width_ratios=[1.5, 1]
        )
        _curves(left, panel, colours, names or {})
        left.axvline(panel.times[index], color="black", linewidth=1.2)
        left.set_ylim(limits)
        left.legend(loc="lower right", fontsize=9)
        left.set_title(f"step {panel.times[index]}")
        for label, colour in colours.items():
            joined = spectrum_now.select(label).clusters(BAR_TOLERANCE)
            right.barh(
                joined.values,
                joined.multiplicities,
                height=(limits[1] - limits[0]) / 60,
                color=colour,
            )
        right.set_xscale("log")
        right.minorticks_off()
        right.set_xlim(0.7, 2 * spectrum_now.size)
        right.set_xlabel("number of eigenvalues")
    plt.close(figure)
    return figure


def _curves(axes: Axes, panel: Panel, colours: Mapping[str, str], names: Mapping[str, str]) -> None:
    """The sorted eigenvalues of each label as curves, each distinct curve once, and the dots."""
    for label, colour in colours.items():
        curves = np.array([state.select(label).expand() for state in panel.predicted])
        distinct = np.unique(curves.round(CURVE_DECIMALS), axis=1)
        # One line with gaps is drawn much faster than many lines.
        heights = np.vstack([distinct, np.full(distinct.shape[1], np.nan)]).T.ravel()
        steps = np.tile([*panel.times, np.nan], distinct.shape[1])
        name = names.get(label, label)
        axes.plot(steps, heights, color=colour, linewidth=1.1, alpha=0.85, label=name)
    for time, values in panel.measured.items():
        heights = np.unique(np.asarray(values, dtype=float).round(CURVE_DECIMALS - 2))
        axes.plot(np.full(len(heights), time), heights, ".", color="black", markersize=2.5)
    if panel.measured:
        axes.plot([], [], ".", color="black", markersize=4, label="exact Hessian")
    axes.set_xlabel("step $t$")
    axes.set_ylabel("eigenvalue of $H$")


def distribution(
    measured: ArrayLike, predicted: Spectrum, colours: Mapping[str, str], bins: ArrayLike
) -> Figure:
    """How many eigenvalues lie where: `predicted` as bars coloured by their labels, `measured` as
    dots, counted in the intervals between neighbours of `bins`.
    """
    edges = np.asarray(bins, dtype=float)
    centres = (edges[1:] + edges[:-1]) / 2
    found, _ = np.histogram(np.asarray(measured, dtype=float), edges)
    base = np.zeros(len(centres))
    with house_style():
        figure, axes = plt.subplots()
        for label, colour in colours.items():
            counts, _ = np.histogram(predicted.select(label).expand(), edges)
            axes.bar(centres, counts, np.diff(edges), base, color=colour, alpha=0.7, label=label)
            base += counts
        seen = found > 0
        axes.plot(
            centres[seen], found[seen], "o", color="black", markersize=4, label="exact Hessian"
        )
        axes.set_yscale("log")
        axes.set_ylim(0.6, 2 * max(found.max(), base.max()))
        axes.set_xlabel("eigenvalue of $H$")
        axes.set_ylabel("number of eigenvalues")
        axes.legend()
    plt.close(figure)
    return figure


@dataclass(frozen=True)
class Plot:
    """One pair of axes: `lines` maps a legend entry to theory (x, y), drawn as a line; `dots` maps
    one to measurements (x, y), drawn as markers; `levels` maps one to the height of a dashed
    horizontal line, `marks` one to the place of a dotted vertical line.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[ArrayLike, ArrayLike]] = field(default_factory=dict)
    dots: Mapping[str, tuple[ArrayLike, ArrayLike]] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, float] = field(default_factory=dict)
    log: str = ""
    limits: tuple[float, float] | None = None
    size: float = 3.0


def _grid(count: int, columns: int, height: float) -> tuple[Figure, Any]:
    """A figure with `count` axes, `columns` in a row; places left over stay empty."""
    rows = -(-count // columns)
    figure, grid = plt.subplots(rows, columns, squeeze=False, figsize=(6.6, 0.3 + height * rows))
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    return figure, grid


def plots(panels: Sequence[Plot], columns: int = 1, height: float = 3.0) -> Figure:
    """Panels side by side, `columns` in a row, each with its own axes and legend.

    `log` names the logarithmic axes ("x", "y", "xy"), `limits` bounds the vertical one.
    """
    palette = [PURPLE, ORANGE, GREEN, BLUE, VERMILION, SKY, GREY]
    with house_style():
        figure, grid = _grid(len(panels), columns, height)
        for panel, axes in zip(panels, grid.flat, strict=False):
            colours = iter(palette * 2)
            for name, (x, y) in panel.lines.items():
                axes.plot(np.asarray(x), np.asarray(y), color=next(colours), label=name)
            colours = iter(palette * 2)
            for name, (x, y) in panel.dots.items():
                axes.plot(
                    np.asarray(x),
                    np.asarray(y),
                    ".",
                    color=next(colours),
                    markersize=panel.size,
                    label=name,
                )
            for (name, level), style in zip(panel.levels.items(), ("--", "-.", ":"), strict=False):
                axes.axhline(level, color="black", linestyle=style, linewidth=1.1, label=name)
            for (name, place), style in zip(panel.marks.items(), (":", "-.", "--"), strict=False):
                axes.axvline(place, color=GREY, linestyle=style, linewidth=1.4, label=name)
            if "x" in panel.log:
                axes.set_xscale("log")
            if "y" in panel.log:
                axes.set_yscale("log")
            if panel.limits is not None:
                axes.set_ylim(panel.limits)
            axes.set_xlabel(panel.x)
            axes.set_ylabel(panel.y)
            axes.set_title(panel.title, fontsize=11)
            handles, names = axes.get_legend_handles_labels()
            if any(names):
                axes.legend(handles, names, fontsize=8, loc="best", markerscale=6 / panel.size)
    plt.close(figure)
    return figure


@dataclass(frozen=True)
class Spikes:
    """A spectrum as outliers and bulk: the `outliers` largest of all `values` are spikes, the rest
    a histogram; `theory` is where the spikes should be, None for nowhere in particular.
    """

    title: str
    values: ArrayLike
    outliers: int
    theory: float | None = None


def spikes(
    panels: Sequence[Spikes], columns: int = 2, right: float | None = None, height: float = 1.9
) -> Figure:
    """Histograms of spectra with their outliers as spikes, `columns` in a row, on the common range
    from 0 to `right` (None: each panel its own). A spike is as high as the number of outliers in
    its sixtieth of the range; counts are on a logarithmic scale.
    """
    with house_style():
        figure, grid = _grid(len(panels), columns, height)
        for panel, axes in zip(panels, grid.flat, strict=False):
            values = np.sort(np.asarray(panel.values, dtype=float))[::-1]
            top, bulk = values[: panel.outliers], values[panel.outliers :]
            end = 1.08 * (values[0] if right is None else right)
            edges = np.linspace(0, end, 61)
            axes.hist(np.clip(bulk, 0, end), bins=edges, color=ORANGE)
            # Bins centred on the theory, so that no edge parts eigenvalues that meet there.
            nearest = np.rint((top - (panel.theory or 0.0)) / edges[1])
            places, counts = np.unique(nearest, return_counts=True)
            centres = [top[nearest == place].mean() for place in places]
            axes.vlines(centres, 0.5, counts, PURPLE, linewidth=1.6)
            axes.plot(centres, counts, ".", color=PURPLE, markersize=5)
            if panel.theory is not None:
                axes.axvline(panel.theory, color="black", linestyle="--", linewidth=0.9)
            axes.set_yscale("log")
            axes.set_ylim(0.5, 3 * max(len(values), 2))
            axes.set_xlim(-0.02 * end, end)
            axes.set_title(panel.title, fontsize=10)
            axes.tick_params(labelsize=9)
        for axes in grid[-1]:
            axes.set_xlabel("eigenvalue", fontsize=10)
        for axes in grid[:, 0]:
            axes.set_ylabel("count", fontsize=10)
    plt.close(figure)
    return figure
