"""The front page, the search and the graphs of the ledger, from files, as on a USB stick."""

import pytest
from site_pages import SITE

PAPERS = ("depth_not_data", "beyond_edge_of_stability", "cracking_the_hessian", "deep_linear_ufm")
ANSWERS = {  # a question → the address of one of its first three answers contains
    "aligned-chain theorem": "aligned",
    "one bulk for all": "one_bulk.html#cthb-bulk",
    "who oscillates": "who_oscillates.html",
    "spare": "glossary.html#term-spare",
    "mini-bulk": "glossary.html#term-mini-bulk",
    "rank of the Gauss-Newton part": "second_variation.html#lc-rank",
    "Depth, Not Data Theorem 3.5": "claims_depth_not_data.html#row-depth-not-data-theorem-3-5",
}


@pytest.fixture
def page(browser):
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    yield opened
    opened.close()


def go(page, path):
    page.goto(f"{SITE.as_uri()}/{path}", wait_until="domcontentloaded")


def test_the_first_screen_shows_what_was_found(page):
    go(page, "book/intro.html")
    page.locator(".eh-finding img.eh-light").last.wait_for()
    for part in ("figure.eh-live svg", ".eh-refereed", ".eh-finding", ".eh-door"):
        for box in (found.bounding_box() for found in page.locator(part).all()):
            assert box["y"] + box["height"] <= 900, part
    assert page.locator(".eh-finding").count() == 4
    assert page.locator(".eh-door").count() == 3
    for link in page.locator(":is(.eh-finding, .eh-door)").all():
        assert (SITE / "book" / link.get_attribute("href")).exists()
    words = page.locator("article").inner_text().split()
    assert len(words) <= 900


@pytest.mark.parametrize("query", ANSWERS)
def test_a_query_lands_on_its_answer(page, query):
    go(page, f"search.html?q={query}")
    found = page.locator(".eh-answers li")
    found.first.wait_for()
    links = [item.locator("a").get_attribute("href") for item in found.all()[:3]]
    assert any(ANSWERS[query] in link for link in links), links
    assert found.first.locator("p").inner_text()


@pytest.mark.parametrize("paper", PAPERS)
def test_a_graph_is_read_with_the_keyboard(page, paper):
    go(page, f"book/claims_{paper}.html")
    nodes = page.locator(".eh-node")
    edge = page.locator(".eh-edges path").first
    used = page.locator(f".eh-node[data-id='{edge.get_attribute('data-from')}']")
    used.focus()
    row = page.locator(".eh-graph-row")
    assert used.get_attribute("data-id") in row.inner_text() or "this-book" in used.get_attribute(
        "data-id"
    )
    page.keyboard.press("ArrowRight")
    now = page.evaluate("document.activeElement.dataset.id")
    assert now != used.get_attribute("data-id")
    assert now in row.inner_text()
    assert page.locator(".eh-edges path.eh-on").count() >= 1
    assert nodes.count() == len(set(nodes.evaluate_all("all => all.map(n => n.dataset.id)")))
