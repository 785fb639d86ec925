"""`{live-figure} gap`: a figure that a reader's hand moves; `{laboratory}`: all knobs on one page.

A figure is a function from the values of its sliders to a *frame*, the numbers that are drawn. The
script computes frames in the page (book/web/live.js); the functions below compute the same ones
with the package. The first frame is drawn here, so that the figure is on the page before any script
runs, in print, and where there is none; a test compares many others with those of the script.

The modules of book/web are joined into one plain script, which also works from a disk: browsers do
not load modules from there.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape, unescape
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import pictures
from live_frames import FIGURES, KINDS, Frame, Slider, short

SCRIPT = "live-figures.js"
MODULES = ("spectrum.js", "live.js", "lab.js")
WIDTH, LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 640, 62, 14, 14, 46, 300
MODULE_WORDS = re.compile(r"^(import .*?;\n|export )", re.M)
FROM_CELL = re.compile(
    r'<figure class="eh-live" id="[^"]*" data-state="([^"]*)" data-figure="([^"]*)"'
)
UNDRAWN = "Run this cell to see the figure, and to move it."
FRAME = re.compile(r'src="data:image/svg\+xml;base64,([^"]*)">')
# In a notebook: the rules that the site has in exact-hessian.css, for figures alone.
NOTEBOOK_STYLE = """
.eh-live { margin: 0; max-width: 50rem; color: var(--jp-content-font-color1, #222);
  accent-color: #87238b; --eh-dominant: #87238b; --eh-bulk: #a36a00; --eh-zero: #00704f; }
[data-jp-theme-light="false"] .eh-live {
  --eh-dominant: #c07bff; --eh-bulk: #ffc65a; --eh-zero: #32c87c; }
.eh-live svg { display: block; width: 100%; height: auto; overflow: visible; }
.eh-live svg text { font-size: 14px; fill: currentColor; }
.eh-live svg path { fill: none; stroke: var(--ink); }
.eh-live .eh-dominant { --ink: var(--eh-dominant); }
.eh-live .eh-bulk { --ink: var(--eh-bulk); }
.eh-live .eh-zero { --ink: var(--eh-zero); }
.eh-live :is(.eh-plain, .eh-grid) { --ink: currentColor; }
.eh-live .eh-grid { stroke-opacity: 0.15; }
.eh-live .eh-bar { stroke-width: 6; }
.eh-live .eh-dot { stroke-width: 5; stroke-linecap: round; }
.eh-live .eh-tick { stroke-width: 3; }
.eh-live .eh-line { stroke-width: 1.5; }
.eh-live :is(.eh-level, .eh-line.eh-plain) { stroke-width: 1.5; stroke-dasharray: 6 5; }
.eh-live .eh-frame img { max-width: 100%; height: auto; background: #fff; }
.eh-live .eh-knobs { display: flex; flex-wrap: wrap; gap: 0 1.5rem; }
.eh-live .eh-knob { display: flex; flex: 1 1 18rem; align-items: center; gap: 0.6rem; }
.eh-live .eh-knob input { flex: 1; height: 44px; }
.eh-live .eh-knob output { min-width: 7rem; }
.eh-live button { min-height: 44px; min-width: 44px; }
.eh-live [hidden], .eh-live .headerlink { display: none; }
"""
# In a notebook: the figure, and its knobs known to the kernel.
WIDGET = """export default { render({ model, el }) {
  el.innerHTML = model.get("markup");
  const knobs = [...el.querySelectorAll("input")];
  for (const control of el.querySelectorAll("input, button"))
    control.dataset.lmSuppressShortcuts = "true"; // its keys are not JupyterLab's
  const tell = () => {
    model.set("knobs", Object.fromEntries(knobs.map((knob) => [knob.name, Number(knob.value)])));
    model.save_changes();
  };
  el.querySelectorAll(".eh-live").forEach(enliven);
  knobs.forEach((knob) => knob.addEventListener("input", tell));
  tell();
} };"""
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
# Findings about other models than the chain: figures of their own.
ELSEWHERE = {
    "Attention sink": "#live-sink-strength_3d4",
    "Rotating cycle": "beyond_edge_of_stability.html#live-rotating",
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

    def inside(point: tuple[float, float]) -> bool:
        return low <= point[1] <= high and point[0] <= most

    for drawn in frame["marks"]:
        shape, points = drawn["as"], drawn["points"]
        pieces = [list(piece) for seen, piece in groupby(points, inside) if seen]
        points = [point for piece in pieces for point in piece]
        if not points:
            continue
        first = points[0]
        path = {
            "bar": "".join(f"M{LEFT} {y(v):.1f}H{x(at):.1f}" for at, v in points),
            "dot": "".join(f"M{x(at):.1f} {y(v):.1f}h0" for at, v in points),
            "tick": "".join(f"M{x(at) - 9:.1f} {y(v):.1f}h18" for at, v in points),
            "line": "".join(
                "M" + "L".join(f"{x(at):.1f} {y(v):.1f}" for at, v in piece) for piece in pieces
            ),
            "level": f"M{LEFT} {y(first[1]):.1f}H{end}",
        }[shape]
        parts.append(f'<path class="eh-{shape} eh-{KINDS[drawn["kind"]]}" d="{path}"/>')
        if drawn["label"]:
            place = end if shape == "level" else x(first[0]) - 8
            parts.append(_text(place, y(first[1]) - 6, "end", drawn["label"], ' class="eh-label"'))
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


def figure_html(name: str, state: dict[str, float] | None = None, drawn: bool = True) -> str:
    """A live figure as it stands on the page before its script runs; not `drawn`, without SVG."""
    figure = FIGURES[name]
    sliders = [replace(s, value=(state or {}).get(s.name, s.value)) for s in figure.sliders]
    frame = figure.frame(**{s.name: s.value for s in sliders}) if drawn else {"text": UNDRAWN}
    message, _, rest = figure.caption.partition(". ")
    play = '<button type="button" class="eh-play" hidden>Play</button>' if figure.play else ""
    return (
        f'<figure class="eh-live" id="live-{name}" data-figure="{name}">'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="live-{name}-title" '
        f'aria-describedby="live-{name}-text"><title id="live-{name}-title">{escape(message)}'
        f"</title>{svg(frame) if drawn else ''}</svg>"
        f'<div class="eh-knobs" data-script hidden>{"".join(knob(name, s) for s in sliders)}'
        f"{play}</div>"
        f'<p class="eh-live-text" id="live-{name}-text" aria-live="polite">{escape(frame["text"])}'
        f"</p><figcaption><strong>{escape(message)}.</strong> {escape(rest)} "
        f'<span class="eh-try" data-script hidden><strong>Try:</strong> {escape(figure.hint)}'
        f"</span> "
        f'<a class="headerlink" href="#live-{name}" title="Link to this figure">#</a>'
        f"</figcaption></figure>"
    )


def notebook_parts(web: Path) -> dict[str, Any]:
    """What a notebook needs to show any live figure: script, style, and the figures not drawn."""
    return {
        "module": f"{joined(web, MODULES[:2])}\n{WIDGET}",
        "style": NOTEBOOK_STYLE,
        "figures": {name: figure_html(name, drawn=False) for name in FIGURES},
    }


class LiveFigure(SphinxDirective):
    """A figure with knobs on a page that is no notebook; its argument is its name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The figure; a name that is wrong stops the build."""
        name = self.arguments[0]
        if name not in FIGURES:
            raise self.error(f"live-figure: must be one of {', '.join(FIGURES)}, got {name!r}")
        return [nodes.raw("", figure_html(name), format="html", classes=["eh-live-node"])]


class Laboratory(SphinxDirective):
    """All knobs of an aligned chain."""

    def run(self) -> list[nodes.Node]:
        """The laboratory as it stands on the page before its script runs."""
        page = (Path(__file__).parents[1] / "web" / "lab.html").read_text(encoding="utf-8")
        links = "".join(
            f'<a class="eh-preset" href="#{address(preset)}">{escape(name)}</a>'
            for name, preset in PRESETS.items()
        )
        links += "".join(
            f'<a class="eh-preset" href="{place}">{name}</a>' for name, place in ELSEWHERE.items()
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


def joined(web: Path, modules: tuple[str, ...]) -> str:
    """Modules as one piece of a plain script: everything of the first in a function, of which a
    worker is made too; imports become local names.
    """
    first, *others = ((web / module).read_text(encoding="utf-8") for module in modules)
    public = re.findall(r"^export (?:function|const) (\w+)", first, flags=re.M)
    first, *others = (MODULE_WORDS.sub("", text) for text in (first, *others))
    model = f"function model() {{\n{first}\nreturn {{ {', '.join(public)} }};\n}}"
    return "\n".join([model, "const S = model();", *others])


def bundle(web: Path) -> str:
    """The script of the site."""
    return (
        f"(() => {{\n{joined(web, MODULES)}\n"
        "const source = `const S = (${model})(); onmessage = ({ data }) => {"
        " postMessage(S.spectrum(data)); };`;\n"
        "const worker = () => new Worker("
        'URL.createObjectURL(new Blob([source], { type: "text/javascript" })));\n'
        'document.querySelectorAll(".eh-live").forEach(enliven);\n'
        'const lab = document.querySelector(".eh-lab");\n'
        "if (lab) window.laboratory = laboratory(lab, worker);\n})();\n"
    )


def moving(doctree: nodes.document) -> list[nodes.raw]:
    """The live figures of a page: what our directives wrote, and what its cells show."""
    return [node for node in doctree.findall(nodes.raw) if 'class="eh-l' in node.astext()]


def draw_cells(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Draw the first frame of the figures that cells show; of a flip-book, put every picture into
    a file, which the browser fetches when a reader comes to it.
    """
    folder, up = Path(app.outdir) / "_images", "../" * docname.count("/")

    def kept(found: re.Match[str]) -> str:
        picture = pictures.Picture(base64.b64decode(found[1]).decode())
        folder.mkdir(exist_ok=True)
        picture.write(folder)
        table = pictures.link(f"{up}_images/", picture.name) if picture.table else ""
        return f'src="{up}_images/{picture.name}.svg">{table}'

    for node in moving(doctree):
        if made := FROM_CELL.match(node.astext()):
            html = figure_html(made[2], json.loads(unescape(made[1])))
            cell = next(n for n in ancestors(node) if n.get("nb_element") == "cell_code")
            cell.replace_self(nodes.raw("", html, format="html", classes=["eh-live-node"]))
        else:
            node.replace_self(nodes.raw("", FRAME.sub(kept, node.astext()), format="html"))


def ancestors(node: nodes.Node) -> Iterator[nodes.Element]:
    """What a node is in, from the inside out."""
    while node.parent is not None:
        node = node.parent
        yield node


def add_script(app: Sphinx, page: str, template: str, context: Any, doctree: Any) -> None:
    """Load the script on pages that have something live."""
    if doctree is not None and moving(doctree):
        app.add_js_file(SCRIPT, loading_method="defer")


def write_script(app: Sphinx, error: Exception | None) -> None:
    """Put the joined script into the site."""
    if error is None and app.builder.format == "html":
        text = bundle(Path(app.confdir) / "book" / "web")
        (Path(app.outdir) / "_static" / SCRIPT).write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_directive("live-figure", LiveFigure)
    app.add_directive("laboratory", Laboratory)
    app.connect("doctree-resolved", draw_cells)
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
