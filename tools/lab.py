"""Open JupyterLab on the pages, each `.md` opening as a notebook.

What is given on the command line goes to JupyterLab. `--set-up-only` writes its settings and
stops there.
"""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {
    "@jupyterlab/docmanager-extension:plugin": {
        "defaultViewers": {"markdown": "Jupytext Notebook", "myst": "Jupytext Notebook"}
    },
    # nobody is asked for news, and no other host for updates
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}
AS_ROOT = "JupyterLab does not start as root unless it is told to: make lab ARGS=--allow-root"


def write_settings(prefix: Path) -> None:
    """Make these the defaults of the JupyterLab below `prefix`; others that it has are kept."""
    path = prefix / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | SETTINGS, indent=2) + "\n")


def main(arguments: list[str]) -> None:
    """Write the settings, then become JupyterLab."""
    write_settings(Path(sys.prefix))
    if arguments == ["--set-up-only"]:
        return
    if os.geteuid() == 0 and "--allow-root" not in arguments:
        raise SystemExit(AS_ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", str(ROOT / "book"), *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
