"""What live figures show, computed with the package: the referee of book/web/live.js.

A figure is a function from the values of its sliders to a *frame*, the numbers that are drawn: two
axes, which never move, marks, and a sentence that says what is seen. The script computes the same
frames in the page; a test compares the two.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from exacthessian import AlignedChain, mode
from exacthessian.attention import ScalarAttention
from exacthessian.scalar import ReluNetwork, TwoLayer
from exacthessian.studies.depth_not_data import membership
from exacthessian.ufm import DeepLinearUFM, threshold
from exacthessian.ufm_cross_entropy import Collapse

Frame = dict[str, Any]
Points = list[tuple[float, float]]
KINDS = ("dominant", "bulk", "zero", "plain")
SAME = 1e-6  # eigenvalues this close, relative to the largest, are one bar


@dataclass(frozen=True)
class Slider:
    """A knob: its name in the script, its label, its values, and how a value is said."""

    name: str
    label: str
    least: float
    most: float
    by: float
    value: float
    said: str = "{}"


@dataclass(frozen=True)
class Figure:
    """A live figure: its frames, its knobs, what its caption says, and what a reader may try."""

    frame: Callable[..., Frame]
    sliders: tuple[Slider, ...]
    caption: str
    hint: str
    play: bool = False


def axis(label: str, start: float, end: float, ticks: Iterable[float], log: bool = False) -> Frame:
    """An axis from `start` to `end`, which never moves."""
    return {
        "from": start,
        "to": end,
        "label": label,
        "log": log,
        "ticks": [(tick, f"{tick:g}".replace("-", "−")) for tick in ticks],
    }


def short(value: float) -> str:
    """Four digits for a sentence.

    >>> short(-0.28461), short(3.0), short(1e-9)
    ('−0.2846', '3', '0')
    """
    text = np.format_float_positional(value, precision=4, fractional=False, trim="-")
    return "0" if abs(value) < 1e-6 else text.replace("-", "−")


def clusters(chain: AlignedChain) -> list[tuple[float, int, int]]:
    """(eigenvalue, multiplicity, kind) of a chain, equal ones of one kind joined, descending."""
    labelled = membership(chain, int(np.count_nonzero(chain.target)))
    scale = SAME * float(np.abs(labelled.values).max())
    found: list[tuple[float, int, int]] = []
    for kind, name in enumerate(KINDS[:3]):
        last = np.inf
        for value in labelled.select(name).expand():
            if abs(last - value) <= scale:
                first, count, _ = found[-1]
                found[-1] = first, count + 1, kind
            else:
                found.append((float(value), 1, kind))
                last = float(value)
    return sorted(found, key=lambda entry: -entry[0])


def words(found: Sequence[tuple[float, int, int]]) -> str:
    """A spectrum in words.

    >>> words([(3.0, 16, 0), (1.0, 72, 1), (0.0, 830, 2), (-0.1, 2, 2)])
    '16 dominant at 3; 72 bulk at 1; 832 zero from −0.1 to 0'
    """
    parts = []
    for kind, name in enumerate(KINDS[:3]):
        mine = [(value, count) for value, count, own in found if own == kind]
        if mine:
            top, low = short(mine[0][0]), short(mine[-1][0])
            where = f"at {top}" if low == top else f"from {low} to {top}"
            parts.append(f"{sum(count for _, count in mine)} {name} {where}")
    return "; ".join(parts)


def mark(shape: str, kind: int, points: Points, label: str = "") -> Frame:
    """Something drawn: a bar, dot, line or level, in the colour of a kind."""
    return {"as": shape, "kind": kind, "points": points, "label": label}


def bars(found: Sequence[tuple[float, int, int]]) -> list[Frame]:
    """A bar for each distinct eigenvalue, as long as its multiplicity."""
    return [
        mark("bar", kind, [(count, value) for value, count, own in found if own == kind])
        for kind in (2, 1, 0)
    ]


def counted(most: float, *ticks: float) -> Frame:
    """The axis of multiplicities."""
    return axis("number of eigenvalues", 0.7, most, ticks, log=True)


def gap(depth: int, step: int) -> Frame:
    """Eigenvalues settle at the depth, at 1 and at 0."""
    widths = (10, *[20] * (depth - 1), 16)
    chain = AlignedChain.balanced(widths, [0.9, 0.8, 0.7, 0.6], target=np.ones(4))
    for _ in range(step):
        chain = chain.step(0.1)
    found = clusters(chain)
    return {
        "x": counted(10000, 1, 10, 100, 1000, 10000),
        "y": axis("eigenvalue of H", -1.5, 8.5, (0, 1, 2, 4, 6, 8)),
        "marks": [*bars(found), mark("level", 3, [(1, depth)], f"the depth, {depth}")],
        "text": f"Depth {depth}, after {step} steps: {words(found)}.",
    }


def two_cycle(depth: int, ratio: float) -> Frame:
    """One balanced mode, below and beyond the edge of stability."""
    eta = ratio * mode.edge(depth, 1.0)
    values = [0.9]
    for _ in range(60):
        values.append(mode.step(values[-1], depth, 1.0, eta))
    levels = mode.two_cycle(depth, 1.0, eta) if ratio > 1.0005 else (1.0,)
    run = [(float(t), value) for t, value in enumerate(values)]
    ends = " and ".join(short(level) for level in levels)
    return {
        "x": axis("step t", 0, 60, (0, 20, 40, 60)),
        "y": axis("singular value of a layer", 0.6, 1.3, (0.6, 0.8, 1, 1.2)),
        "marks": [
            *(mark("level", 3, [(0, level)]) for level in levels),
            *(mark(shape, 0, run) for shape in ("line", "dot")),
        ],
        "text": f"Depth {depth}, at {short(ratio)} times the edge: the layers "
        + (f"visit {ends} in turn." if len(levels) == 2 else "settle at 1."),
    }


def rotating(ratio: float, second: float) -> Frame:
    """The two states of the rotating cycle, as the images of the two inputs."""
    eta = ratio * mode.rotating_edge(2, 1.0, second)
    states = [state.product for state in mode.rotating_cycle(2, 1.0, second, eta)]

    def images(w: Any) -> Points:
        return [(w[0, 1], w[1, 1]), (0.0, 0.0), (w[0, 0], w[1, 0])]

    one, two = (images(w) for w in states)
    said = " and ".join(f"({short(a)}, {short(b)})" for a, b in (one[2], one[0]))
    return {
        "x": axis("first output", -0.8, 1.6, (-0.5, 0, 0.5, 1, 1.5)),
        "y": axis("second output", -0.6, 1.2, (-0.5, 0, 0.5, 1)),
        "marks": [
            mark("line", 3, [(0, second), (0, 0), (1, 0)]),
            *(mark(s, kind, p) for kind, p in ((1, two), (0, one)) for s in ("line", "dot")),
        ],
        "text": f"At {short(ratio)} times the edge of the pair, W sends the two inputs to {said}, "
        "and one step later to their mirror images; the target is (1, 0) and "
        f"(0, {short(second)}).",
    }


def one_bulk(width: int, target: float) -> Frame:
    """Two layers, one input, one output: two outliers and a bulk of plus and minus d."""
    k = np.arange(width)
    net = TwoLayer(np.cos(k) / np.sqrt(width), np.sin(k + 1) / np.sqrt(width), 1.0, target)
    (top, second), d, copies = net.outliers().tolist(), net.d, width - 1
    return {
        "x": counted(200, 1, 10, 100),
        "y": axis("eigenvalue of H", -3.5, 4.5, range(-3, 5)),
        "marks": [
            mark("bar", 1, [(copies, d), (copies, -d)] if copies else []),
            mark("bar", 0, [(1, top), (1, second)]),
        ],
        "text": f"Width {width}, target {short(target)}: two outliers at {short(top)} and "
        f"{short(second)}, "
        + (
            f"and a bulk of {copies} at {short(d)} and {copies} at {short(-d)}."
            if copies
            else "and no bulk."
        ),
    }


def collapse(depth: int, strength: float) -> Frame:
    """The whole spectrum at neural collapse."""
    ridge = strength * threshold(3, 5, depth)
    ufm = DeepLinearUFM(classes=3, samples=5, depth=depth, width=8, ridge=ridge)
    kinds = {"symmetric": 0, "antisymmetric": 0, "within": 1}
    spectrum = ufm.spectrum()
    rows = zip(spectrum.values, spectrum.multiplicities, spectrum.labels, strict=True)
    merged: dict[tuple[int, float], int] = {}
    for value, count, label in rows:
        key = kinds.get(label, 2), round(float(value), 12)
        merged[key] = merged.get(key, 0) + int(count)
    found = [(value, count, kind) for (kind, value), count in merged.items()]
    found.sort(key=lambda entry: -entry[0])
    return {
        "x": counted(3000, 1, 10, 100, 1000),
        "y": axis("eigenvalue of H", -0.05, 1.45, (0, 0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4)),
        "marks": bars(found),
        "text": f"Depth {depth}, λ = {short(ridge)}: the outputs reach C = {short(ufm.fit)} of "
        f"their targets; {words(found)}.",
    }


def sink(strength: float) -> Frame:
    """One attention head whose first token draws attention."""
    layer = ScalarAttention(
        *(1.5, np.array([1, 0.5, 0, 0.2]), np.array([0.5, 1, 0.3, 0])),
        *((np.array([1, -0.5, 2, 0.5]),), (np.array([1, 1, -1, 0.5]),)),
    ).with_sink(strength)
    outliers, gamma = layer.head().outliers().tolist(), layer.head().gamma
    share = 100 * float(layer.attention()[0][:, 0].mean())
    return {
        "x": counted(10, 1, 3, 10),
        "y": axis("eigenvalue of H", -2, 3, range(-2, 4)),
        "marks": [
            mark("bar", 1, [(3, gamma), (3, -gamma)]),
            mark("bar", 0, [(1, value) for value in outliers]),
        ],
        "text": f"With {short(share)} % of the attention on the first token: outliers at "
        f"{', '.join(map(short, outliers))}; a bulk of 3 at {short(gamma)} and 3 at "
        f"{short(-gamma)}.",
    }


def filmed(net: AlignedChain, eta: float, steps: int) -> tuple[list[Points], Any]:
    """The distinct eigenvalues of each kind at every step so far, and the spectrum now."""
    points: list[Points] = [[], [], []]
    for t in range(steps + 1):
        found = clusters(net)
        for value, _, kind in found:
            points[kind].append((t, value))
        net = net.step(eta)
    return points, found


def hero(step: int, eta: float) -> Frame:
    """Eigenvalues sort into three colours while a network trains."""
    layers, target = [0.55, 0.5, 0.45], [1, 0.95, 0.9]
    net = AlignedChain.balanced((6, 7, 7, 5), layers, target=target)
    points, found = filmed(net, eta, step)
    return {
        "x": axis("step of training", 0, 120, range(0, 121, 30)),
        "y": axis("eigenvalue of H", -1.2, 5, range(-1, 6)),
        "marks": [
            *(mark("dot", kind, points[kind]) for kind in (2, 1, 0)),
            mark("level", 3, [(0, 2 / eta)], "2/η"),
        ],
        "text": f"After {step} steps with η = {short(eta)}: {words(found)}; the edge 2/η is at "
        f"{short(2 / eta)}.",
    }


def chain(depth: int, step: int) -> Frame:
    """A small network learns two directions: eigenvalues of both signs, then the depth, 1 and 0."""
    widths = (6, *[8] * (depth - 1), 5)
    net = AlignedChain.balanced(widths, [0.5, 0.4], target=np.ones(2))
    for _ in range(step):
        net = net.step(0.1)
    found = clusters(net)
    return {
        "x": counted(500, 1, 10, 100),
        "y": axis("eigenvalue of H", -1.2, 5.3, range(-1, 6)),
        "marks": [*bars(found), mark("level", 3, [(1, depth)], f"the depth, {depth}")],
        "text": f"Depth {depth}, after {step} steps: {words(found)}.",
    }


def film(depth: int, step: int) -> Frame:
    """Training sorts the spectrum: every eigenvalue at every step."""
    widths = (10, *[20] * (depth - 1), 16)
    net = AlignedChain.balanced(widths, [0.85, 0.75, 0.65, 0.55], target=np.ones(4))
    points, found = filmed(net, 0.1, step)
    return {
        "x": axis("step of training", 0, 60, range(0, 61, 10)),
        "y": axis("eigenvalue of H", -1.5, 5.5, range(-1, 6)),
        "marks": [mark("dot", kind, points[kind]) for kind in (2, 1, 0)],
        "text": f"Depth {depth}, after {step} steps: {words(found)}.",
    }


def stretch(depth: int, factor: float) -> Frame:
    """One function, many spectra: the first layer divided by a factor, the last multiplied."""
    scales = [1 / factor, *[1.0] * (depth - 2), factor]
    layers = tuple(np.array([scale, scale, 0, 0]) for scale in scales)
    widths = (4, *[4] * (depth - 1), 6)
    found = clusters(AlignedChain(widths, layers, np.ones(4), np.array([1.0, 1, 0, 0])))
    return {
        "x": counted(200, 1, 10, 100),
        "y": axis("eigenvalue of H", -0.5, 13, (0, 2, 4, 6, 8, 10, 12)),
        "marks": [*bars(found), mark("level", 3, [(1, depth)], f"the depth, {depth}")],
        "text": f"Depth {depth}, the first layer divided by {short(factor)}, the last multiplied: "
        f"{words(found)}.",
    }


def cobweb(ratio: float) -> Frame:
    """One mode from step to step, between the graph of a step and the diagonal."""
    eta = ratio * mode.edge(3, 1.0)
    values = [0.9]
    for _ in range(40):
        values.append(mode.step(values[-1], 3, 1.0, eta))
    grid = [0.55 + 0.01 * k for k in range(71)]
    web = [place for now, after in pairwise(values) for place in ((now, now), (now, after))]
    last = sorted(round(value, 3) for value in values[-8:])
    ends = [value for value, before in zip(last, [0.0, *last], strict=False) if value != before]
    return {
        "x": axis("singular value of a layer now", 0.55, 1.25, (0.6, 0.8, 1, 1.2)),
        "y": axis("one step later", 0.55, 1.25, (0.6, 0.8, 1, 1.2)),
        "marks": [
            mark("line", 3, [(0.55, 0.55), (1.25, 1.25)]),
            mark("line", 1, [(x, mode.step(x, 3, 1.0, eta)) for x in grid]),
            mark("line", 0, web),
            mark("dot", 0, web[-16::2]),
        ],
        "text": f"At {short(ratio)} times the edge the last eight of 40 steps visit "
        f"{', '.join(map(short, ends))}.",
    }


def breathing(ratio: float) -> Frame:
    """All Hessian eigenvalues along an orbit, and which of them lie above 2/η."""
    sigma = np.array([10.0, 6, 3])
    eta = ratio * mode.edge(3, 10.0)
    net = AlignedChain.balanced((5,) * 4, 0.9 * sigma ** (1 / 3), target=sigma)
    above: Points = []
    below: Points = []
    counts = []
    for t in range(17):
        values = [value for value, _, _ in clusters(net)]
        above += [(t, value) for value in values if value > 2 / eta]
        below += [(t, value) for value in values if value <= 2 / eta]
        counts.append(sum(count for value, count, _ in clusters(net) if value > 2 / eta))
        net = net.step(eta)
    return {
        "x": axis("step t", -0.7, 16.7, range(0, 17, 4)),
        "y": axis("eigenvalue of H", -30, 160, (0, 40, 80, 120, 160)),
        "marks": [
            mark("tick", 1, below),
            mark("tick", 0, above),
            mark("level", 3, [(0, 2 / eta)], "2/η"),
        ],
        "text": f"At {short(ratio)} times the edge, between {min(counts[-8:])} and "
        f"{max(counts[-8:])} of 75 eigenvalues lie above 2/η = {short(2 / eta)} in the last eight "
        "states.",
    }


def phases(a: float, b: float) -> Frame:
    """Two outliers and the bulk along a line of weights: which phase of learning is this?"""
    e = np.eye(4)[0]

    def at(place: float) -> tuple[float, float, float]:
        net = TwoLayer(b * e, place * e, s2=1.0, yx=1.0)
        top, second = net.outliers().tolist()
        return top, second, net.d

    places = [round(-1.7 + 0.05 * k, 2) for k in range(69)]
    curves = [at(place) for place in places]
    top, second, d = at(a)
    name = "early" if a * b <= 1 / 3 else "late" if a * b <= 1 else "divergent"
    return {
        "x": axis("weight a of the first layer", -1.7, 1.7, (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)),
        "y": axis("eigenvalue of H", -4.5, 10, range(-4, 11, 2)),
        "marks": [
            *(
                mark("line", 1, [(p, s * c[2]) for p, c in zip(places, curves, strict=True)])
                for s in (1, -1)
            ),
            *(
                mark("line", 0, [(p, c[n]) for p, c in zip(places, curves, strict=True)])
                for n in (0, 1)
            ),
            mark("dot", 1, [(a, d), (a, -d)]),
            mark("dot", 0, [(a, top), (a, second)]),
            mark("level", 3, [(-1.7, 0)]),
        ],
        "text": f"a = {short(a)}, b = {short(b)}: {name} phase. Outliers at {short(top)} and "
        f"{short(second)}, a bulk of 3 at {short(d)} and 3 at {short(-d)}.",
    }


def cells(neurons: int, share: int) -> Frame:
    """A ReLU network: two cells, each with two outliers and a bulk of its own."""
    k = np.arange(10)
    size, grid = 0.8 + 0.5 * np.sin(3 * k), np.linspace(2, 0.1, 40)
    x = np.where(np.arange(40) < share, grid, -grid)
    net = ReluNetwork(np.cos(2 * k), np.where(k < neurons, size, -size), x, np.abs(x))
    bulk: Points = []
    outliers: Points = []
    said = []
    for place, name in enumerate(("plus", "minus"), start=1):
        if name not in net.cells:
            said.append(f"the {name} cell has no neuron")
            continue
        cell = net.cells[name]
        top, second = cell.outliers().tolist()
        outliers += [(place, top), (place, second)]
        copies = len(cell.w) - 1
        bulk += [(place, cell.d), (place, -cell.d)] if copies else []
        said.append(
            f"the {name} cell has outliers at {short(top)} and {short(second)}"
            + (f" and a bulk of {copies} at plus and minus {short(abs(cell.d))}" if copies else "")
        )
    return {
        "x": {
            **axis("cell", 0.4, 2.6, ()),
            "ticks": [(1, "plus cell"), (2, "minus cell")],
        },
        "y": axis("eigenvalue of H", -2, 20, range(0, 21, 4)),
        "marks": [mark("tick", 1, bulk), mark("tick", 0, outliers)],
        "text": f"{neurons} of 10 neurons and {share} of 40 samples in the plus cell: "
        f"{'; '.join(said)}.",
    }


def knobs(norm: float, value: float, strength: float) -> Frame:
    """An attention head with three knobs: the norms, the value, the sink."""
    k = np.arange(10)
    query, key = (norm * v / np.linalg.norm(v) for v in (np.cos(k), np.sin(2 * k + 1)))
    tokens, goals = [2, -1.6, 1.4, 1.1, -1.3, 0.7], [-1, 1, -1, -1.2, 1.8, -1.3]
    layer = ScalarAttention(value, query, key, (np.array(tokens),), (np.array(goals),)).with_sink(
        strength
    )
    outliers, gamma = layer.head().outliers().tolist(), layer.head().gamma
    return {
        "x": counted(20, 1, 3, 10),
        "y": axis("eigenvalue of H", -6, 6, range(-6, 7, 2)),
        "marks": [
            mark("bar", 1, [(9, gamma), (9, -gamma)]),
            mark("bar", 0, [(1, outlier) for outlier in outliers]),
        ],
        "text": f"Norm {short(norm)}, value {short(value)}, sink {short(strength)}: outliers at "
        f"{', '.join(map(short, outliers))}; a bulk of 9 at {short(gamma)} and 9 at "
        f"{short(-gamma)}.",
    }


def fold(depth: int, share: float) -> Frame:
    """Eigenvalues at collapse in units of λ, up to the fold where the optimum disappears."""
    power = (depth - 1) / (depth + 1)

    def strength(fit: float) -> float:
        return float((1 - fit) * fit**power)

    largest = strength((depth - 1) / (2 * depth))

    def at(place: float) -> tuple[DeepLinearUFM, list[tuple[float, int]]]:
        ufm = DeepLinearUFM(2, 2, depth, 3, place * largest / (2 * 2 ** (1 / (depth + 1))))
        spectrum = ufm.spectrum()
        rows = zip(spectrum.values / ufm.ridge[0], spectrum.labels, strict=True)
        kinds = {"symmetric": 0, "antisymmetric": 0, "within": 1}
        found = {(round(v, 6), kinds.get(label, 2)): v for v, label in rows if v > 1e-7}
        return ufm, sorted((float(v), kind) for (_, kind), v in found.items())

    places = [round(0.02 * k, 2) for k in range(1, 50)]
    curves = [at(place)[1] for place in places]
    ufm, here = at(share)
    marks = []
    for kind in (2, 1, 0):
        rows = [[v for v, own in curve if own == kind] for curve in curves]
        for n in range(max(map(len, rows))):
            marks.append(mark("line", kind, [(p, r[n]) for p, r in zip(places, rows, strict=True)]))
        marks.append(mark("dot", kind, [(share, v) for v, own in here if own == kind]))
    for fit, label in ((0.5, "C = 1/2"), *([((depth - 1) / depth, "")] if depth > 1 else [])):
        at_fit = strength(fit) / largest
        marks.append(mark("line", 3, [(at_fit, 500), (at_fit, 0.3)], label))
    least = min(v for v, own in here if own == 0)
    clear = "above" if ufm.fit > 0.5 else "not above"
    return {
        "x": axis("λ / largest λ", 0, 1, (0, 0.2, 0.4, 0.6, 0.8, 1)),
        "y": axis("eigenvalue / λ", 0.3, 1000, (1, 10, 100, 1000), log=True),
        "marks": marks,
        "text": f"Depth {depth}, λ at {short(share)} of its largest value: C = {short(ufm.fit)}; "
        f"the symmetric outliers are at {short(least)} λ, {clear} the balance eigenvalues at 2 λ.",
    }


def confidence(classes: int, alpha: float) -> Frame:
    """The levels of one layer under cross-entropy, in units of the outlier β."""
    point = Collapse(classes, 1, 1, classes, alpha)
    spectrum = point.layer_spectrum(1)
    rows = zip(
        spectrum.values / point.levels[0], spectrum.multiplicities, spectrum.labels, strict=True
    )
    kinds = {"top": 0, "class": 0, "mini-bulk": 1, "zero": 2}
    found = [(float(v), int(count), kinds[label]) for v, count, label in rows if count]
    found.sort(key=lambda entry: -entry[0])
    return {
        "x": counted(100, 1, 10, 100),
        "y": axis("eigenvalue / β", -0.1, 1.4, (0, 0.2, 0.4, 0.6, 0.8, 1, 1.2)),
        "marks": bars(found),
        "text": f"{classes} classes, logit scale {short(alpha)}: {words(found)}, in units of β.",
    }


FIGURES = {
    "gap": Figure(
        gap,
        (
            Slider("depth", "Depth", 2, 8, 1, 3, "{} layers"),
            Slider("step", "Training", 0, 200, 1, 200, "{} steps"),
        ),
        "The gap is the depth. The large eigenvalues (purple) settle at as many times the bulk "
        "(orange) as the network has layers; all others go to zero (green).",
        "Drag the depth from 2 to 8: purple follows the dashed line, orange stays at 1.",
        play=True,
    ),
    "two-cycle": Figure(
        two_cycle,
        (
            Slider("ratio", "Step", 0.8, 1.2, 0.005, 1.1, "{} × the edge"),
            Slider("depth", "Depth", 2, 5, 1, 3, "{} layers"),
        ),
        "Beyond the edge descent does not diverge, it swings. Dots are gradient descent on one "
        "balanced mode, dashed lines the closed form of its two-cycle.",
        "Drag the step past 1 × the edge: one value becomes two.",
    ),
    "rotating": Figure(
        rotating,
        (
            Slider("ratio", "Step", 1.002, 1.25, 0.002, 1.06, "{} × the edge of the pair"),
            Slider("second", "Second target", 0.5, 0.99, 0.01, 0.9),
        ),
        "Two modes can swing their directions instead of their sizes. The images of the two "
        "inputs in the two states of the rotating cycle (purple, orange), and the target "
        "(dashed). The cycle repels: descent never settles on it.",
        "Raise the step: the two states turn away from the target and from each other.",
    ),
    "one-bulk": Figure(
        one_bulk,
        (
            Slider("target", "Target", -3, 3, 0.05, 2),
            Slider("width", "Hidden width", 1, 100, 1, 40),
        ),
        "One residual, one bulk. All eigenvalues but two are plus or minus the covariance of "
        "input and residual, at any width.",
        "Find the target at which the bulk is zero: there, the residual is zero too.",
    ),
    "collapse": Figure(
        collapse,
        (
            Slider("strength", "Regulariser", 0.02, 0.98, 0.01, 0.3, "{} × the threshold"),
            Slider("depth", "Depth", 1, 6, 1, 3, "{} layers"),
        ),
        "At collapse the whole spectrum is known. Nine dominant eigenvalues for three classes, "
        "one bulk for the samples within them, and the rest at 0, λ and 2λ.",
        "Raise the regulariser: the outputs fall short of their targets, and the dominant "
        "eigenvalues split.",
    ),
    "sink": Figure(
        sink,
        (Slider("strength", "Sink", 0, 8, 0.1, 0, "{} added to every first score"),),
        "A sink flattens the loss. The more attention goes to the first token, the closer the "
        "bulk (orange) and two of the outliers (purple) come to zero.",
        "Drag the sink to the right until the first token has all the attention: one outlier "
        "is left.",
    ),
    "chain": Figure(
        chain,
        (
            Slider("step", "Training", 0, 320, 1, 320, "{} steps"),
            Slider("depth", "Depth", 2, 5, 1, 3, "{} layers"),
        ),
        "Four eigenvalues sit at the depth. Early on the spectrum has both signs; at the end four "
        "(purple) are at the depth, a bulk (orange) is at one, the rest (green) at zero.",
        "Drag the training back to 0 and press Play; then try another depth.",
        play=True,
    ),
    "film": Figure(
        film,
        (
            Slider("step", "Training", 0, 60, 1, 60, "{} steps"),
            Slider("depth", "Depth", 2, 5, 1, 3, "{} layers"),
        ),
        "Training sorts the spectrum. Every distinct eigenvalue at every step, coloured by block: "
        "purple inside the signal space, orange on its edge, green outside.",
        "Drag the training back to 0 and press Play; then compare depth 2 with depth 5.",
        play=True,
    ),
    "stretch": Figure(
        stretch,
        (
            Slider("factor", "Stretch", 1, 3, 0.01, 2, "{} ×"),
            Slider("depth", "Depth", 2, 5, 1, 3, "{} layers"),
        ),
        "The same function has many spectra. White data, unit target; only the scales of the first "
        "and the last layer change. Balance, at the left end, has one bulk and a gap of exactly L.",
        "Drag the stretch back to 1: the two bulks join, and purple falls to the depth.",
    ),
    "cobweb": Figure(
        cobweb,
        (Slider("ratio", "Step", 0.9, 1.5, 0.005, 1.1, "{} × the edge"),),
        "The step size alone decides where a mode ends. Purple: forty steps, as a cobweb between "
        "the graph of one step (orange) and the diagonal (dashed); dots: the last eight. Depth 3.",
        "Below the edge the web ends in a point, beyond it in a square; at 1.26 × the edge in two, "
        "and at 1.35 × the edge it does not end.",
    ),
    "breathing": Figure(
        breathing,
        (Slider("ratio", "Step", 0.9, 1.5, 0.005, 1.15, "{} × the edge"),),
        "The spectrum breathes with the orbit. Each column has all Hessian eigenvalues after one "
        "more step; purple ones lie above 2/η (dashed). High and low phases take turns.",
        "Drag the step from 0.9 × the edge to 1.5: more and more eigenvalues cross the dashed "
        "line in turn.",
    ),
    "phases": Figure(
        phases,
        (
            Slider("a", "Weight a", -1.7, 1.7, 0.05, 0.8),
            Slider("b", "Weight b", -1.7, 1.7, 0.05, 0.8),
        ),
        "The second outlier is positive in the late phase only. Best slope 1, width 4: two "
        "outliers (purple), and a bulk (orange) of three eigenvalues on either side of zero. "
        "Lines: all values of a; dots: the weights that you chose.",
        "Keep b and move a through ab = 1/3 and ab = 1: there the second outlier changes its sign.",
    ),
    "cells": Figure(
        cells,
        (
            Slider("neurons", "Neurons", 0, 10, 1, 6, "{} of 10 in the plus cell"),
            Slider("share", "Samples", 0, 40, 1, 20, "{} of 40 in the plus cell"),
        ),
        "The cell that owns neurons and data owns the spectrum. Each cell of a ReLU network has "
        "two outliers (purple) and a bulk (orange). Choose how many neurons and samples are in the "
        "plus cell.",
        "Give all samples to the plus cell: the minus cell falls to zero.",
    ),
    "knobs": Figure(
        knobs,
        (
            Slider("norm", "Norms", 0.5, 2, 0.01, 1),
            Slider("value", "Value", 0.5, 1, 0.01, 1),
            Slider("strength", "Sink", 0, 8, 0.1, 0, "{} added to every first score"),
        ),
        "Three knobs, one spectrum. The norms of query and key stretch the outliers (purple); the "
        "value stretches everything, the bulk (orange) included; a strong sink leaves one "
        "eigenvalue, the square of the first token, and nothing else.",
        "Take the sink to 8, then move the other two: one eigenvalue is left, and they hardly move "
        "it.",
    ),
    "fold": Figure(
        fold,
        (
            Slider("share", "λ", 0.02, 0.98, 0.01, 0.3, "{} of its largest value"),
            Slider("depth", "Depth", 1, 5, 1, 3, "{} layers"),
        ),
        "Outliers stand clear exactly while C is above one half. Eigenvalues in units of λ: "
        "outliers (purple), within the classes (orange), balance at 2 and idle directions at 1 "
        "(green). Dashed: where C is one half, and the threshold (P17), beyond which the point is "
        "only a local minimum.",
        "Drag λ to the right until the lower purple curve falls below the green line at 2.",
    ),
    "confidence": Figure(
        confidence,
        (
            Slider("alpha", "Logit scale α", 0.1, 8, 0.05, 2),
            Slider("classes", "Classes K", 2, 6, 1, 4),
        ),
        "Confidence makes the mini-bulk. Eigenvalues of one layer, divided by the largest, β: from "
        "one level near α = 0 to the three levels 1, (K − 1)/K and 1/K of Theorem 9. Purple: top "
        "and class; orange: mini-bulk; green: zero.",
        "Drag α from 0.1 to 8: one level becomes three.",
    ),
    "hero": Figure(
        hero,
        (
            Slider("eta", "Step size η", 0.1, 0.85, 0.01, 0.55),
            Slider("step", "Training", 0, 120, 1, 120, "{} steps"),
        ),
        "Every eigenvalue of a network's Hessian, while it trains. Dominant (purple), bulk "
        "(orange), zero (green), and the edge 2/η (dashed).",
        "Raise the step size until the largest meet the dashed edge: they begin to swing.",
        play=True,
    ),
}
