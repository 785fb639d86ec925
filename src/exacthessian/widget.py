"""Figures under a reader's hand: HTML that a script in the browser moves.

A page of the built book has that script, and no kernel behind it. In a live notebook the same
figure is an anywidget, and the kernel knows where its knobs are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from importlib.resources import files
from typing import Any

from exacthessian.live import is_live

SCRIPT = "data/live_figures.json"  # derived from book/web by tools/live_script.py


@dataclass(frozen=True, repr=False)
class Moving:
    """A figure as HTML, `markup`, and in words.

    >>> Moving("<figure></figure>", "A figure.")._repr_mimebundle_()
    {'text/plain': 'A figure.', 'text/html': '<figure></figure>'}
    """

    markup: str
    words: str

    def __repr__(self) -> str:
        return self.words

    def _repr_mimebundle_(self, **wanted: Any) -> Any:
        if is_live():
            return self.widget._repr_mimebundle_(**wanted)
        return {"text/plain": self.words, "text/html": self.markup}

    @cached_property
    def widget(self) -> Any:
        """The figure as an anywidget, whose `knobs` say where a reader has moved them."""
        return _widget_class()(markup=self.markup)


def live_figure(name: str, **knobs: float) -> Moving:
    """A figure of the book that computes in the browser, with its knobs at the given values.

    >>> live_figure("gap", depth=5)
    live_figure('gap', depth=5)
    """
    known = _parts()["figures"]
    if name not in known:
        raise ValueError(f"name must be one of {', '.join(known)}, got {name!r}")
    if strange := [knob for knob in knobs if f'name="{knob}"' not in known[name]]:
        raise ValueError(f"knobs must be those of the figure {name}, got {strange[0]}")
    state = escape(json.dumps(knobs))
    said = ", ".join([repr(name), *(f"{knob}={value}" for knob, value in knobs.items())])
    markup = known[name].replace(" data-figure", f' data-state="{state}" data-figure', 1)
    return Moving(markup, f"live_figure({said})")


def flip_book(frames: Sequence[str], axes: Mapping[str, Sequence[object]], caption: str) -> Moving:
    """Pictures behind sliders: `frames` are <img> elements, one for each combination of the
    positions on the `axes`, the last axis fastest; all but the first are hidden.

    >>> print(flip_book(["<img a>", "<img b>"], {"n": [1, 2]}, "It moves. See?").markup[53:141])
    <div class="eh-frame"><img a></div><div class="eh-frame" hidden><img b></div><div class=
    """
    message, _, rest = caption.partition(". ")
    slug = "-".join("".join(c if c.isalnum() else " " for c in message.lower()).split())
    pictures = "".join(
        f'<div class="eh-frame"{" hidden" * (n > 0)}>{frame}</div>'
        for n, frame in enumerate(frames)
    )
    sliders = "".join(
        f'<div class="eh-knob"><label for="live-{slug}-{n}">{escape(label)}</label><input '
        f'type="range" id="live-{slug}-{n}" min="0" max="{len(values) - 1}" value="0" '
        f'data-values="{escape(json.dumps([str(value) for value in values]))}">'
        f'<output for="live-{slug}-{n}">{escape(str(values[0]))}</output></div>'
        for n, (label, values) in enumerate(axes.items())
    )
    markup = (
        f'<figure class="eh-live eh-frames" id="live-{slug}">{pictures}'
        f'<div class="eh-knobs" data-script hidden>{sliders}</div>'
        '<p class="eh-live-text" aria-live="polite"></p>'
        f"<figcaption><strong>{escape(message)}.</strong> {escape(rest)} "
        f'<a class="headerlink" href="#live-{slug}" title="Link to this figure">#</a>'
        "</figcaption></figure>"
    )
    return Moving(markup, caption)


@cache
def _widget_class() -> Any:
    """The class of the widgets; only a live notebook needs what it is made of."""
    import anywidget
    import traitlets

    class Widget(anywidget.AnyWidget):
        """A live figure with its script and its style."""

        _esm, _css = _parts()["module"], _parts()["style"]
        markup = traitlets.Unicode().tag(sync=True)
        knobs = traitlets.Dict().tag(sync=True)

    return Widget


@cache
def _parts() -> dict[str, Any]:
    """The script, the style and the markup of every live figure."""
    text = files("exacthessian").joinpath(SCRIPT).read_text(encoding="utf-8")
    parts: dict[str, Any] = json.loads(text)
    return parts
