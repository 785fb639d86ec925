"""Every picture says in words what it shows: an image without alt text stops the build."""

from pathlib import PurePosixPath

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


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-resolved", require_alt_text)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
