"""Every slide of every deck in Chromium, from a disk, light and dark, as a lecturer sees it."""

import zipfile

import pytest
from playwright.sync_api import expect
from site_pages import AXE, BROKEN, ROOT, RULES, SITE

import lecture

DECKS = [meeting.name for meeting in lecture.read_all(ROOT)]
WITH_LIVE = {
    meeting.name: [n for n, slide in enumerate(meeting.slide, start=1) if "live" in slide]
    for meeting in lecture.read_all(ROOT)
}
SEEN = """() => {
  const slide = Reveal.getCurrentSlide(), box = slide.querySelector(".fit");
  const edge = box.getBoundingClientRect();
  const inside = [...box.querySelectorAll("p, li, h1, h2, img, table, mjx-container, iframe")]
    .map(part => part.getBoundingClientRect()).filter(part => part.height > 0);
  return {
    number: Reveal.getIndices().h,
    over: Math.max(box.scrollHeight - box.clientHeight, box.scrollWidth - box.clientWidth,
                   ...inside.map(part => part.bottom - Math.min(edge.bottom, innerHeight)),
                   ...inside.map(part => part.right - Math.min(edge.right, innerWidth))),
    letters: parseFloat(getComputedStyle(box).fontSize),
    pictures: [...box.querySelectorAll("figure img")]
              .filter(image => getComputedStyle(image).display !== "none")
              .map(image => image.complete && image.naturalWidth > 0
                   && image.getBoundingClientRect().height),
    formulas: box.querySelectorAll(".math:not(:has(mjx-container))").length
              + box.querySelectorAll("mjx-merror, [data-mjx-error]").length,
    notes: slide.querySelectorAll("aside.notes").length,
  };
}"""
IS_TYPESET = "document.documentElement.dataset.typeset === 'yes'"


@pytest.fixture
def show(browser):
    """A function that opens a deck from the disk, with every other host blocked."""
    contexts = []

    def open_deck(name, scheme="light", tail=""):
        context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 760})
        contexts.append(context)
        page = context.new_page()
        page.wrong = []
        context.on("request", lambda r: r.url.startswith("http") and page.wrong.append(r.url))
        page.on("console", lambda m: m.type == "error" and page.wrong.append(m.text))
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.goto((SITE / "slides" / f"{name}.html").as_uri() + tail)
        page.wait_for_function(IS_TYPESET)
        return page

    yield open_deck
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", DECKS)
def test_the_right_arrow_visits_every_slide_and_none_overflows(show, name, scheme):
    page = show(name, scheme)
    total = page.evaluate("Reveal.getTotalSlides()")
    meeting = lecture.read(ROOT / "book" / "lectures" / f"{name}.toml")
    assert total == len(meeting.slide) + 1
    for number in range(total):
        seen = page.evaluate(SEEN)
        assert seen["number"] == number
        assert seen["over"] <= 1, f"slide {number} overflows by {seen['over']} px"
        assert seen["letters"] >= 20, f"the letters of slide {number} are too small"
        assert all(height >= 300 for height in seen["pictures"]), f"slide {number}: {seen}"
        assert seen["formulas"] == 0
        assert seen["notes"] == 1
        page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.isLastSlide()")
    assert page.wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", DECKS)
def test_no_rule_of_access_is_broken_on_any_slide(show, name, scheme):
    page = show(name, scheme, tail="?print-pdf")  # every slide at once
    page.wait_for_function("document.querySelectorAll('.pdf-page').length > 0")
    page.evaluate(AXE)
    assert page.evaluate(BROKEN, RULES) == []


def live_frame(page):
    page.wait_for_function("Reveal.getCurrentSlide().querySelector('iframe')?.src")
    slot = page.evaluate_handle("Reveal.getCurrentSlide().querySelector('iframe')")
    frame = slot.as_element().content_frame()
    frame.wait_for_url("**/live/**")
    frame.locator("[role=slider], input[type=range]").first.wait_for()
    return frame


@pytest.mark.parametrize("name", [name for name in DECKS if WITH_LIVE[name]])
def test_a_live_figure_is_whole_and_leaves_the_keyboard_to_the_deck(show, name):
    for number in WITH_LIVE[name]:
        page = show(name, tail=f"#/{number}")
        frame = live_frame(page)
        assert frame.locator("h1, nav, .bd-sidebar").count() == 0
        over = "document.documentElement.scrollHeight - innerHeight"
        assert frame.evaluate(over) <= 1
        picture = ".eh-frame img, figure.eh-live svg"
        shown = frame.locator(f":is({picture}):visible").first.bounding_box()
        assert shown["height"] > 250
        assert shown["y"] + shown["height"] <= 760
        knob = frame.locator("[role=slider], input[type=range]").first
        before = frame.locator("body").inner_html()
        place = knob.bounding_box()
        page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
        page.mouse.down()
        page.mouse.move(place["x"] + 0.35 * place["width"], place["y"] + 9, steps=4)
        page.mouse.up()
        page.wait_for_function("document.activeElement === document.body")
        assert frame.locator("body").inner_html() != before
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"Reveal.getIndices().h === {number + 1}")
        page.keyboard.press("ArrowLeft")
        page.wait_for_function(f"Reveal.getIndices().h === {number}")
        frame = live_frame(page)
        frame.locator("[role=slider], input[type=range]").first.focus()
        page.keyboard.press("ArrowRight")  # the slider's own
        assert page.evaluate("Reveal.getIndices().h") == number
        page.keyboard.press("n")
        page.wait_for_function(f"Reveal.getIndices().h === {number + 1}")
        assert page.wrong == []


def test_the_speaker_view_works_from_a_disk(show):
    page = show("seminar_3")
    with page.expect_popup() as opened:
        page.keyboard.press("s")
    speaker = opened.value
    notes = speaker.locator(".speaker-controls-notes .value")
    expect(notes).to_contain_text("minutes", timeout=20000)
    page.keyboard.press("ArrowRight")
    expect(notes).to_contain_text("Do not show a picture yet.", timeout=20000)
    assert page.wrong == []


def test_a_deck_prints_one_page_for_each_slide(show):
    page = show("seminar_1", tail="?print-pdf")
    page.wait_for_function("document.querySelectorAll('.pdf-page').length > 0")
    assert page.locator(".pdf-page").count() == page.evaluate("Reveal.getTotalSlides()")
    assert page.locator(".still img, .still svg").first.is_visible()
    assert not page.locator("iframe").first.is_visible()


def test_the_kit_shows_its_decks_away_from_the_site(browser, tmp_path):
    with zipfile.ZipFile(SITE / "course.zip") as kit:
        assert kit.testzip() is None
        names = kit.namelist()
        kit.extractall(tmp_path)
    for folder, ending in (("slides", "html"), ("handouts", "ipynb"), ("solutions", "ipynb")):
        assert {f"{folder}/{name}.{ending}" for name in DECKS} <= set(names)
    page = browser.new_page()
    missing = []
    page.on("requestfailed", lambda request: missing.append(request.url))
    for name in DECKS:
        page.goto((tmp_path / "slides" / f"{name}.html").as_uri())
        page.wait_for_function(IS_TYPESET)
    page.close()
    assert missing == []


def test_the_zip_of_the_site_is_the_site():
    with zipfile.ZipFile(SITE / "the-exact-hessian.zip") as whole:
        names = set(whole.namelist())
        stated = whole.read("book/course.html").decode()
    files = {p.relative_to(SITE).as_posix() for p in SITE.rglob("*") if p.is_file()}
    assert names == files - {"course.zip", "the-exact-hessian.zip"}
    for name in ("course.zip", "the-exact-hessian.zip"):
        assert f"{(SITE / name).stat().st_size / 1e6:.0f} MB" in stated


def test_the_plan_leaves_time_to_read(browser):
    page = browser.new_page()
    page.goto((SITE / "book" / "course.html").as_uri())
    times = page.locator('[data-fill^="course-plan"] .eh-minutes').all_inner_texts()
    page.close()
    assert len(times) == len(DECKS)
    assert max(int(time.split()[0]) for time in times) <= 120
