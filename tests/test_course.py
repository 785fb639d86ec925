"""Lecture files, decks, handouts and feedback on answers."""

import re
import subprocess
import sys
import zipfile
from fractions import Fraction

import jupytext
import nbformat
import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from nbclient import NotebookClient

import archive
import build
import course
import deck
import handout
import lecture
import reference
from conftest import ROOT
from exacthessian.exercises import CHECKABLE, _right_answer, check_exercise
from lecture import LectureError

LABEL = re.compile(r"^`{3,}\{exercise\}.*\n:label: (\S+)$", re.M)
LECTURES = lecture.read_all(ROOT)
SOURCES = {reference.name_of(page): page.read_text(encoding="utf-8") for page in reference.pages()}
EXERCISES = [label for text in SOURCES.values() for label in LABEL.findall(text)]

HEAD = """title = "A lecture"
meeting = "Week 1"
goal = "do it"
reading = ["page"]
exercises = ["ex"]
symbols = []
"""
PAGE = r"""<html><head><script src="other.js"></script></head><body>
<article><h1>A page<a class="headerlink" href="#a">#</a></h1>
<figure id="fig"><img src="../_images/a.png" alt="a"><figcaption>The answer.</figcaption></figure>
<div class="proof theorem admonition" id="thm"><p class="admonition-title">Theorem 1</p><section>
<p>For <mjx-container class="MathJax" data-tex="L"><svg></svg></mjx-container> layers,
as in <a href="#fig">Figure 1</a>.</p></section></div>
<div class="exercise admonition" id="ex"><p class="admonition-title"><span class="caption-number">
Exercise 1 </span> (Two)</p><section><p>Find \(\E x\).</p><p><em>Check:</em>
<code>check_exercise("ex", ...)</code></p></section></div>
<div class="solution admonition" id="s"><section><p>It is <span class="math">\(2\)</span>.</p>
<div class="cell"><div class="cell_input"><pre>print(x)</pre></div>
<div class="cell_output"><pre>2</pre></div></div><p>Done.</p></section></div>
<section id="live"><h2>Live</h2>
<figure class="eh-live eh-frames" id="live-it"><img class="eh-frame" src="../_images/f.png" alt="f">
</figure></section>
</article></body></html>"""


@pytest.fixture
def site(tmp_path):
    """A site of one page."""
    (tmp_path / "book").mkdir()
    for name in ("page", "notation"):
        (tmp_path / "book" / f"{name}.html").write_text(PAGE if name == "page" else PAGE[:200])
    return deck.Site(tmp_path)


@pytest.fixture
def read(tmp_path):
    """A function that reads a lecture with the given slides."""

    def read_slides(slides, head=HEAD):
        path = tmp_path / "week_1.toml"
        path.write_text(head + slides)
        return lecture.read(path)

    return read_slides


@pytest.mark.parametrize("meeting", LECTURES, ids=lambda meeting: meeting.name)
def test_a_meeting_lasts_ninety_minutes_and_names_what_the_book_has(meeting):
    assert meeting.minutes == 90
    assert set(meeting.reading) <= set(SOURCES)
    assert set(meeting.exercises) <= set(EXERCISES)
    assert all("minutes" in slide for slide in meeting.slide)
    everything = "\n".join(SOURCES.values())
    for slide in meeting.slide:
        for kind in lecture.SHOWN:
            assert slide.get(kind, "") in everything


def test_there_is_a_lecture_for_every_meeting():
    names = [meeting.name for meeting in LECTURES]
    assert names == [*(f"seminar_{week}" for week in range(1, 9)), "short_1", "short_2"]


@pytest.mark.parametrize(
    ("slides", "problem"),
    [
        ('[[slide]]\nfigur = "fig"', "slide 1: unknown figur"),
        ('[[slide]]\nfigure = "fig"\ntheorem = "thm"', "slide 1: it must be of one kind"),
        ('[[slide]]\nvote = "Which?"', "1 votes without an answer"),
        ('[[slide]]\nanswer = "This."', "slide 1: an answer to no vote"),
        (
            '[[slide]]\nfigure = "f"\n[[slide]]\nvote = "?"\n[[slide]]\nfigure = "f"\nanswer = "!"',
            "slide 3: f was shown before its vote",
        ),
        ("[[slide]\n", "week_1.toml: "),
    ],
)
def test_a_lecture_file_that_cannot_be_shown_is_refused_by_name(read, slides, problem):
    with pytest.raises(LectureError, match=problem):
        read(slides)


def test_a_missing_head_is_named(read):
    with pytest.raises(LectureError, match="goal"):
        read('[[slide]]\ntitle = "x"', HEAD.replace("goal", "gaol"))


def test_a_deck_shows_its_slides_in_order_with_notes(read, site):
    meeting = read(
        '[[slide]]\nvote = "How many?"\noptions = ["one", "two"]\nminutes = 5\nnotes = "Wait."\n'
        '[[slide]]\nfigure = "fig"\ncaption = "Look."\nanswer = "Two."\nminutes = 70\n'
        '[[slide]]\ntheorem = "thm"\n[[slide]]\nlive = "live"\n[[slide]]\nexercise = "ex"\n'
    )
    made = deck.deck(meeting, {s: f"${s}$: {s}" for s in ("L", "x", r"\mathbb E")}, site)
    page = BeautifulSoup(made, "html.parser")
    slides = page.find("div", class_="slides").find_all("section", recursive=False)
    kinds = ["title", "vote", "figure", "theorem", "live", "exercise"]
    assert [slide["data-kind"] for slide in slides] == kinds
    assert not page.find("section").find("section")
    assert [li.get_text() for li in slides[1].find_all("li")] == ["one", "two"]
    assert "Wait." in slides[1].find("aside").get_text()
    assert "until 1:15" in slides[2].find("aside").get_text()
    assert slides[2].find("img")["src"] == "../_images/a.png"
    assert slides[2].find("figcaption").get_text(strip=True) == "Look."
    assert ": L" in slides[3].find(class_="where").get_text()
    assert slides[4].find("iframe")["data-src"] == "live/live.html"
    assert slides[4].find(class_="still").find("img")["src"] == "../_images/f.png"
    assert "check_exercise" not in slides[5].get_text()
    assert not page.find_all("a")
    assert "other.js" not in made


def test_a_symbol_without_a_meaning_is_refused(read, site):
    with pytest.raises(LectureError, match="week_1, slide 1: the symbol L has no meaning"):
        deck.deck(read('[[slide]]\ntheorem = "thm"'), {}, site)


def test_a_label_that_leads_nowhere_is_refused(read, site):
    with pytest.raises(LectureError, match="slide 1: no page of the book has the label gone"):
        deck.deck(read('[[slide]]\nfigure = "gone"'), {}, site)
    with pytest.raises(LectureError, match="fig leads to no live figure"):
        deck.deck(read('[[slide]]\nlive = "fig"'), {}, site)


def test_a_flip_book_finds_its_pictures_on_a_page_of_its_own(site):
    page = BeautifulSoup(deck.live_page("live", site), "html.parser")
    assert page.find("main").find("img")["src"] == "../../_images/f.png"


def test_a_live_figure_that_computes_takes_its_script(site):
    figure = '<figure class="eh-live" id="live-gap"><svg></svg></figure>'
    script = '<script src="../_static/live-figures.js?v=1"></script></head>'
    page = site.folder / "book" / "page.html"
    page.write_text(PAGE.replace("</article>", figure + "</article>").replace("</head>", script))
    alone = BeautifulSoup(deck.live_page("live-gap", site), "html.parser")
    assert alone.find("main").find("svg")
    sources = [script.get("src") for script in alone.find_all("script")]
    assert "../../_static/live-figures.js" in sources


def test_a_handout_is_plain_and_a_solution_is_whole(read, site):
    meeting = read('[[slide]]\ntitle = "x"')
    sheet = handout.handout(meeting, site, "./x.whl")
    nbformat.validate(sheet)
    text = "\n".join(cell.source for cell in sheet.cells)
    assert "## Exercise 1 (Two), from *A page*" in text
    assert r"\mathbb{E} x" in text
    assert "pip install --quiet ./x.whl" in text
    assert "It is" not in text
    (site.folder / "page.md").write_text(
        "```{code-cell}\nx = 2\n```\n\n```{code-cell}\nprint(x)\n```"
    )
    key = handout.solutions(meeting, site, site.folder, "./x.whl")
    nbformat.validate(key)
    assert [cell.source for cell in key.cells][3:] == ["x = 2", "It is $2$.", "print(x)", "Done."]


def test_a_handout_runs_as_it_is(read, site):
    meeting = read('[[slide]]\ntitle = "x"')
    page = site.folder / "book" / "page.html"
    page.write_text(PAGE.replace('id="ex"', 'id="eos-ex-hand"'))
    for remembered in (deck.pages_by_id, deck.source_of, deck.page_of):
        remembered.cache_clear()
    other = lecture.Lecture(**{**vars(meeting), "exercises": ("eos-ex-hand",)})
    sheet = handout.handout(other, site, "./x.whl")
    NotebookClient(sheet, timeout=120).execute()
    (reply,) = sheet.cells[-1].outputs
    assert reply.data["text/plain"].startswith("Not yet: a number")


def test_the_wheel_is_the_package(tmp_path):
    name = archive.write_wheel(ROOT, tmp_path)
    target = tmp_path / "installed"
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", target]
    subprocess.run([*command, tmp_path / name], check=True)
    source = ROOT / "src" / "exacthessian"
    for file in source.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            copy = target / "exacthessian" / file.relative_to(source)
            assert copy.read_bytes() == file.read_bytes()


def test_places_can_be_filled_again(tmp_path):
    page = tmp_path / "course.html"
    page.write_text('<p><section data-fill="course-downloads"></section></p>')
    for content in ("<ul><li>one</li></ul>", r"two \1"):
        course.fill(page, {"course-downloads": content})
        assert (
            page.read_text() == f'<p><section data-fill="course-downloads">{content}</section></p>'
        )


def test_a_kit_holds_the_pictures_that_its_decks_show(site):
    shown = {"slides/a.html", "slides/live/b.html", *(f"_images/{n}.png" for n in "ab")}
    for name in (*shown, "_images/c.png", "_static/slides.css"):
        (site.folder / name).parent.mkdir(exist_ok=True, parents=True)
        (site.folder / name).write_text('<img src="../_images/a.png">')
    (site.folder / "slides/live/b.html").write_text('<img src="../../_images/b.png">')
    names = set(course.kit(site.folder))
    assert names == {"README.txt", "_static/slides.css", *shown}
    archive.write_zip(site.folder / "kit.zip", course.kit(site.folder))
    with zipfile.ZipFile(site.folder / "kit.zip") as kit:
        assert set(kit.namelist()) == names


def test_an_exercise_says_how_to_check_it(scratch_book):
    asked = "```{exercise}\n:label: %s\n\nFind it.\n```\n"
    page = "# Page\n\n" + asked % "lc-ex-rank" + "\n" + asked % "other"
    root = scratch_book({"page": page})
    build.build(root)
    built = BeautifulSoup((root / "_build/html/book/page.html").read_text(), "html.parser")
    checked = built.find(id="lc-ex-rank")
    assert 'check_exercise("lc-ex-rank", ...)' in checked.get_text()
    assert checked.find("span", class_="math")
    assert "check_exercise" not in built.find(id="other").get_text()


def test_two_thirds_of_the_exercises_can_be_checked():
    assert set(CHECKABLE) <= set(EXERCISES)
    assert len(CHECKABLE) >= 2 / 3 * len(EXERCISES)


@pytest.mark.parametrize("label", CHECKABLE)
def test_the_right_answer_is_right_and_others_are_not(label):
    right = _right_answer(label)
    assert check_exercise(label, right) == "Right."
    assert check_exercise(label, right[::-1].tolist()) == "Right."
    for wrong in (1.3 * right, -right - 0.1, right + right.max(), np.append(right, 77.0)):
        reply = check_exercise(label, wrong)
        assert reply.startswith("Not yet: ")
        assert not any(f"{value:.3g}" in reply for value in right if value not in range(-3, 7))


# The same answers by another route: as the solutions on the pages have them.
BY_HAND = {
    "course-ex-symmetric": [11, 3, 3, 3],
    "course-ex-hessian": [4.25, 0],
    "lc-ex-trace": 9 + 4,
    "lc-ex-rank": 12 - 11,
    "lc-ex-origin": [2, -2],
    "lc-ex-unbalanced": 9 + 1 + 1 / 9,
    "lc-ex-ridge": [2 * 1.75, 2 * 0.25],
    "lc-ex-step": 2 / 3,
    "dnd-ex-count": 10 * 16 - 6 * 12,
    "dnd-ex-rank-data": 4 * (7 - 4) + 4 * (16 - 4),
    "dnd-ex-two-ratios": (4 + 1 / 4) / (4 + 1 + 1 / 4),
    "dnd-ex-plateau": 10 - 2 ** (1 / 3),
    "eos-ex-flat": (3 - 1) * 4**2,
    "eos-ex-swing": 2 / 3 * (5 * 3 - 4) * (3 - 1),
    "eos-ex-golden": 5**0.5 - 1,
    "eos-ex-which": 0.07795,
    "eos-ex-deep": 1.25164,
    "eos-ex-chaos": 9 - 2 * (1 + 20 / 14.5) ** 2,
    "cth-ex-one-neuron": [0, 2],
    "cth-ex-crossing": (1 / 3 - 5 / 3) * 4,
    "cth-ex-end": (3**2 + 4 * 2**2) ** 0.5,
    "ufm-ex-one-layer": 1 / (3 * 2),
    "ufmx-ex-rank": np.exp(-10 / 10.54 * np.log(1 / 10.54) - 0.54 / 10.54 * np.log(0.01 / 10.54)),
    "os-ex-split": [4 * 0.9**6 + 3 * (0.9**4 - 1) * 0.81, 4 * 0.9**6 - 3 * (0.9**4 - 1) * 0.81],
    "os-ex-residual": [1.6, 0.4],
}


@pytest.mark.parametrize("label", BY_HAND)
def test_answers_by_hand_are_right(label):
    assert check_exercise(label, BY_HAND[label]) == "Right."


@pytest.mark.parametrize(
    "answer",
    [0.4, Fraction(2, 5), "0.4", "2/5", [0.4], {0.4}, np.float32(0.4), torch.tensor(0.4)],
)
def test_a_number_may_be_written_in_many_ways(answer):
    assert check_exercise("dnd-ex-step", answer) == "Right."


@pytest.mark.parametrize(
    ("label", "answer", "reply"),
    [
        ("dnd-ex-step", -0.4, "the sign is off"),
        ("dnd-ex-step", -3, "the sign is off, and so is the size"),
        ("dnd-ex-step", 0.8, "too large, and what is off is a power of two or of its root"),
        ("dnd-ex-step", 0.04, "too small, and what is off is a power of ten"),
        ("dnd-ex-step", 0.4 * np.pi, "too large, and what is off is a factor with π in it"),
        ("dnd-ex-step", 5, "too large"),
        ("dnd-ex-step", 0.41, "close, but it must be right to 0.001 of its size"),
        ("eos-ex-digits", 100, "too small"),
        ("os-ex-residual", 1.6, "2 numbers expected, got 1"),
        ("os-ex-residual", [1.6, 1.0], "1 of 2 numbers are right"),
        ("os-ex-residual", [4.8, 1.2], "all numbers are off by the same power of three"),
        ("os-ex-residual", [1.92, 0.48], "all numbers are off by the same factor"),
        ("os-ex-residual", [7, 9], "no number is right"),
        (
            "course-ex-symmetric",
            [11, 3],
            "the values are right, but not how often each of them occurs",
        ),
        ("course-ex-symmetric", [11, 3, 5, 6], "2 of 4 numbers are right"),
    ],
)
def test_replies_say_what_is_off(label, answer, reply):
    assert check_exercise(label, answer) == f"Not yet: {reply}."


@pytest.mark.parametrize("answer", [None, True, 1j, "one", "", float("nan"), "1/0", object()])
def test_what_is_no_number_is_said_and_not_raised(answer):
    assert check_exercise("dnd-ex-step", answer).startswith("Not yet: a number or a list")


@pytest.mark.parametrize("label", ["eos-hand", 2.4, ["x"]])
def test_an_unknown_label_gets_its_neighbours(label):
    reply = check_exercise(label, 1)
    assert "No exercise" in reply
    assert repr(reply) == str(reply)


def test_the_reading_time_leaves_out_code_and_exercises():
    whole = BeautifulSoup(PAGE, "html.parser")
    assert course.reading_minutes(whole) == 0  # a dozen words
    words = '<article><div class="cell">' + "x " * 900 + "</div>" + "word " * 300 + "</article>"
    assert course.reading_minutes(BeautifulSoup(words, "html.parser")) == 3


def test_the_course_page_is_a_notebook():
    assert jupytext.read(ROOT / "book" / "course.md").cells
