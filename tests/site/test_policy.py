"""Every page says what it may load and run, obeys that itself, and holds others to it."""

import html
import re
import zipfile

import pytest
from site_pages import PAGES, SITE

import policy

FILES = [path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")]
BUILT = sorted(name for name in FILES if not name.startswith("_static/"))
ALLOWED = re.compile(
    r"'(self|none|unsafe-hashes|sha256-[\w+/]{43}=)'|file:|data:|blob:"
)  # nobody else's host
EXCEPTIONS = {"style-src": {"'unsafe-inline'"}}
BROKEN = """window.broken = [];
addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI, sample }) =>
  window.broken.push(`${violatedDirective}: ${blockedURI} ${sample}`));"""


def rules(page: str) -> dict[str, set[str]]:
    found = re.search(rf'{policy.MARK} content="([^"]*)">', page)
    assert found, "no policy"
    before = page[: found.start()]
    assert "<script" not in before
    assert "<link" not in before
    parts = [rule.split() for rule in html.unescape(found[1]).split("; ")]
    return {name: set(sources) for name, *sources in parts}


@pytest.mark.parametrize("path", BUILT)
def test_a_page_may_load_from_its_own_site_only(path):
    page = (SITE / path).read_text(encoding="utf-8")
    found = rules(page)
    assert found["default-src"] == {"'none'"}
    for name, sources in found.items():
        rest = {source for source in sources if not ALLOWED.fullmatch(source)}
        assert rest <= EXCEPTIONS.get(name, set()), name


@pytest.mark.parametrize("name", ["course.zip", "the-exact-hessian.zip"])
def test_pages_that_are_carried_away_have_it_too(name):
    with zipfile.ZipFile(SITE / name) as archive:
        pages = [entry for entry in archive.namelist() if entry.endswith(".html")]
        assert pages
        for entry in pages:
            assert rules(archive.read(entry).decode())


def one_of_each_kind() -> list[str]:
    """A page for every set of scripts that pages load."""
    kinds = {}
    for path in [*PAGES, *BUILT]:
        page = (SITE / path).read_text(encoding="utf-8")
        loaded = {
            name.rpartition("/")[2] for name in re.findall(r'<script[^>]* src="([^"]+)"', page)
        }
        kinds.setdefault((frozenset(loaded), frozenset(policy.handlers(page))), path)
    return sorted(set(kinds.values()) - {"index.html"})


@pytest.mark.parametrize("where", ["http", "file"])
@pytest.mark.parametrize("path", one_of_each_kind())
def test_a_page_breaks_no_rule(browser, address, path, where):
    page = browser.new_page()
    page.add_init_script(BROKEN)
    page.goto(f"{address if where == 'http' else SITE.as_uri()}/{path}", wait_until="load")
    for button in page.locator("button:visible").element_handles():
        button.dispatch_event("click")  # also what another button has hidden meanwhile
    assert page.evaluate("window.broken") == []
    page.close()


def test_what_was_not_built_does_not_run(browser):
    page = browser.new_page()
    page.add_init_script(BROKEN)
    page.goto(f"{SITE.as_uri()}/book/notation.html", wait_until="load")
    page.evaluate(
        """() => { document.body.insertAdjacentHTML("beforeend", '<img src="x" onerror="bad = 1">');
             const script = document.createElement("script"); script.textContent = "bad = 1";
             document.body.append(script);
             fetch("https://example.org/").catch(() => null); }"""
    )
    page.wait_for_function("window.broken.length >= 3")
    assert page.evaluate("typeof bad") == "undefined"
    page.close()
