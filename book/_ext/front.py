"""The front page: findings with a small picture each, and doors.

{finding}`depth_not_data: The gap is the depth` shows the first picture of that page beside the
sentence. {door}`course: Teach: slides and plans` is a link; one to a page that the book does not
have is left out.
"""

from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from execution import executed_notebooks
from gallery import Thumbnail, pictures_in
from ledger import Slot

SHOWN = "pages whose first picture is shown"  # a key of a page's metadata


class FindingSlot(Slot):
    """A finding that waits for its picture."""


class Finding(SphinxDirective):
    """One finding: the page that has it, and a sentence."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Leave a slot; a page that is not there stops the build."""
        name, _, sentence = self.arguments[0].partition(": ")
        page = f"book/{name}"
        if page not in self.env.found_docs:
            raise self.error(f"finding: the book has no page {name!r}")
        self.env.metadata[self.env.docname].setdefault(SHOWN, []).append(page)
        return [FindingSlot("", page=page, sentence=sentence)]


class Door(SphinxDirective):
    """Where to go from here: a page, a word, and a few more."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """A link, if the book has the page."""
        page, word, more = self.arguments[0].split(": ")
        if f"book/{page}" not in self.env.found_docs:
            return []
        up = "../" * self.env.docname.count("/")
        inner = f"<strong>{escape(word)}</strong> {escape(more)}"
        html = f'<a class="eh-door" href="{up}book/{page}.html">{inner}</a>'
        return [nodes.raw("", html, format="html")]


def first_picture(notebook: Any) -> Thumbnail | None:
    """The first picture that a notebook shows."""
    return next((shown for cell in notebook.cells for shown in pictures_in(cell)), None)


def collect(app: Sphinx, env: BuildEnvironment) -> None:
    """Find the pictures that findings show."""
    pages = {page for docname in env.found_docs for page in env.metadata[docname].get(SHOWN, [])}
    for page, notebook in executed_notebooks(app):
        if page in pages and (small := first_picture(notebook)):
            env.thumbnails[page] = small


def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the picture of its page beside each finding."""
    up = "../" * docname.count("/")
    for slot in list(doctree.findall(FindingSlot)):
        small = app.env.thumbnails.get(slot["page"])
        image = small.html(up, alt="") if small is not None else ""
        words = f"<span>{escape(slot['sentence'])}</span>"
        html = f'<a class="eh-finding" href="{up}{slot["page"]}.html">{image}{words}</a>'
        slot.replace_self(nodes.raw("", html, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.setup_extension("gallery")
    app.add_node(FindingSlot)
    app.add_directive("finding", Finding)
    app.add_directive("door", Door)
    app.connect("env-check-consistency", collect)
    app.connect("doctree-resolved", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
