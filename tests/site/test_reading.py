"""Pages that everybody can read: no formula is cut off, no rule of access broken, print is whole.

`make test` looks at a sample of pages, CI at all of them.
"""

import os

import pytest
from site_pages import LOOKS, PAGES, ROOT

AXE = (ROOT / "vendor" / "axe" / "axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
SAMPLE = PAGES if os.environ.get("CI") == "true" else PAGES[::6]
UNFOLD = """() => {
    document.querySelectorAll('details').forEach((fold) => { fold.open = true; });
    document.querySelectorAll('.toggle-hidden').forEach((e) => e.classList.remove('toggle-hidden'));
    dispatchEvent(new Event('resize'));
    return new Promise((done) => setTimeout(done, 200));
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


@pytest.mark.parametrize("width", [390, 768, 1280])
@pytest.mark.parametrize("path", SAMPLE)
def test_no_formula_is_cut_off(visit, path, width):
    seen = visit(path)
    seen.page.set_viewport_size({"width": width, "height": 900})
    seen.page.evaluate(UNFOLD)
    assert seen.page.evaluate(CUT_OFF) == []


@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize("path", [*SAMPLE, "book/lab.html", "search.html"])
def test_no_rule_of_access_is_broken(visit, path, look):
    seen = visit(path, look)
    seen.page.evaluate(AXE)
    broken = seen.page.evaluate(
        """(rules) => axe.run({exclude: ['mjx-container']}, {runOnly: rules}).then((found) =>
            found.violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html}`)))""",
        RULES,
    )
    assert broken == []


@pytest.mark.parametrize("path", SAMPLE)
def test_ids_are_unique_and_formulas_no_stops(visit, path):
    seen = visit(path)
    twice = seen.page.evaluate(
        """() => { const ids = [...document.querySelectorAll('.bd-article [id]:not(svg *)')]
                       .map((e) => e.id);
                   return ids.filter((id, n) => ids.indexOf(id) !== n); }"""
    )
    assert twice == []
    stops = "document.querySelectorAll('mjx-container[tabindex]:not(.eh-scrolls)').length"
    assert seen.page.evaluate(stops) == 0
    assert seen.page.locator("script[src*=fontawesome]").count() == 0


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
