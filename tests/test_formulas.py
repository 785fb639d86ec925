"""Formulas that are typeset when the site is built."""

import re
import subprocess

import pytest
from bs4 import BeautifulSoup

import formulas
from conftest import ROOT

PAGE = r"""<head><title>\(a\)</title></head><p>For \(a&lt;\R\) and \(a\):</p>
<div class="math">\[\frac{a}{b}\]</div><pre>\(a\)</pre>"""
MATHJAX = ROOT / "vendor" / "mathjax"


@pytest.fixture
def typesetter(tmp_path):
    tex = {"macros": {"R": r"\mathbb{R}"}}
    return formulas.Typesetter(MATHJAX, tmp_path / "formulas.json", tex)


def test_a_page_gets_its_formulas_and_can_give_them_back(typesetter):
    assert typesetter.learn(formulas.formulas_in(PAGE)) == {}
    made = typesetter.typeset(PAGE)
    page = BeautifulSoup(made, "html.parser")
    assert [one["data-tex"] for one in page.find_all("mjx-container")] == [
        r"a<\R",
        "a",
        r"\frac{a}{b}",
    ]
    assert [one.get_text() for one in page.find_all("math")] == ["a<R", "a", "ab"]
    assert [one.get("display") for one in page.find_all("mjx-container")] == [None, None, "true"]
    assert all(one["aria-hidden"] == "true" for one in page.find_all("svg"))
    assert page.find("pre").get_text() == page.find("title").get_text() == r"\(a\)"
    assert formulas.with_tex(made) == PAGE


def test_a_letter_is_drawn_once_on_a_page_and_each_time_where_it_may_be_copied(typesetter):
    typesetter.learn(formulas.formulas_in(PAGE))
    page = BeautifulSoup(typesetter.typeset(PAGE), "html.parser")
    drawn = [path["id"] for path in page.find_all("path")]
    assert len(drawn) == len(set(drawn)) == 4  # a, <, R, b
    assert {use["href"].removeprefix("#") for use in page.find_all("use")} <= set(drawn)
    alone = typesetter.typeset(PAGE, alone=True)
    assert "<use" not in alone
    assert " id=" not in alone


def test_what_was_typeset_is_remembered_until_the_macros_change(typesetter, monkeypatch):
    typesetter.learn(formulas.formulas_in(PAGE))

    def refuse(*arguments, **options):
        raise AssertionError("MathJax was asked again")

    monkeypatch.setattr(subprocess, "run", refuse)
    again = formulas.Typesetter(MATHJAX, typesetter.memory, typesetter.tex)
    assert again.learn(formulas.formulas_in(PAGE)) == {}
    assert again.typeset(PAGE) == typesetter.typeset(PAGE)
    changed = formulas.Typesetter(MATHJAX, typesetter.memory, {"macros": {"R": "R"}})
    with pytest.raises(AssertionError, match="asked again"):
        changed.learn(formulas.formulas_in(PAGE))


def test_a_formula_that_mathjax_does_not_know_is_refused_with_its_reason(typesetter):
    refused = typesetter.learn([(r"\nosuch", False), ("a", False)])
    assert refused == {(r"\nosuch", False): r"Undefined control sequence \nosuch"}
    assert re.search("mjx-container", typesetter.typeset(r"<p>\(a\)</p>"))
