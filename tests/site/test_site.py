"""What a reader sees: the built site in Chromium, on localhost, with every other host blocked."""

import json
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
from site_pages import LOOKS, PAGES, ROOT, SITE

import reference
from exacthessian import claims
from page_budget import fronts

FIRST = json.loads((ROOT / "tests" / "first_edition.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("path", ["search.html", "genindex.html", "book/depth_not_data.html"])
def test_a_page_opens_in_every_look(visit, path, look):
    seen = visit(path, look)
    check_formulas_and_pictures(seen)
    check_look(seen, look)


WITH_SLIDERS = [
    f"book/{reference.name_of(page)}.html"
    for page in reference.pages()
    if "figures.slider(" in page.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole(visit, path):
    """Opened once, then looked at in the dark and on a phone, with every slider moved in each."""
    seen = visit(path)
    check_formulas_and_pictures(seen)
    for look, key in zip(LOOKS, ("ArrowRight", "ArrowLeft", "ArrowRight"), strict=True):
        seen.page.emulate_media(color_scheme=LOOKS[look]["color_scheme"])
        seen.page.set_viewport_size(LOOKS[look]["viewport"])
        if path in WITH_SLIDERS:
            move_every_slider(seen, key)
        check_look(seen, look)


def check_look(seen, look):
    """The theme is the reader's, nothing is wider than the screen, and nothing went wrong."""
    theme = "dark" if look == "dark" else "light"
    seen.page.wait_for_function(f"() => document.documentElement.dataset.theme === '{theme}'")
    overflow = "() => document.documentElement.scrollWidth - window.innerWidth"
    assert seen.page.evaluate(overflow) <= 0
    assert seen.outside == []
    assert seen.errors == []


def check_formulas_and_pictures(seen):
    """Every formula is set, and every picture is there and says what it shows."""
    unrendered = seen.page.evaluate(
        """() => [...document.querySelectorAll('.bd-article .math')]
                 .filter(m => !m.querySelector('mjx-container')).map(m => m.textContent)"""
    )
    assert unrendered == []
    broken = "() => [...document.querySelectorAll('mjx-merror, [data-mjx-error]')].length"
    assert seen.page.evaluate(broken) == 0
    seen.page.evaluate(
        """() => Promise.all([...document.querySelectorAll('img[loading=lazy]')].map(i => {
                 i.loading = 'eager';
                 return i.decode(); }))"""
    )
    pictures = seen.page.evaluate(
        """() => [...document.querySelectorAll('img:not(.eh-finding img)')].map(i =>
                 ({source: i.src, alt: i.alt, loaded: i.complete && i.naturalWidth > 0}))"""
    )
    for picture in pictures:
        name = picture["source"].rsplit("/", 1)[-1]
        assert picture["loaded"], picture
        assert picture["alt"].strip(), picture
        assert name not in picture["alt"], picture


def move_every_slider(seen, key):
    """Each slider of a flip-book changes its picture, without a kernel."""
    for book in seen.page.locator(".eh-frames").all():
        shown = book.locator(".eh-frame img:visible")
        for knob in book.get_by_role("slider").all():
            before = shown.get_attribute("src")
            for _ in range(3):
                knob.press(key)
            assert shown.get_attribute("src") != before, knob.get_attribute("id")


def test_the_front_door_leads_to_the_introduction(visit):
    seen = visit("index.html")
    seen.page.wait_for_url("**/book/intro.html")
    assert "The Exact Hessian" in seen.page.title()


def test_the_formulas_are_there(visit):
    seen = visit("book/notation.html")
    assert seen.page.locator("mjx-container").count() > 20


def test_the_theme_toggles(visit):
    seen = visit("book/intro.html")
    theme = "document.documentElement.dataset.mode"
    modes = set()
    for _ in range(3):
        modes.add(seen.page.evaluate(theme))
        seen.page.locator("button.theme-switch-button:visible").first.click()
    assert modes == {"auto", "light", "dark"}


def test_search_finds_a_word(visit):
    seen = visit("search.html?q=Kronecker")
    seen.page.locator(".eh-answers li a").first.wait_for()
    pages = seen.page.locator("#search-results li a[href*='book/notation.html']")
    pages.first.wait_for(state="attached")  # folded below the answers
    assert seen.outside == []
    assert seen.errors == []


def test_a_copy_button_copies_the_cell(visit):
    seen = visit("book/intro.html")
    cell = seen.page.locator("div.cell_input").first
    cell.hover()
    cell.locator("button.copybtn").click()
    copied = seen.page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == cell.locator("pre").inner_text().strip()


def test_the_executed_notebook_can_be_downloaded(visit, address):
    seen = visit("book/notation.html")
    link = seen.page.locator("a.btn-download-notebook-button").first.get_attribute("href")
    notebook = seen.page.request.get(urljoin(f"{address}/book/notation.html", link)).json()
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in code if "print(" in "".join(cell["source"]))


def test_a_page_reads_from_a_disk_without_a_server(visit):
    seen = visit("book/notation.html", base=SITE.as_uri())
    assert seen.outside == []
    assert seen.page.locator("mjx-container").count() > 20


def test_the_ledger_filters_in_the_browser(visit):
    seen = visit("book/ledger.html")
    controls = seen.page.locator(".eh-filter").first
    rows = seen.page.locator("table.eh-ledger-claims tbody tr:visible")
    everything = rows.count()
    controls.locator("select[data-filter=paper]").select_option("depth-not-data")
    assert 0 < rows.count() < everything
    counted = len(claims.paper("depth-not-data").leaves)
    assert controls.locator("output").inner_text() == f"{counted} rows"
    ids = rows.locator("code").all_inner_texts()
    assert all(id.startswith("depth-not-data/") for id in ids)


def test_every_claim_and_figure_has_a_cell():
    data = json.loads((SITE / "ledger.json").read_text(encoding="utf-8"))
    left_out = [row["id"] for row in [*data["claims"], *data["figures"]] if row["cell"] is None]
    assert left_out == []


def test_the_ledger_counts_and_corrects(visit):
    seen = visit("book/ledger.html", "phone")
    data = json.loads((SITE / "ledger.json").read_text(encoding="utf-8"))
    leaves = [row for row in data["claims"] if row["leaf"] and row["paper"] in claims.PAPERS]
    total = seen.page.locator("table.eh-counts tr", has_text="All papers").locator("td").last
    assert total.inner_text() == str(len(leaves))
    errata = seen.page.locator(".eh-errata li[id]")
    supported = [
        subject.anchor.replace("claim-", "erratum-", 1)
        for name in claims.PAPERS
        for subject in claims.paper(name).claims.values()
        if subject.erratum
    ]
    assert sorted(errata.evaluate_all("all => all.map(item => item.id)")) == sorted(supported)
    links = errata.evaluate_all(
        "all => all.map(item => [...item.querySelectorAll('a')].map(a => a.textContent))"
    )
    for texts in links:
        assert sum("proof" in text for text in texts) == 1
        assert sum("cell" in text for text in texts) == 1


@pytest.mark.parametrize("chapter", sorted(set(FIRST["labels"]) & fronts()))
def test_an_address_of_the_first_edition_leads_to_its_new_page(visit, chapter):
    here = LinksAndAnchors()
    here.feed((SITE / "book" / f"{chapter}.html").read_text(encoding="utf-8"))
    gone = [label for label in FIRST["labels"][chapter] if label not in here.anchors]
    seen = visit(f"book/{chapter}.html")
    moved = seen.page.evaluate("Object.keys(window.movedAnchors || {})")
    label = next(label for label in gone if label in moved)
    seen.page.goto(f"{seen.page.url.partition('#')[0]}#{label}")
    seen.page.wait_for_url(f"**/book/{chapter}/*.html#{label}")
    assert seen.page.locator(f"[id='{label}']").count() == 1


def test_the_gallery_filters_in_the_browser(visit):
    seen = visit("book/figures.html")
    controls = seen.page.locator(".eh-filter")
    rows = seen.page.locator("table.eh-ledger-figures tbody tr:visible")
    assert rows.count() == sum(len(claims.paper(name).figures) for name in claims.PAPERS)
    paper, status = (controls.locator(f"select[data-filter={n}]") for n in ("paper", "outcome"))
    paper.focus()
    seen.page.keyboard.press("ArrowDown")
    assert paper.input_value() == "depth-not-data"
    assert rows.count() == len(claims.paper("depth-not-data").figures)
    status.select_option("analogue")
    assert 0 < rows.count() < len(claims.paper("depth-not-data").figures)
    assert controls.locator("output").inner_text() == f"{rows.count()} rows"
    assert rows.first.locator("img.eh-thumb:visible").count() == 1
    paper.select_option("")
    status.select_option("not possible here")
    assert rows.count() > 0
    assert rows.locator("img").count() == 0
    assert rows.locator(".eh-no-thumb").count() == rows.count()


class LinksAndAnchors(HTMLParser):
    """The addresses that a page links to, and the names that others can link to on it."""

    def __init__(self):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])


def test_every_internal_link_and_anchor_resolves():
    parsed = {}
    for path in SITE.rglob("*.html"):
        if "_static" not in path.parts:
            parsed[path] = LinksAndAnchors()
            parsed[path].feed(path.read_text(encoding="utf-8"))
    assert len(parsed) >= len(PAGES)
    dead = []
    for path, page in parsed.items():
        for link in page.links:
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            target, anchor = urldefrag(link)
            file = (path.parent / unquote(target)).resolve() if target else path
            state = "_3d" in anchor  # of the laboratory or a live figure, not a place
            known = not anchor or state or file not in parsed
            missing = not known and unquote(anchor) not in parsed[file].anchors
            if not file.exists() or missing:
                dead.append(f"{path.relative_to(SITE)}: {link}")
    assert dead == []
