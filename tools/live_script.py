"""Write what the package shows live figures with in a notebook, from the scripts of the book."""

import json

from reference import ROOT  # first: it makes the extensions importable

from live_figure import notebook_parts  # isort: skip

PLACE = ROOT / "src" / "exacthessian" / "data" / "live_figures.json"


def text() -> str:
    """The file's content."""
    parts = notebook_parts(ROOT / "book" / "web")
    return json.dumps(parts, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
