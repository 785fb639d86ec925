"""Figures that move: the same script in a notebook as in the page, with a kernel or without."""

import json

import ipywidgets
import pytest

import live_frames
import live_script
from conftest import ROOT
from exacthessian import widget


def test_what_the_package_shows_is_made_from_the_scripts_of_the_book():
    told = "run `python tools/live_script.py`"
    assert live_script.PLACE.read_text(encoding="utf-8") == live_script.text(), told


def test_a_notebook_gets_a_widget_and_a_page_does_not(monkeypatch):
    figure = widget.live_figure("gap", depth=5)
    assert figure._repr_mimebundle_() == {"text/plain": repr(figure), "text/html": figure.markup}
    monkeypatch.setattr(widget, "is_live", lambda: True)
    shown, _ = figure._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert isinstance(figure.widget, ipywidgets.DOMWidget)
    assert "diagonalise" in figure.widget._esm
    assert figure.widget.markup == figure.markup


def test_every_figure_is_known_with_its_knobs():
    for name, figure in live_frames.FIGURES.items():
        knobs = {slider.name: slider.most for slider in figure.sliders}
        assert json.dumps(knobs).replace('"', "&quot;") in widget.live_figure(name, **knobs).markup


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"name": "gaps"}, "name must be one of gap, "), ({"name": "gap", "width": 3}, "got width")],
)
def test_what_is_not_there_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        widget.live_figure(**arguments)


def test_no_page_shows_what_its_notebook_can_not():
    """On a page that is a notebook a live figure is a cell, so that JupyterLab shows it too."""
    for page in (ROOT / "book").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert "kernelspec:" not in text or "{live-figure}" not in text, page
