"""`{live-figure} gap`: a figure that a reader's hand moves; `{laboratory}`: all knobs on one page.

A figure is a function from the values of its sliders to a *frame*, the numbers that are drawn. The
script computes frames in the page (book/web/live.js); the functions below compute the same ones
with the package. The first frame is drawn here, so that the figure is on the page before any script
runs, in print, and where there is none; a test compares many others with those of the script.

The modules of book/web are joined into one plain script, which also works from a disk: browsers do
not load modules from there.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from exacthessian import AlignedChain, mode
from exacthessian.attention import ScalarAttention
from exacthessian.scalar import TwoLayer
from exacthessian.studies.depth_not_data import membership
from exacthessian.ufm import DeepLinearUFM, threshold

Frame = dict[str, Any]
Points = list[tuple[float, float]]
SCRIPT = "live-figures.js"
MODULES = ("spectrum.js", "live.js", "lab.js")
KINDS = ("dominant", "bulk", "zero", "plain")
WIDTH, LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 640, 62, 14, 14, 46, 300
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
    """A live figure: its frames, its knobs, and what its caption says."""

    frame: Callable[..., Frame]
    sliders: tuple[Slider, ...]
    caption: str
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
    return "0" if abs(value) < 5e-7 else f"{value:.4g}".replace("-", "−")


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
            where = f"at {top}" if len(mine) == 1 else f"from {low} to {top}"
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
        "text": f"At {short(ratio)} times the edge the layers "
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
        f"{short(second)}, and a bulk of {copies} at {short(d)} and {copies} at {short(-d)}.",
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


def hero(step: int, eta: float) -> Frame:
    """Eigenvalues sort into three colours while a network trains."""
    layers, target = [0.55, 0.5, 0.45], [1, 0.95, 0.9]
    chain = AlignedChain.balanced((6, 7, 7, 5), layers, target=target)
    points: tuple[Points, Points, Points] = ([], [], [])
    for t in range(step + 1):
        found = clusters(chain)
        for value, _, kind in found:
            points[kind].append((t, value))
        chain = chain.step(eta)
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


FIGURES = {
    "gap": Figure(
        gap,
        (
            Slider("depth", "Depth", 2, 8, 1, 3, "{} layers"),
            Slider("step", "Training", 0, 200, 1, 200, "{} steps"),
        ),
        "The gap is the depth. The large eigenvalues (purple) settle at as many times the bulk "
        "(orange) as the network has layers; all others go to zero (green).",
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
    ),
    "one-bulk": Figure(
        one_bulk,
        (
            Slider("target", "Target", -3, 3, 0.05, 2),
            Slider("width", "Hidden width", 1, 100, 1, 40),
        ),
        "One residual, one bulk. All eigenvalues but two are plus or minus the covariance of "
        "input and residual, at any width.",
    ),
    "collapse": Figure(
        collapse,
        (
            Slider("strength", "Regulariser", 0.02, 0.98, 0.01, 0.3, "{} × the threshold"),
            Slider("depth", "Depth", 1, 6, 1, 3, "{} layers"),
        ),
        "At collapse the whole spectrum is known. Nine dominant eigenvalues for three classes, "
        "one bulk for the samples within them, and the rest at 0, λ and 2λ.",
    ),
    "sink": Figure(
        sink,
        (Slider("strength", "Sink", 0, 8, 0.1, 0, "{} added to every first score"),),
        "A sink flattens the loss. The more attention goes to the first token, the closer the "
        "bulk (orange) and two of the outliers (purple) come to zero.",
    ),
    "hero": Figure(
        hero,
        (
            Slider("eta", "Step size η", 0.1, 0.85, 0.01, 0.3),
            Slider("step", "Training", 0, 120, 1, 120, "{} steps"),
        ),
        "Every eigenvalue of a network's Hessian, while it trains. Raise the step size until the "
        "largest meet the dashed edge: they begin to swing.",
        play=True,
    ),
}
PRESETS = {
    "The gap": {"steps": "200"},
    "Data hide it": {"data": "1*4,3*6", "steps": "200"},
    "Catapult": {
        **{"widths": "1,20,1", "layers": "3;0.3", "data": "1", "target": "1"},
        **{"eta": "0.25", "steps": "0"},
    },
    "Two-cycle": {
        **{"widths": "4,4,4,4", "layers": "0.9,0", "data": "1*4", "target": "1"},
        **{"eta": "0.733", "steps": "60"},
    },
    "Who oscillates?": {
        **{"widths": "4,4,4,4", "layers": "0.9*3", "data": "1*4", "target": "1,0.9,0.8"},
        **{"eta": "0.72", "steps": "60"},
    },
    "Collapse": {
        **{"widths": "15,8,8,8,3", "layers": "1*3", "data": f"{1 / 15}*15"},
        **{"target": f"{1 / (3 * 5**0.5)}*3", "ridge": "0.018", "eta": "1", "steps": "300"},
    },
    "A million": {
        **{"widths": "577,577,577,577", "layers": "0.5~1.5*577", "data": "1*577"},
        **{"target": "2~0.5*20", "steps": "0"},
    },
}


def svg(frame: Frame) -> str:
    """The inside of the SVG of a frame, as `drawing` in live.js writes it."""
    x = _place(frame["x"], LEFT, WIDTH - RIGHT)
    y = _place(frame["y"], HEIGHT - BOTTOM, TOP)
    end, foot = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for value, label in frame["y"]["ticks"]:
        parts.append(f'<path class="eh-grid" d="M{LEFT} {y(value):.1f}H{end}"/>')
        parts.append(_text(LEFT - 8, y(value) + 4, "end", label))
    for value, label in frame["x"]["ticks"]:
        parts.append(f'<path class="eh-grid" d="M{x(value):.1f} {TOP}V{foot}"/>')
        parts.append(_text(x(value), foot + 18, "middle", label))
    parts.append(_text((LEFT + end) / 2, HEIGHT - 6, "middle", frame["x"]["label"]))
    parts.append(
        f'<text transform="translate(15 {(foot + TOP) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(frame['y']['label'])}</text>"
    )
    low, high, most = frame["y"]["from"], frame["y"]["to"], frame["x"]["to"]
    for drawn in frame["marks"]:
        shape, points = drawn["as"], drawn["points"]
        if shape != "line":
            points = [(at, v) for at, v in points if low <= v <= high and at <= most]
        if not points:
            continue
        first = points[0]
        path = {
            "bar": "".join(f"M{LEFT} {y(v):.1f}H{x(at):.1f}" for at, v in points),
            "dot": "".join(f"M{x(at):.1f} {y(v):.1f}h0" for at, v in points),
            "line": "M" + "L".join(f"{x(at):.1f} {y(v):.1f}" for at, v in points),
            "level": f"M{LEFT} {y(first[1]):.1f}H{end}",
        }[shape]
        parts.append(f'<path class="eh-{shape} eh-{KINDS[drawn["kind"]]}" d="{path}"/>')
        if drawn["label"]:
            parts.append(_text(end, y(first[1]) - 6, "end", drawn["label"], ' class="eh-label"'))
    return "".join(parts)


def _place(along: Frame, low: float, high: float) -> Callable[[float], float]:
    scale: Callable[[float], float] = (lambda v: float(np.log10(v))) if along["log"] else float
    start, end = scale(along["from"]), scale(along["to"])
    return lambda value: low + (high - low) * (scale(value) - start) / (end - start)


def _text(x: float, y: float, anchor: str, text: str, more: str = "") -> str:
    return f'<text{more} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def knob(figure: str, slider: Slider) -> str:
    """A labelled slider with its value in words."""
    id = f"live-{figure}-{slider.name}"
    said = slider.said.replace("{}", short(slider.value))
    return (
        f'<div class="eh-knob"><label for="{id}">{slider.label}</label>'
        f'<input type="range" id="{id}" name="{slider.name}" min="{slider.least}" '
        f'max="{slider.most}" step="{slider.by}" value="{slider.value}" '
        f'data-text="{escape(slider.said)}" aria-valuetext="{escape(said)}">'
        f'<output for="{id}">{escape(said)}</output></div>'
    )


def figure_html(name: str, caption: str = "") -> str:
    """A live figure as it stands on the page before its script runs."""
    figure = FIGURES[name]
    frame = figure.frame(**{slider.name: slider.value for slider in figure.sliders})
    message, _, rest = (caption or figure.caption).partition(". ")
    play = '<button type="button" class="eh-play" hidden>Play</button>' if figure.play else ""
    return (
        f'<figure class="eh-live" id="live-{name}" data-figure="{name}">'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="live-{name}-title" '
        f'aria-describedby="live-{name}-text"><title id="live-{name}-title">{escape(message)}'
        f"</title>{svg(frame)}</svg>"
        f'<div class="eh-knobs" data-script hidden>{"".join(knob(name, s) for s in figure.sliders)}'
        f"{play}</div>"
        f'<p class="eh-live-text" id="live-{name}-text" aria-live="polite">{escape(frame["text"])}'
        f"</p><figcaption><strong>{escape(message)}.</strong> {escape(rest)} "
        f'<a class="headerlink" href="#live-{name}" title="Link to this figure">#</a>'
        f"</figcaption></figure>"
    )


class LiveFigure(SphinxDirective):
    """A figure with knobs; its argument is its name, its content an own caption if there is one."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """The figure; a name that is wrong stops the build."""
        name = self.arguments[0]
        if name not in FIGURES:
            raise self.error(f"live-figure: must be one of {', '.join(FIGURES)}, got {name!r}")
        html = figure_html(name, " ".join(self.content).strip())
        return [nodes.raw("", html, format="html", classes=["eh-live-node"])]


class Laboratory(SphinxDirective):
    """All knobs of an aligned chain."""

    def run(self) -> list[nodes.Node]:
        """The laboratory as it stands on the page before its script runs."""
        page = (Path(__file__).parents[1] / "web" / "lab.html").read_text(encoding="utf-8")
        links = "".join(
            f'<a class="eh-preset" href="#{address(preset)}">{escape(name)}</a>'
            for name, preset in PRESETS.items()
        )
        html = page.replace("<!-- presets -->", links)
        return [nodes.raw("", html, format="html", classes=["eh-live-node"])]


def address(preset: dict[str, str]) -> str:
    """A state as the laboratory reads it from the address, which may be any element's name.

    >>> address({"layers": "1*3", "steps": "5"})
    'lab-layers_3d1_2a3_26steps_3d5'
    """
    text = "&".join(f"{name}={value}" for name, value in preset.items())
    return "lab-" + re.sub("[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):02x}", text)


def bundle(web: Path) -> str:
    """The modules as one plain script: everything of the first in a function, of which a worker is
    made too; imports become local names.
    """
    texts = [(web / module).read_text(encoding="utf-8") for module in MODULES]
    public = re.findall(r"^export (?:function|const) (\w+)", texts[0], flags=re.M)
    texts = [re.sub(r"^(import .*?;\n|export )", "", text, flags=re.M) for text in texts]
    return (
        f"(() => {{\nfunction model() {{\n{texts[0]}\nreturn {{ {', '.join(public)} }};\n}}\n"
        f"const S = model();\n{texts[1]}\n{texts[2]}\n"
        "const source = `const S = (${model})(); onmessage = ({ data }) => {"
        " postMessage(S.spectrum(data)); };`;\n"
        "const worker = () => new Worker("
        'URL.createObjectURL(new Blob([source], { type: "text/javascript" })));\n'
        'document.querySelectorAll(".eh-live").forEach(enliven);\n'
        'const lab = document.querySelector(".eh-lab");\n'
        "if (lab) window.laboratory = laboratory(lab, worker);\n})();\n"
    )


def add_script(app: Sphinx, page: str, template: str, context: Any, doctree: Any) -> None:
    """Load the script on pages that have something live."""
    if doctree is not None and any(
        "eh-live-node" in node.get("classes", []) for node in doctree.findall(nodes.raw)
    ):
        app.add_js_file(SCRIPT, loading_method="defer")


def write_script(app: Sphinx, error: Exception | None) -> None:
    """Put the joined script and what the figures may be into the site."""
    if error is None and app.builder.format == "html":
        static = Path(app.outdir) / "_static"
        text = bundle(Path(app.confdir) / "book" / "web")
        (static / SCRIPT).write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_directive("live-figure", LiveFigure)
    app.add_directive("laboratory", Laboratory)
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
