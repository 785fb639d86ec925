"""Open JupyterLab on the chapters, each `.md` opening as a notebook."""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VIEWERS = {"markdown": "Jupytext Notebook", "myst": "Jupytext Notebook"}


def open_markdown_as_notebooks(prefix: Path) -> None:
    """Make "Jupytext Notebook" the viewer of Markdown files in the JupyterLab below `prefix`."""
    settings = prefix / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(settings.read_text()) if settings.exists() else {}
    known["@jupyterlab/docmanager-extension:plugin"] = {"defaultViewers": VIEWERS}
    settings.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    open_markdown_as_notebooks(Path(sys.prefix))
    if "--set-up-only" not in sys.argv:
        command = [sys.executable, "-m", "jupyterlab", str(ROOT / "book")]
        os.execv(sys.executable, command)
