"""Build the site strictly: every notebook runs, and any warning or error output is a failure.

Sphinx repeats a warning only for pages that it reads. So everything is read again unless the last
build was clean and nothing but pages has changed since; then only those are. Executed cells come
from the cache when neither they nor the package changed (see `book/_ext/execution.py`).
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import environment

ROOT = Path(__file__).resolve().parent.parent
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PROBLEM = re.compile(r"WARNING: |ERROR: |CRITICAL: |Error|error:")
PROGRESS = re.compile(r"(\S+\.md): (Executed notebook in [\d.]+ seconds|Using cached notebook)")


def fingerprint(root: Path) -> str:
    """A digest of all that a page may depend on besides itself."""
    digest = hashlib.sha256(sys.version.encode())
    names = ("_config.yml", "_toc.yml", "constraints.txt", "book/references.bib")
    folders = ("src", "book/_ext", "book/web", "tools")
    files = [root / name for name in names]
    files += sorted(file for folder in folders for file in (root / folder).rglob("*"))
    for file in files:
        made = any(part == "__pycache__" or part.endswith(".egg-info") for part in file.parts)
        if file.is_file() and not made:
            digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold the build folder; refuse while another build holds it, or where nothing can be written.

    The lock is the system's, so it ends with its holder, however that ends.
    """
    try:
        (root / "_build").mkdir(exist_ok=True)
        lock = (root / "_build" / "lock").open("w")
    except OSError as error:
        raise SystemExit(f"The build can't write to {root / '_build'}: {error.strerror}.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"Another build is at work in {root / '_build'}: wait for it, or stop it."
            ) from None
        yield


def build(root: Path) -> tuple[bool, str]:
    """Build the book in `root`; whether it is clean, and the whole log."""
    if fault := environment.web_fault(root / "vendor"):
        return False, f"ERROR: {fault}"
    with alone(root):
        return build_alone(root)


def build_alone(root: Path) -> tuple[bool, str]:
    """Build the book in a folder that no other build uses."""
    output = root / "_build"
    stamp, state = output / "clean", fingerprint(root)
    unchanged = stamp.exists() and stamp.read_text() == state
    stamp.unlink(missing_ok=True)
    if not unchanged:
        shutil.rmtree(output / "html", ignore_errors=True)
    jupyter_book = Path(sys.executable).with_name("jupyter-book")
    read_all = [] if unchanged else ["--all"]
    lines = []
    with subprocess.Popen(
        [jupyter_book, "build", ".", *read_all, "-W", "-n", "--keep-going"],
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
    clean = process.returncode == 0 and (output / "html" / "index.html").exists()
    if clean:
        stamp.write_text(state)
    return clean, log


def main() -> int:
    """Build the book of this repository and say where it is, or what is wrong with it."""
    started = time.monotonic()
    print("Building the book", flush=True)
    if environment.web_fault(ROOT / "vendor"):
        environment.fetch_web_files(ROOT / "vendor", environment.npm_command(ROOT / ".venv"))
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
