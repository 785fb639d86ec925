"""Old addresses keep working: an anchor that has moved to a page of its chapter leads there.

The first edition had one long page per chapter. A front page knows the anchors of the pages in its
folder, and a few lines of script send a reader who asks it for one of them to the right page.
"""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

ANCHORS = "anchors of all pages"  # the key under which the environment keeps them
SCRIPT = """<script>
(() => {{
  const moved = {moved};
  window.movedAnchors = moved;
  const go = () => {{
    const name = decodeURIComponent(location.hash.slice(1));
    if (name && !document.getElementById(name) && moved[name])
      location.replace(moved[name] + "#" + name);
  }};
  addEventListener("DOMContentLoaded", go);
  addEventListener("hashchange", go);
}})();
</script>"""


def note_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Remember the names that can be linked to on a page."""
    names = {name for node in doctree.findall(nodes.Element) for name in node.get("ids", [])}
    app.env.metadata[app.env.docname][ANCHORS] = sorted(names)


def moved_from(app: Sphinx, front: str) -> dict[str, str]:
    """Anchor → address from a chapter's front page, for the anchors of the pages in its folder."""
    folder = f"{front}/"
    return {
        name: f"{Path(front).name}/{docname.removeprefix(folder)}.html"
        for docname in sorted(app.env.found_docs)
        if docname.startswith(folder)
        for name in [*app.env.metadata[docname].get(ANCHORS, []), *claim_anchors(app, docname)]
    }


def claim_anchors(app: Sphinx, docname: str) -> list[str]:
    """The anchors of the verdicts on a page, which are no part of its doctree."""
    rows = (row for kind in app.env.ledger.values() for row in kind if row["cell"])
    places = (row["cell"].partition("#") for row in rows)
    return [anchor for page, _, anchor in places if page == f"{docname}.html"]


def send_on(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Put the script on every page that has a folder of pages."""
    if doctree is not None and (moved := moved_from(app, page)):
        data = json.dumps(moved, ensure_ascii=True).replace("</", "<\\/")
        context["metatags"] = context.get("metatags", "") + SCRIPT.format(moved=data)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-read", note_anchors)
    app.connect("html-page-context", send_on)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
