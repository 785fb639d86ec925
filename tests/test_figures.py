"""Figures: theory as lines, measurement as markers, and sliders that need no kernel."""

import base64
import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
from ipywidgets import embed
from matplotlib.colors import to_hex
from PIL import Image

from exacthessian import figures
from exacthessian.spectrum import Spectrum
from exacthessian.studies import beyond_edge_of_stability as eos
from exacthessian.studies import depth_not_data as dnd

COLOURS = {"zero": figures.GREEN, "bulk": figures.ORANGE, "dominant": figures.PURPLE}


def state(high: float) -> Spectrum:
    return Spectrum([high, 1.0, 0.0], [2, 3, 5], ["dominant", "bulk", "zero"])


def panel(**changes) -> figures.Panel:
    arguments = {
        "title": "L = 3",
        "times": [0, 1, 2],
        "predicted": [state(2.0), state(2.5), state(3.0)],
        "measured": {2: state(3.0).expand()},
        "losses": [1.0, 0.1, 0.01],
    }
    return figures.Panel(**(arguments | changes))


def lines_of(axes, colour):
    return [line for line in axes.lines if to_hex(line.get_color()) == colour]


def dots_of(axes):
    return [line for line in axes.lines if line.get_marker() == "." and len(line.get_xdata())]


def test_no_figure_stays_open():
    before = plt.get_fignums()
    figures.trajectories([panel()], COLOURS, (-1, 4))
    figures.snapshot(panel(), 1, COLOURS, (-1, 4))
    figures.distribution(state(3.0).expand(), state(3.0), COLOURS, np.arange(-0.5, 4))
    dnd.ratio_band([2, 3], ([1, 2], [3, 4]), ([1, 2], [3, 4]))
    dnd.ratio_histories([1, 2], {"small": [[1, 2]]}, depth=3)
    figures.spectrum(state(3.0).expand(), state(3.0), COLOURS)
    assert plt.get_fignums() == before


def test_the_spectrum_is_a_line_under_dots():
    (axes,) = figures.spectrum(np.arange(10), state(3.0), COLOURS).axes
    (dots,) = dots_of(axes)
    assert dots.get_ydata().tolist() == list(range(9, -1, -1))
    (bulk,) = [part for part in axes.collections if part.get_label() == "bulk"]
    assert to_hex(bulk.get_color()[0]) == figures.ORANGE
    assert [segment.tolist() for segment in bulk.get_segments()] == [
        [[rank - 0.5, 1.0], [rank + 0.5, 1.0]] for rank in (3, 4, 5)
    ]
    with pytest.raises(ValueError, match="measured must have 10 eigenvalues, got 2"):
        figures.spectrum([1, 2], state(3.0), COLOURS)


def test_trajectories_colour_curves_by_label_and_dot_the_measurement():
    values, loss = figures.trajectories([panel()], COLOURS, (-1, 4)).axes
    (dominant,) = lines_of(values, figures.PURPLE)
    assert dominant.get_ydata()[:3].tolist() == [2.0, 2.5, 3.0]
    assert dominant.get_xdata()[:3].tolist() == [0, 1, 2]
    assert dominant.get_marker() == "None"
    (dots,) = dots_of(values)
    assert sorted(dots.get_ydata()) == [0, 1, 3]
    assert set(dots.get_xdata()) == {2}
    assert loss.lines[0].get_ydata().tolist() == [1.0, 0.1, 0.01]
    assert loss.get_yscale() == "log"
    assert values.get_ylim() == (-1, 4)


def test_a_curve_that_moves_apart_is_drawn_apart():
    fan = [
        Spectrum([a, b, 0.0], [1, 1, 1], ["dominant", "dominant", "zero"])
        for a, b in [(1.0, 1.0), (2.0, 1.5)]
    ]
    run = panel(times=[0, 1], predicted=fan, measured={}, losses=None)
    (axes,) = figures.trajectories([run], {"dominant": figures.PURPLE}, (0, 3)).axes
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_ydata(), [1.0, 1.5, np.nan, 1.0, 2.0, np.nan])


@pytest.mark.parametrize(("last", "scale"), [(100, "linear"), (101, "symlog")])
def test_a_long_run_has_logarithmic_time(last, scale):
    axes = figures.trajectories([panel(times=[0, 1, last])], COLOURS, (-1, 4)).axes
    assert {part.get_xscale() for part in axes} == {scale}


def test_two_runs_make_two_rows_and_the_legend_has_the_given_names():
    drawn = figures.trajectories([panel(), panel()], COLOURS, (-1, 4), {"bulk": "in the bulk"})
    assert len(drawn.axes) == 3
    assert len(drawn.axes[2].lines) == 2
    texts = [text.get_text() for text in drawn.axes[0].get_legend().get_texts()]
    assert texts == ["zero", "in the bulk", "dominant", "exact Hessian"]


def test_a_snapshot_counts_the_eigenvalues_of_its_step():
    left, right = figures.snapshot(panel(), 1, COLOURS, (-1, 4)).axes
    assert left.get_title() == "step 1"
    bars = {
        to_hex(bar.get_facecolor()): (bar.get_y() + bar.get_height() / 2, bar.get_width())
        for bar in right.patches
    }
    assert bars[figures.PURPLE] == pytest.approx((2.5, 2))
    assert bars[figures.ORANGE] == pytest.approx((1.0, 3))
    assert bars[figures.GREEN] == pytest.approx((0.0, 5))


def test_a_distribution_stacks_the_prediction_and_dots_the_count():
    predicted = Spectrum([0.2, 0.3, 2.2], [4, 1, 2], ["zero", "bulk", "dominant"])
    (axes,) = figures.distribution([0.1, 0.2, 2.3], predicted, COLOURS, [0, 1, 2, 3]).axes
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches]
    assert tops == [4, 0, 0, 5, 0, 0, 5, 0, 2]
    (dots,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert dots.get_xdata().tolist() == [0.5, 2.5]
    assert dots.get_ydata().tolist() == [2, 1]


def test_the_ratio_band_has_bounds_as_lines_and_measurements_as_markers():
    (axes,) = dnd.ratio_band([2, 3], ([1, 2], [4, 5]), ([1.1, 2.1], [3.9, 4.9])).axes
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [list(line.get_ydata()) for line in dashed] == [[1, 2], [4, 5]]
    marked = {line.get_marker(): list(line.get_ydata()) for line in axes.lines[3:]}
    assert marked == {"^": [3.9, 4.9], "v": [1.1, 2.1]}
    assert list(axes.lines[0].get_ydata()) == [2, 3]


def test_histories_are_marked_run_by_run():
    histories = {"small": [[1, 2], [1, 3]], "large": [[0, 1]]}
    (axes,) = dnd.ratio_histories([1, 10], histories, depth=3).axes
    assert [line.get_marker() for line in axes.lines] == ["None", "o", "o", "s"]
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["$L = 3$", "small", "large"]


def dot(n: int):
    return figures.spectrum([n], Spectrum.from_values([n], "n"), {"n": figures.BLUE})


def two_knobs():
    return figures.slider(
        lambda a, b: dot(10 * a + b),
        lambda a, b: f'A dot at "{a}" & {b}',
        {"a": [1, 2, 3], "b": [4, 5]},
        "A dot <moves>.",
    )


def test_a_slider_has_a_frame_for_every_position():
    box, picture, caption = two_knobs().children
    assert [control.description for control in box.children] == ["a", "b"]
    assert [len(stack.children) for stack in (picture, *picture.children)] == [3, 2, 2, 2]
    frames = [frame for stack in picture.children for frame in stack.children]
    images = [re.search(r"base64,([^\"]+)", frame.value)[1] for frame in frames]
    assert len(set(images)) == 6
    for image in images:
        assert Image.open(io.BytesIO(base64.b64decode(image))).format == "PNG"
    assert "A dot &lt;moves&gt;." in caption.value


def test_every_frame_says_what_is_seen():
    picture = two_knobs().children[1]
    assert 'alt="A dot at &quot;3&quot; &amp; 5"' in picture.children[2].children[1].value


def test_the_browser_alone_moves_the_frames():
    state = embed.dependency_state([two_knobs()], drop_defaults=False)
    links = [entry["state"] for entry in state.values() if entry["model_name"] == "LinkModel"]
    assert len(links) == 4
    assert {(link["source"][1], link["target"][1]) for link in links} == {
        ("index", "selected_index")
    }


@pytest.mark.parametrize("axes", [{}, {"n": []}])
def test_a_slider_without_positions_is_refused(axes):
    with pytest.raises(ValueError, match="axes must name at least one slider with positions"):
        figures.slider(dot, str, axes, "Nothing.")


def test_a_frame_is_small_and_as_wide_as_promised():
    data = figures.png(figures.snapshot(panel(), 0, COLOURS, (-1, 4)))
    assert len(data) < 40_000
    image = Image.open(io.BytesIO(data))
    assert image.size == (726, 418)
    assert len(image.convert("RGB").getcolors(256)) <= 64


def test_plots_draw_theory_as_lines_and_measurement_as_dots():
    one = figures.Plot(
        "title",
        "x",
        "y",
        lines={"theory": ([0, 1], [1, 2])},
        dots={"measured": ([0, 1], [1, 2])},
        levels={"level": 1.5},
        marks={"mark": 0.5},
        log="y",
    )
    drawing = figures.plots([one, one, one], columns=2)
    shown = [axes for axes in drawing.axes if axes.get_visible()]
    assert len(shown) == 3
    line, dots, level, mark = shown[0].get_lines()
    assert (line.get_linestyle(), dots.get_linestyle(), dots.get_marker()) == ("-", "None", ".")
    assert list(level.get_ydata()) == [1.5, 1.5]
    assert list(mark.get_xdata()) == [0.5, 0.5]
    assert shown[0].get_yscale() == "log"


def test_a_cobweb_shows_where_the_map_ends():
    drawing = eos.cobweb(lambda x: 1 - np.asarray(x), 0.2, settle=4, limits=(0, 1))
    (orbit,) = drawing.axes[0].get_lines()
    assert np.allclose(orbit.get_ydata()[:4], [0.2, 0.8, 0.2, 0.8])


def test_phases_part_the_eigenvalues_at_the_threshold():
    drawing = eos.phases([[1.0, 3.0], [2.5]], threshold=2.0, limits=(0, 4))
    above = [segments for segments in drawing.axes[0].collections if len(segments.get_segments())]
    heights = [segment[0][1] for part in above for segment in part.get_segments()]
    assert heights == [3.0, 1.0, 2.5]


def test_a_small_picture_keeps_every_colour_of_the_palette():
    names = ("PURPLE", "ORANGE", "GREEN", "BLUE", "VERMILION", "SKY")
    dots = {name: ([place], [0.0]) for place, name in enumerate(names)}
    dots["GREEN"] = (np.linspace(0, 5, 400), np.linspace(0.1, 0.9, 400))
    picture = figures.plots([figures.Plot("", "x", "y", dots=dots, size=5)])
    pixels = np.asarray(Image.open(io.BytesIO(figures.png(picture))).convert("RGB"), dtype=int)
    for name in names:
        colour = getattr(figures, name)
        wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
        assert (np.abs(pixels - wanted).sum(axis=-1) < 30).sum() > 5, name


def test_spikes_are_as_high_as_their_number_and_the_bulk_is_a_histogram():
    values = [3.0, 3.001, 2.0, 0.5, 0.0, 0.0]
    panels = [
        figures.Spikes("all", values, outliers=3, theory=3.0),
        figures.Spikes("none", values, outliers=0),
        figures.Spikes("two", values[3:], outliers=1),
    ]
    drawn = figures.spikes(panels, columns=2, right=3.0)
    left, right, below, unused = drawn.axes
    places, heights = left.lines[0].get_data()
    assert np.allclose(places, [2.0, 3.0005])
    assert list(heights) == [1, 2]
    assert left.lines[1].get_xdata()[0] == 3.0
    assert sum(bar.get_height() for bar in left.patches) == 3
    assert sum(bar.get_height() for bar in right.patches) == 6
    assert len(right.lines) == 1
    assert list(below.lines[0].get_xdata()) == [0.5]
    assert not unused.get_visible()
    assert left.get_xlim()[1] == right.get_xlim()[1]
    own = figures.spikes(panels[::2], columns=1)
    assert own.axes[0].get_xlim()[1] > own.axes[1].get_xlim()[1]
