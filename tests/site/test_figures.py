"""Figures of the built site: they follow the theme, keep their letters on a phone, and say their
numbers.
"""

import csv
import io
from urllib.parse import urljoin

import pytest
from site_pages import PAGES, SITE

VISIBLE = """() => [...document.querySelectorAll(".bd-article figure img")]
  .filter(image => getComputedStyle(image).display !== "none")
  .map(image => ({ source: image.src, width: image.getBoundingClientRect().width,
                   ground: getComputedStyle(image).backgroundColor,
                   filter: getComputedStyle(image).filter }))"""
CLEAR = "rgba(0, 0, 0, 0)"


@pytest.mark.parametrize("base", ["server", "disk"])
def test_a_figure_follows_the_theme_and_the_button(visit, address, base):
    start = SITE.as_uri() if base == "disk" else address
    seen = visit("book/depth_not_data.html", "dark", start)
    for _ in range(3):
        theme = seen.page.evaluate("document.documentElement.dataset.theme")
        shown = seen.page.evaluate(VISIBLE)
        assert len(shown) == 3
        for image in shown:
            assert ("-dark.svg" in image["source"]) == (theme == "dark")
            assert (image["ground"], image["filter"]) == (CLEAR, "none")
        seen.page.locator("button.theme-switch-button:visible").first.click()
    assert seen.errors == []


def test_every_figure_of_a_phone_has_the_width_of_the_column(visit):
    seen = visit("book/cracking_the_hessian/norms.html", "phone")
    for image in seen.page.evaluate(VISIBLE):
        assert 320 <= image["width"] <= 390


def test_the_numbers_of_a_figure_are_behind_a_link(visit, address):
    seen = visit("book/depth_not_data.html")
    figure = seen.page.locator("figure#dnd-fig-answer")
    link = figure.locator("figcaption a.eh-data").get_attribute("href")
    table = seen.page.request.get(urljoin(f"{address}/book/depth_not_data.html", link)).text()
    rows = list(csv.DictReader(io.StringIO(table)))
    dots = [float(row["y"]) for row in rows if row["series"] == "exact Hessian"]
    assert len(dots) == 120
    assert [sum(abs(dot - level) < 0.05 for dot in dots) for level in (3, 1, 0)] == [16, 72, 32]


def test_no_page_shows_or_carries_a_picture_of_another_kind():
    for path in PAGES:
        page = (SITE / path).read_text(encoding="utf-8")
        assert "data:image/png" not in page, path
        assert "data:image/svg+xml;base64" not in page, path
        assert page.count("eh-light") == page.count("eh-dark"), path
