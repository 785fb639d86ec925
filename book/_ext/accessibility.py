"""Pages that everybody can read.

Every picture says in words what it shows: an image without alt text stops the build. What the theme
and other extensions write wrongly is mended in the built pages: names that differ from what a
reader sees, roles that do not exist any more, ids that occur twice, and a script of 1.5 MB for the
icons that `icons.py` draws. Statements and exercises get a link to themselves.
"""

import re
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


def is_description(alt: str, uri: str) -> bool:
    """Whether an alt text describes, rather than being empty or the name of a file.

    >>> is_description("Two clusters of eigenvalues, at 1 and at 3", "a/4f2c.png")
    True
    >>> is_description("a/4f2c.png", "a/4f2c.png"), is_description("", "x.svg")
    (False, False)
    """
    name = PurePosixPath(uri).name
    return len(alt.split()) >= 3 and name not in alt and not alt.endswith((".png", ".svg", ".jpg"))


def cell_of(node: nodes.Node | None) -> str:
    """The cell that made a node, numbered as MyST-NB numbers it, or nothing for plain text."""
    while node is not None:
        if isinstance(node, nodes.Element) and "cell_index" in node:
            return f"cell {node['cell_index'] + 1}: "
        node = node.parent
    return ""


def require_alt_text(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Warn about every image of a page whose alt text says nothing."""
    for image in doctree.findall(nodes.image):
        alt = image.get("alt", "")
        if not is_description(alt, image["uri"]):
            LOGGER.warning(
                "%simage without alt text (%r): say in the cell's metadata, "
                "mystnb: {image: {alt: ...}}, or in :alt:, what is seen on it",
                cell_of(image),
                alt,
                location=image if image.line else docname,
                type="accessibility",
            )


MENDED = (
    (r'<script[^>]* src="[^"]*scripts/fontawesome\.js[^"]*"></script>\n?', ""),
    (r' data-bs-spy="scroll"', ""),  # the contents follow the reader by page.js
    (r'(<button class="[^"]*search-button-field[^>]*?) aria-label="[^"]*"', r"\1"),
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    (r'<summary>(?=<span class="toctree-toggle")', '<summary aria-label="Show or hide its pages">'),
    (r'<(i|span) class="((?:theme-switch )?fa[-srb])', r'<\1 aria-hidden="true" class="\2'),
    (r' role="doc-biblioentry"| role="list"(?= class="citation-list")', ""),
    (
        r'<div class="proof admonition([^"]*)" id="proof">',
        r'<div class="proof eh-proof admonition\1">',
    ),
    (r' id="(?:proof|exercise|solution)-content"', ""),
    (  # no line begins with the comma after a formula
        r'(?<!eh-glued">)(<span class="math notranslate nohighlight">[^<]*</span>[,.;:!?)]+)',
        r'<span class="eh-glued">\1</span>',
    ),
    (
        r'(<div class="(?:proof \w+|exercise) admonition[^"]*" id="([^"]+)">\n'
        r'<p class="admonition-title">(?:(?!headerlink).)*?)(</p>)',
        r'\1<a class="headerlink" href="#\2" title="Link to this statement">#</a>\3',
    ),
)


LIVE = re.compile(r'<figure class="eh-live[^"]*" id="([^"]+)"')
SKIP = re.compile(r'(<a href="#main-content">[^<]*</a>)')
LEAP = "Skip to the live figure"
NAVIGATION = "Skip to the contents of the book"
SIDEBAR = re.compile(
    r'(<dialog id="pst-primary-sidebar-modal"></dialog>.*?)(<main id="main-content".*?</main>)',
    re.S,
)


def mended(page: str) -> str:
    """A built page without what the theme and the extensions write wrongly. What a page says comes
    before the contents of the book, which stay on the left; the links at its top lead to its words,
    to its live figure if it has one, and to those contents.

    >>> mended('<summary aria-label="Toggle hidden content"><p>Show code</p></summary>')
    '<summary><p>Show code</p></summary>'

    Pages that a build does not write again are mended again, and must stay as they are.

    >>> box = '<div class="exercise admonition" id="e">\\n<p class="admonition-title">Exercise</p>'
    >>> mended(box).count("headerlink"), mended(mended(box)) == mended(box)
    (1, True)
    >>> formula = '<span class="math notranslate nohighlight">x</span>, so'
    >>> mended(formula) == mended(mended(formula))
    True
    >>> mended(formula).replace(formula[:-3], "x,")
    '<span class="eh-glued">x,</span> so'
    """
    for wrong, right in MENDED:
        page = re.sub(wrong, right, page)
    page = SIDEBAR.sub(r"\2\1", page)
    if NAVIGATION not in page:
        leap = f'<a href="#{live[1]}">{LEAP}</a>' if (live := LIVE.search(page)) else ""
        page = SKIP.sub(rf'\1{leap}<a href="#pst-primary-sidebar">{NAVIGATION}</a>', page)
    return page


def mend_pages(app: Sphinx, error: Exception | None) -> None:
    """Mend every page of the site."""
    if error is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            page = path.read_text(encoding="utf-8")
            if (better := mended(page)) != page:
                path.write_text(better, encoding="utf-8")


def words_of(paragraph: nodes.paragraph) -> str:
    """The text of a paragraph, without the markup that a directive of ours put into it."""
    texts = paragraph.findall(nodes.Text)
    return " ".join(
        "".join(text for text in texts if not isinstance(text.parent, nodes.raw)).split()
    )


def describe(app: Sphinx, page: str, template: str, context: Any, doctree: Any) -> None:
    """Tell search engines and previews of links what a page is about: its first paragraph."""
    paragraphs = map(words_of, doctree.findall(nodes.paragraph)) if doctree is not None else []
    if first := next(filter(None, paragraphs), ""):
        text = escape(first[:160])
        title = escape(context.get("title", ""))
        context["metatags"] = context.get("metatags", "") + (
            f'<meta name="description" content="{text}">'
            f'<meta property="og:title" content="{title}">'
            f'<meta property="og:description" content="{text}">'
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-resolved", require_alt_text)
    app.connect("html-page-context", describe)
    app.connect("build-finished", mend_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
