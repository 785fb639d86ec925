"""Where the built site is, its pages, the looks in which a reader may see them, and axe."""

from pathlib import Path

import reference

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"
PAGES = [f"book/{reference.name_of(page)}.html" for page in reference.pages()]
EVERY_PAGE = [
    *(
        f"book/{p.relative_to(ROOT / 'book').with_suffix('.html')}"
        for p in sorted((ROOT / "book").rglob("*.md"))
    ),
    *("search.html", "genindex.html"),
]
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}

# The rules of access: what breaks one on the open page.
AXE = (ROOT / "vendor" / "axe" / "axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
BROKEN = """(rules) => axe.run({exclude: ['mjx-container']}, {runOnly: rules}).then((found) =>
    found.violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html}`)))"""
