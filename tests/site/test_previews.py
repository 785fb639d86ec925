"""References that show what they lead to, in place and from a disk."""

import json
import re
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from playwright.sync_api import expect
from site_pages import LOOKS, SITE

MARKED = re.compile(r'<a class="[^"]*" data-preview="" href="([^"]+)"')


def test_every_marked_reference_has_something_to_show():
    counted, missing = 0, []
    for path in sorted((SITE / "book").rglob("*.html")):
        page = path.read_text(encoding="utf-8")
        for link in MARKED.findall(page):
            counted += 1
            there = urlsplit(urljoin(path.as_uri(), link))
            target, name = unquote(there.path), unquote(there.fragment)
            if target == str(path):
                known = f' id="{name}"' in page
            else:
                short = target.removeprefix(f"{SITE}/").removesuffix(".html")
                script = SITE / "_static" / "previews" / f"{short}.js"
                known = script.exists() and f"{json.dumps(name)}: " in script.read_text("utf-8")
            if not known:
                missing.append(f"{path.name}: {link}")
    assert counted > 300
    assert missing == []


@pytest.fixture
def reader(browser):
    """A page of the site, opened from the disk."""
    context = browser.new_context(**LOOKS["light"])
    page = context.new_page()
    page.wrong = []
    page.on("console", lambda message: message.type == "error" and page.wrong.append(message.text))
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.goto((SITE / "book" / "depth_not_data" / "counts.html").as_uri())
    yield page
    assert page.wrong == []
    context.close()


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("a[data-preview][href*='#dnd-bifurcation']", "Theorem. Bifurcation at every step"),
        ("a[data-preview][href*='#term-Hessian']", "second derivatives"),
    ],
)
def test_a_resting_pointer_shows_it_and_may_go_there(reader, link, says):
    reader.locator(link).first.hover()
    box = reader.locator(".eh-preview")
    expect(box).to_contain_text(says)
    expect(reader.locator(link).first).to_have_attribute("aria-describedby", "eh-preview")
    box.hover()
    reader.wait_for_timeout(600)
    expect(box).to_be_visible()
    assert (
        reader.evaluate("document.querySelectorAll('.eh-preview :is(a, button, [id])').length") == 0
    )
    reader.keyboard.press("Escape")
    expect(box).to_have_count(0)


def test_the_keyboard_shows_it_and_a_finger_does_not(reader):
    link = reader.locator("a[data-preview]").first
    link.dispatch_event("pointerover", {"pointerType": "touch", "bubbles": True})
    reader.wait_for_timeout(600)
    expect(reader.locator(".eh-preview")).to_have_count(0)
    link.evaluate("link => link.focus({focusVisible: true})")
    expect(reader.locator(".eh-preview")).to_be_visible()
    reader.keyboard.press("Tab")
    expect(reader.locator(f".eh-preview >> text={link.inner_text()}")).to_have_count(0)


def test_an_equation_of_the_same_page_is_shown_with_its_letters(reader):
    reader.goto((SITE / "book" / "linear_chains" / "second_variation.html").as_uri())
    link = reader.locator("a[data-preview][href^='#equation-']").first
    link.scroll_into_view_if_needed()
    link.hover()
    box = reader.locator(".eh-preview mjx-container")
    expect(box).to_be_visible()
    lost = """() => [...document.querySelectorAll('.eh-preview use')]
        .filter((use) => !document.querySelector(use.getAttribute('href'))).length"""
    assert reader.evaluate(lost) == 0
