"""Decks, student notebooks and feedback on answers: made from the chapters, in step with them."""

import re

import jupytext
import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import course
import reference
from conftest import ROOT
from exacthessian.exercises import CHECKABLE, check_exercise

EXERCISE = re.compile(r"^```\{exercise\}.*\n:label: (\S+)$", re.M)
SOLVED = "```{solution-start} ex\n:class: dropdown\n```"
END = "```{solution-end}\n```"

PAGE = """<html><head><script>window.MathJax = {}</script>
<script src="../_static/mathjax/tex.js"></script><script src="other.js"></script></head><body>
<h1>A chapter<a class="headerlink" href="#a">#</a></h1>
<figure id="fig-a"><img src="a.png" alt="a"><figcaption>Message.</figcaption></figure>
<div class="proof theorem admonition" id="thm"><p>Statement, as in
<a href="#fig-a">Figure</a> and <a href="other.html#y">there</a>.</p><section>Body</section></div>
<section id="live"><span id="sec-live"></span><h2>Live</h2>
<script type="application/vnd.jupyter.widget-view+json">{}</script></section>
<section><span id="sec-x-takeaway"></span><h2>What to take home</h2><ul><li>One.</li></ul></section>
<section><span id="sec-x-lecture"></span><h3>For instructors</h3><table><tbody>
<tr><td>0-10</td><td>Ask.</td><td><a class="reference" href="#fig-a">Fig. 1</a></td></tr>
<tr><td>10-20</td><td>Prove.</td><td><a class="reference" href="#thm">Theorem 1</a>,
<a class="reference" href="#sec-live">the slider</a>, <a class="reference" href="#gone">x</a>,
<a class="reference" href="x/other.html#y">y</a></td></tr></tbody></table></section>
</body></html>"""


def pages():
    """The pages with exercises of the chapters that come with a lecture plan."""
    chapters = course.material(ROOT)
    return [ROOT / "book" / f"{name}.md" for names in chapters.values() for name in names]


def no_other_page(address):
    return None


def other_page(address):
    text = '<figure id="y"><img src="../../_images/a.png" alt="a"></figure>'
    return BeautifulSoup(text, "html.parser") if address == "../book/x/other.html" else None


def test_a_row_of_the_plan_shows_what_it_refers_to():
    steps = course.storyboard(BeautifulSoup(PAGE, "html.parser"), "../book/x.html", other_page)
    assert [step.minutes for step in steps] == ["0-10", "10-20"]
    assert "a.png" in steps[0].shown[0]
    theorem, live, elsewhere = steps[1].shown
    assert "a.png" in elsewhere
    assert "Statement" in theorem
    assert 'data-src="../book/x.html#sec-live"' in live
    assert 'href="../book/x.html#fig-a"' in theorem
    assert 'href="../book/other.html#y"' in theorem


def test_a_deck_has_a_title_every_step_and_the_take_away():
    deck = course.deck(PAGE, "../book/x.html", no_other_page)
    assert deck.count("<section>") == deck.count("</section>") == 4 + 2 + 2 + 3 + 1
    assert "<h1>A chapter</h1>" in deck
    assert "What to take home" in deck
    assert "tex.js" in deck
    assert "other.js" not in deck
    assert "headerlink" not in deck
    assert 'id="' not in deck


def test_a_page_without_a_plan_has_no_deck():
    assert course.deck("<html><body><h1>x</h1></body></html>", "x.html", no_other_page) is None


def test_a_solution_becomes_an_empty_cell():
    cells = [
        new_markdown_cell(f"Question.\n\n{SOLVED}\n\nSecret words."),
        new_code_cell("secret = 1"),
        new_markdown_cell(f"More secret.\n\n{END}\n\nNext question."),
        new_code_cell("print('kept')"),
    ]
    student = course.without_solutions(new_notebook(cells=cells))
    assert [cell.source for cell in student.cells] == [
        "Question.",
        course.ANSWER,
        "",
        "Next question.",
        "print('kept')",
    ]
    nbformat.validate(student)


def test_an_unfinished_solution_is_an_error():
    with pytest.raises(ValueError, match="started and not ended"):
        course.without_solutions(new_notebook(cells=[new_markdown_cell(SOLVED)]))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_student_notebooks_keep_all_but_the_solutions(page):
    chapter = jupytext.read(page)
    student = course.without_solutions(chapter)
    text = "\n".join(cell.source for cell in student.cells)
    assert "solution-" not in text
    labels = EXERCISE.findall(page.read_text())
    assert labels
    assert EXERCISE.findall(text) == labels
    assert text.count(course.ANSWER) == len(labels)
    kept = [cell.source for cell in student.cells if cell.cell_type == "code" and cell.source]
    whole = [cell.source for cell in chapter.cells if cell.cell_type == "code"]
    assert [source for source in whole if source in kept] == kept


@pytest.mark.parametrize("label", CHECKABLE)
def test_a_checkable_exercise_is_on_a_page_that_says_how_to_check_it(label):
    texts = [page.read_text(encoding="utf-8") for page in reference.pages()]
    (page,) = [text for text in texts if label in EXERCISE.findall(text)]
    assert f'check_exercise("{label}"' in page


@pytest.mark.parametrize("label", CHECKABLE)
def test_the_right_answer_is_right_and_others_are_not(label):
    right = np.atleast_1d(np.asarray(CHECKABLE[label].right(), dtype=float))
    assert check_exercise(label, right) == "Right."
    assert check_exercise(label, right[::-1]) == "Right."
    for wrong in (1.3 * right, -right, right + right.max(), np.append(right, 1.0)):
        reply = check_exercise(label, wrong)
        assert reply.startswith("Not yet: ")
        assert not any(f"{value:.3g}" in reply for value in right if abs(value) not in (0, 1, 2, 3))


def test_replies_say_what_is_off():
    assert check_exercise("eos-ex-hand", -1.0) == "Not yet: the sign is off."
    assert check_exercise("eos-ex-hand", 0.5).startswith("Not yet: too small")
    assert check_exercise("eos-ex-hand", 1.02).startswith("Not yet: close")
    assert check_exercise("os-ex-residual", [1.6, 1.0]) == "Not yet: 1 of 2 numbers are right."
    assert check_exercise("os-ex-residual", [3.2, 0.8]).endswith("only a constant factor is off.")
    assert check_exercise("os-ex-residual", 1.6) == "Not yet: 2 numbers are expected, got 1."


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"label must be one of .*got '9.9'"):
        check_exercise("9.9", 1)
    with pytest.raises(TypeError, match="answer must hold real numbers"):
        check_exercise("eos-ex-hand", "one")
