"""Build the site strictly: every notebook runs, and any warning or error output is a failure.

`--all` reads every page again, because Sphinx repeats a warning only for pages that it reads.
Executed cells still come from the cache when neither they nor the package changed
(see `book/_ext/execution.py`).
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PROBLEM = re.compile(r"WARNING: |ERROR: |CRITICAL: |Error|error:")
PROGRESS = re.compile(r"(\S+\.md): (Executed notebook in [\d.]+ seconds|Using cached notebook)")


def build(root: Path) -> tuple[bool, str]:
    """Build the book in `root`; whether it is clean, and the whole log."""
    output = root / "_build"
    shutil.rmtree(output / "html", ignore_errors=True)
    jupyter_book = Path(sys.executable).with_name("jupyter-book")
    lines = []
    with subprocess.Popen(
        [jupyter_book, "build", ".", "--all", "-W", "-n", "--keep-going"],
        cwd=root,
        env=dict(os.environ, PYDEVD_DISABLE_FILE_VALIDATION="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout or []:
            lines.append(COLOUR.sub("", line.rstrip()).replace(f"{root}/", ""))
            if note := PROGRESS.search(lines[-1]):
                print(f"  {note[1]}: {note[2].lower()}", flush=True)
    log = "\n".join(lines)
    output.mkdir(exist_ok=True)
    (output / "build.log").write_text(log)
    return process.returncode == 0 and (output / "html" / "index.html").exists(), log


def main() -> int:
    """Build the book of this repository and say where it is, or what is wrong with it."""
    started = time.monotonic()
    print("Building the book", flush=True)
    clean, log = build(ROOT)
    if not clean:
        problems = [line for line in log.splitlines() if PROBLEM.search(line)]
        print("\n".join(dict.fromkeys(problems)), file=sys.stderr)
        print(
            "\nThe build failed. Each line above names the file, and the cell or line, to mend; "
            "the whole log is in _build/build.log.",
            file=sys.stderr,
        )
        return 1
    print(f"Built in {time.monotonic() - started:.0f} s. Open it:")
    print(f"  {(ROOT / '_build' / 'html' / 'index.html').as_uri()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
