"""Figures: theory as lines, measurement as markers, and sliders that need no kernel."""

import base64
import csv
import io
import json
import re
from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from bs4 import BeautifulSoup
from matplotlib.colors import to_hex

import pictures
from exacthessian import figures
from exacthessian.spectrum import Spectrum
from exacthessian.studies import deep_linear_ufm as ufm
from exacthessian.studies import depth_not_data as dnd

COLOURS = {"zero": figures.GREEN, "bulk": figures.ORANGE, "dominant": figures.PURPLE}


def state(high: float) -> Spectrum:
    return Spectrum([high, 1.0, 0.0], [2, 3, 5], ["dominant", "bulk", "zero"])


STATES = [state(2.0), state(2.5), state(3.0)]


def lines_of(axes, colour):
    return [line for line in axes.lines if to_hex(line.get_color()) == colour]


def dots_of(axes):
    return [line for line in axes.lines if line.get_marker() == "." and len(line.get_xdata())]


def strokes_of(x, y):
    """The ends of separate strokes."""
    return [
        [(float(x[i]), float(y[i])), (float(x[i + 1]), float(y[i + 1]))]
        for i in range(0, len(x), 3)
        if not np.isnan([y[i], y[i + 1]]).any()
    ]


def test_no_figure_stays_open():
    before = plt.get_fignums()
    figures.plots([figures.curves(range(3), STATES, COLOURS)])
    dnd.distribution(state(3.0).expand(), state(3.0), COLOURS, np.arange(-0.5, 4))
    figures.spectrum(state(3.0).expand(), state(3.0), COLOURS)
    assert plt.get_fignums() == before


def test_the_spectrum_is_a_line_under_dots():
    (axes,) = figures.spectrum(np.arange(10), state(3.0), COLOURS).axes
    (dots,) = dots_of(axes)
    assert dots.get_ydata().tolist() == list(range(9, -1, -1))
    assert dots.get_color() == "black"
    (bulk,) = [line for line in axes.lines if line.get_label() == "bulk"]
    assert bulk.get_color() == figures.ORANGE
    assert strokes_of(*bulk.get_data()) == [
        [(rank - 0.5, 1.0), (rank + 0.5, 1.0)] for rank in (3, 4, 5)
    ]
    with pytest.raises(ValueError, match="measured must have 10 eigenvalues, got 2"):
        figures.spectrum([1, 2], state(3.0), COLOURS)


def test_curves_are_coloured_by_label_and_the_measurement_dotted():
    plot = figures.curves(range(3), STATES, COLOURS, {2: state(3.0).expand()}, limits=(-1, 4))
    (axes,) = figures.plots([plot]).axes
    (dominant,) = lines_of(axes, figures.PURPLE)
    assert dominant.get_ydata()[:3].tolist() == [2.0, 2.5, 3.0]
    assert dominant.get_xdata()[:3].tolist() == [0, 1, 2]
    assert dominant.get_marker() == "None"
    (dots,) = dots_of(axes)
    assert sorted(dots.get_ydata()) == [0, 1, 3]
    assert set(dots.get_xdata()) == {2}
    assert axes.get_ylim() == (-1, 4)


def test_a_curve_that_moves_apart_is_drawn_apart():
    fan = [
        Spectrum([a, b, 0.0], [1, 1, 1], ["dominant", "dominant", "zero"])
        for a, b in [(1.0, 1.0), (2.0, 1.5)]
    ]
    _, heights = figures.curves([0, 1], fan, {"dominant": figures.PURPLE}).lines["dominant"]
    np.testing.assert_array_equal(heights, [1.0, 1.5, np.nan, 1.0, 2.0, np.nan])


@pytest.mark.parametrize(("last", "scale"), [(100, "linear"), (101, "symlog")])
def test_a_long_run_has_logarithmic_time(last, scale):
    (axes,) = figures.plots([figures.curves([0, 1, last], STATES, COLOURS)]).axes
    assert axes.get_xscale() == scale


def test_a_distribution_stacks_the_prediction_and_dots_the_count():
    predicted = Spectrum([0.2, 0.3, 2.2], [4, 1, 2], ["zero", "bulk", "dominant"])
    (axes,) = dnd.distribution([0.1, 0.2, 2.3], predicted, COLOURS, [0, 1, 2, 3]).axes
    bars = {line.get_color(): strokes_of(*line.get_data()) for line in axes.lines}
    assert bars[figures.GREEN] == [[(0.5, 0.6), (0.5, 4.0)]]
    assert bars[figures.ORANGE] == [[(0.5, 4.0), (0.5, 5.0)]]
    assert bars[figures.PURPLE] == [[(2.5, 0.6), (2.5, 2.0)]]
    (dots,) = dots_of(axes)
    assert dots.get_xdata().tolist() == [0.5, 2.5]
    assert dots.get_ydata().tolist() == [2, 1]


def dot(n: int):
    return figures.spectrum([n], Spectrum.from_values([n], "n"), {"n": figures.BLUE}, (0, 40))


def two_knobs():
    return figures.slider(
        lambda a, b: dot(10 * a + b),
        lambda a, b: f'A dot at "{a}" & {b}',
        {"a": [1, 2, 3], "b": [4, 5]},
        "A dot <moves>.",
    )


def test_a_slider_has_a_frame_for_every_position():
    page = BeautifulSoup(two_knobs().markup, "html.parser")
    assert [label.string for label in page.find_all("label")] == ["a", "b"]
    values = [json.loads(knob["data-values"]) for knob in page.find_all("input")]
    assert values == [["1", "2", "3"], ["4", "5"]]
    images = [re.search(r"base64,(.+)", frame["src"])[1] for frame in page.find_all("img")]
    assert len(set(images)) == 6
    for image in images:
        assert pictures.Picture(base64.b64decode(image).decode()).size[0] == 480
    assert page.find("figcaption").get_text().startswith("A dot <moves>.")


def test_axes_that_move_are_refused():
    with pytest.raises(ValueError, match=r"the same axes, got others at \(2,\)"):
        figures.slider(
            lambda n: figures.plots([figures.Plot("", "x", "y", limits=(0, n))]),
            str,
            {"n": [1, 2]},
            "It jumps.",
        )


def test_every_frame_says_what_is_seen_and_only_the_first_is_shown():
    frames = BeautifulSoup(two_knobs().markup, "html.parser").find_all("img")
    assert frames[-1]["alt"] == 'A dot at "3" & 5'
    assert [frame.parent.has_attr("hidden") for frame in frames] == [False] + [True] * 5


@pytest.mark.parametrize("axes", [{}, {"n": []}])
def test_a_slider_without_positions_is_refused(axes):
    with pytest.raises(ValueError, match="axes must name at least one slider with positions"):
        figures.slider(dot, str, axes, "Nothing.")


def one_plot(**changes):
    parts = {
        **{"title": "title", "x": "x", "y": "y", "log": "y"},
        **{"levels": {"level": 1.5}, "marks": {"mark": 0.5}},
        **{"lines": {"theory": ([0, 1], [1, 2])}, "dots": {"measured": ([0, 1], [1.25, 2])}},
    }
    return figures.Plot(**(parts | changes))


def test_plots_draw_theory_as_lines_and_measurement_as_dots():
    drawing = figures.plots([one_plot()] * 3, columns=2)
    shown = [axes for axes in drawing.axes if axes.get_visible()]
    assert len(shown) == 3
    line, dots, level, mark = shown[0].get_lines()
    assert (line.get_linestyle(), dots.get_linestyle(), dots.get_marker()) == ("-", "None", ".")
    assert list(level.get_ydata()) == [1.5, 1.5]
    assert list(mark.get_xdata()) == [0.5, 0.5]
    assert [text.get_text() for text in shown[0].texts] == ["level", "mark"]
    assert shown[0].get_yscale() == "log"


def test_equal_names_are_said_once_and_others_above_their_panel():
    shared = figures.plots([one_plot(), one_plot()], columns=2)
    (legend,) = shared.legends
    assert [text.get_text() for text in legend.get_texts()] == ["theory", "measured"]
    assert [axes.get_legend() for axes in shared.axes] == [None, None]
    own = figures.plots([one_plot(), one_plot(dots={})])
    assert own.legends == []
    for axes in own.axes:
        below = axes.get_legend().get_window_extent().y0
        assert below >= axes.get_window_extent().y1 - 1, "a legend lies on the data"


def test_numbers_are_hidden_only_beside_the_same_scale():
    def labelled(limits):
        panels = [one_plot(limits=(0.5, 3)), one_plot(limits=limits)]
        axes = figures.plots(panels, columns=2).axes[1]
        return axes.yaxis.get_tick_params()["labelleft"]

    assert [labelled(limits) for limits in ((0.5, 3), (0.5, 4), None)] == [False, True, True]


def test_a_long_title_is_wrapped_outside_its_formulas():
    drawing = figures.plots([one_plot(title="what $a + b + c + d$ means to you and to me")] * 2, 2)
    assert drawing.axes[0].get_title(loc="left") == "what $a + b + c + d$ means\nto you and to me"


def test_a_figure_carries_its_numbers():
    drawing = figures.plots([one_plot(), one_plot(lines={"gap": ([0, 1, 2], [1, np.nan, 3])})])
    drawing.axes[1].bar([1, 2], [4, 5], label="bars")
    rows = list(csv.reader(io.StringIO(pictures.Picture(figures._svg(drawing)).table)))
    assert rows[:7] == [
        ["panel", "series", "x", "y"],
        ["1", "theory", "0", "1"],
        ["1", "theory", "1", "2"],
        ["1", "measured", "0", "1.25"],
        ["1", "measured", "1", "2"],
        ["1", "level: level", "0", "1.5"],
        ["1", "level: level", "1", "1.5"],
    ]
    assert [row[2:] for row in rows if row[1] == "gap"] == [["0", "1"], ["2", "3"]]
    assert [row for row in rows if row[1] == "bars"] == [
        ["2", "bars", "1", "4"],
        ["2", "bars", "2", "5"],
    ]


def test_many_dots_are_pixels_and_the_picture_stays_light():
    many = np.random.default_rng(0).random((2, 40_000))
    heavy = figures._svg(figures.plots([one_plot(dots={"many": many})]))
    assert "data:image/png" in heavy
    assert len(pictures.Picture(heavy).light) < 400_000
    few = figures._svg(figures.plots([one_plot(dots={"few": many[:, :2000]})]))
    assert "data:image/png" not in few


def test_letters_are_as_large_as_text_on_a_phone():
    drawing = figures.plots([one_plot(), one_plot(dots={})], columns=2)
    drawing.draw_without_rendering()
    sizes = [text.get_fontsize() for text in drawing.findobj(plt.Text) if text.get_text()]
    shrunk = 342 / (figures.WIDTH * 96)  # a column of 342 pixels on a phone of 390
    assert min(sizes) / 0.75 * shrunk > 9


def test_spikes_are_as_high_as_their_number_and_the_bulk_is_a_histogram():
    values = [3.0, 3.001, 2.0, 0.5, 0.0, 0.0]
    plot = ufm.spikes("all", values, outliers=3, theory=3.0, right=3.0)
    places, heights = plot.dots["outliers"]
    assert np.allclose(places, [2.0, 3.0005])
    assert list(heights) == [1, 2]
    assert plot.marks == {"": 3.0}
    assert sum(top for _, (_, top) in strokes_of(*plot.lines["bulk"])) == 3
    none = ufm.spikes("none", values, outliers=0)
    assert sum(top for _, (_, top) in strokes_of(*none.lines["bulk"])) == 6
    assert none.marks == {}
    assert plot.span == ufm.spikes("two", values[3:], outliers=1, right=3.0).span
    assert none.span[1] > ufm.spikes("two", values[3:], outliers=1).span[1]


# Machado, Oliveira and Fernandes 2009, severity 1, on linear sRGB
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
PALETTE = [figures.PURPLE, figures.ORANGE, figures.GREEN, figures.BLUE, figures.SKY]
PALETTE += [figures.VERMILION, figures.GREY, "#000000"]
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750]]
TO_XYZ += [[0.0193339, 0.1191920, 0.9503041]]


def linear(colour):
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array(TO_XYZ) @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(colour, ground):
    low, high = sorted(linear(part) @ TO_XYZ[1] for part in (colour, ground))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sight", BLINDNESS)
def test_everybody_can_tell_any_two_colours_apart(sight, dark):
    colours = [pictures.DARK[colour] for colour in PALETTE] if dark else PALETTE
    seen = {colour: lab(np.array(BLINDNESS[sight]) @ linear(colour)) for colour in colours}
    for one, other in combinations(colours, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 15, (one, other)


def test_every_colour_stands_out_from_the_ground():
    for colour in PALETTE:
        assert contrast(colour, "#ffffff") > 3, colour
        assert contrast(pictures.DARK[colour], pictures.PAPER) > 3, colour


def test_the_live_figures_have_the_same_purple():
    css = Path(__file__).parent.parent / "book" / "web" / "exact-hessian.css"
    assert f"--eh-dominant: {figures.PURPLE};" in css.read_text(encoding="utf-8")
