"""Pages that everybody can read: no formula is cut off, no rule of access broken, print is whole.

The rules of access are tried on a sample of pages by `make test`, on all of them by CI.
"""

import os
import re

import pytest
from site_pages import AXE, BROKEN, EVERY_PAGE, LOOKS, ROOT, RULES

from exacthessian import claims

FOR_AXE = EVERY_PAGE if os.environ.get("CI") == "true" else [*EVERY_PAGE[::6], "book/lab.html"]
UNFOLD = """() => {
    document.querySelectorAll('details').forEach((fold) => { fold.open = true; });
    document.querySelectorAll('.toggle-hidden').forEach((e) => e.classList.remove('toggle-hidden'));
}"""
# After the sidebars have slid in or out, and what was measured anew is marked.
SETTLED = """async () => {
    const frame = () => new Promise(requestAnimationFrame);
    dispatchEvent(new Event('resize'));
    await frame();
    const sliding = document.getAnimations().filter((one) => one instanceof CSSTransition);
    await Promise.all(sliding.map((one) => one.finished.catch(() => {})));
    for (let n = 0; n < 4; n++) await frame();
}"""
CUT_OFF = """() => [...document.querySelectorAll('.bd-article mjx-container')].flatMap(formula => {
    const ink = formula.querySelector('svg')?.getBoundingClientRect();
    if (!ink || !formula.checkVisibility()) return [];
    const number = formula.parentElement.querySelector(':scope > .eqno')?.getBoundingClientRect();
    const box = formula.getBoundingClientRect();
    if (number && box.right > number.left + 1) return ['under its number: ' + formula.textContent];
    for (let e = formula; !e.matches('.bd-article'); e = e.parentElement) {
        const how = getComputedStyle(e).overflowX, room = e.getBoundingClientRect();
        const fits = ink.right <= room.right + 1 && ink.left >= room.left - 1;
        if (how === 'auto' || how === 'scroll')
            return fits || e !== formula || e.matches('.eh-scrolls[tabindex="0"]')
                ? [] : ['scrolls without a sign: ' + formula.textContent];
        if (how !== 'visible' && !fits) return ['cut off: ' + formula.textContent];
    }
    return ink.right <= innerWidth ? [] : ['beyond the page: ' + formula.textContent];
})"""


TWICE = """() => { const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
                   return ids.filter((id, n) => ids.indexOf(id) !== n); }"""
LOST_ICONS = """() => [...document.querySelectorAll('body *:not(svg *)')].flatMap((e) =>
    ['::before', '::after'].filter((where) => {
        const look = getComputedStyle(e, where);
        return /[\\uE000-\\uF8FF]/.test(look.content);
    }).map((where) => e.className + where))"""


@pytest.mark.parametrize("path", EVERY_PAGE)
def test_everybody_can_read_a_page(visit, path):
    """One visit, every fold open: three widths, then the rules of access in both themes."""
    seen = visit(path)
    seen.page.evaluate(UNFOLD)
    for width in (390, 768, 1280):
        seen.page.set_viewport_size({"width": width, "height": 900})
        seen.page.evaluate(SETTLED)
        assert seen.page.evaluate(CUT_OFF) == [], f"at {width} pixels"
    assert seen.page.evaluate(TWICE) == []
    assert seen.page.evaluate(LOST_ICONS) == []
    stops = "document.querySelectorAll('mjx-container[tabindex]:not(.eh-scrolls)').length"
    assert seen.page.evaluate(stops) == 0
    if path in FOR_AXE:
        seen.page.evaluate(AXE)
        for theme in ("light", "dark"):
            seen.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            seen.page.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'")
            seen.page.wait_for_timeout(300)  # until no colour is on its way
            assert seen.page.evaluate(BROKEN, RULES) == [], f"in the {theme} theme"


@pytest.mark.parametrize("name", claims.PAPERS)
def test_the_live_figure_is_three_stops_away(visit, name):
    seen = visit(f"book/{claims.paper(name).chapter}.html")
    for key in ("Tab", "Tab", "Enter", "Tab"):
        seen.page.keyboard.press(key)
    assert seen.page.evaluate("document.activeElement.closest('.eh-live') !== null")


IN_A_FIGURE = "document.activeElement.closest('.eh-live, .eh-lab') !== null"
WITH_LIVE_FIGURES = [
    f"{page.relative_to(ROOT).with_suffix('.html')}"
    for page in sorted((ROOT / "book").rglob("*.md"))
    if re.search(r'live_figure\("|\{(live-figure|laboratory)\}', page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("path", WITH_LIVE_FIGURES)
def test_the_first_live_figure_is_within_thirty_stops(visit, path):
    """Tab by Tab from the top, folds closed, without a leap."""
    seen = visit(path)
    stops = 0
    while not seen.page.evaluate(IN_A_FIGURE):
        seen.page.keyboard.press("Tab")
        stops += 1
        assert stops <= 30


def test_the_contents_of_the_book_are_one_leap_away(visit):
    """They stand on the left, and come after the page in the order of the keyboard."""
    seen = visit("book/linear_chains.html")
    seen.page.keyboard.press("Tab")
    seen.page.locator("a", has_text="Skip to the contents of the book").press("Enter")
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.closest('#pst-primary-sidebar') !== null")
    left, page = (seen.page.locator(place) for place in ("#pst-primary-sidebar", "#main-content"))
    assert left.bounding_box()["x"] < page.bounding_box()["x"]


FOLLOWED = """(part) => {
    scrollTo({top: part * document.documentElement.scrollHeight, behavior: 'instant'});
    return new Promise((done) => setTimeout(() => {
        const marked = [...document.querySelectorAll('#pst-page-toc-nav a.active')];
        const at = marked[0]?.getBoundingClientRect();
        const section = marked[0] && document.getElementById(marked[0].hash.slice(1));
        done({marked: marked.length, seen: at?.top >= 0 && at?.bottom <= innerHeight,
              read: section?.getBoundingClientRect().top < innerHeight / 2});
    }, 200));
}"""


@pytest.mark.parametrize("path", ["book/cracking_the_hessian/one_bulk.html", "book/package.html"])
def test_the_contents_follow_the_reader(visit, path):
    seen = visit(path)
    for part in range(2, 10):
        found = seen.page.evaluate(FOLLOWED, part / 10)
        assert found == {"marked": 1, "seen": True, "read": True}, f"{part}/10 of the page"


@pytest.mark.parametrize("look", LOOKS)
def test_printing_unfolds_proofs_in_ink(visit, look):
    seen = visit("book/depth_not_data/proofs.html", look)
    seen.page.emulate_media(media="print")
    hidden = seen.page.evaluate(
        """() => { dispatchEvent(new Event('beforeprint'));
                   return [...document.querySelectorAll('.bd-article .proof p')]
                       .filter((p) => !p.checkVisibility({visibilityProperty: true,
                                                           opacityProperty: true})).length; }"""
    )
    assert hidden == 0
    ink = "getComputedStyle(document.querySelector('.bd-article p')).color"
    assert seen.page.evaluate(ink) == "rgb(0, 0, 0)"
