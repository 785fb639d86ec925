"""Build the site strictly: every notebook runs, and any warning or error output is a failure.

Sphinx repeats a warning only for pages that it reads. So everything is read again unless the last
build was clean and nothing but pages has changed since; then only those are. Executed cells come
from the cache when neither they nor the package changed (see `book/_ext/execution.py`).

Sphinx writes into a side folder, and only a clean site takes the place of `_build/html`, at once:
whatever stops a build, what is served is whole.
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
sys.path.append(str(ROOT / "book" / "_ext"))

import policy  # noqa: E402

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
def alone(root: Path) -> Iterator[int]:
    """Hold the build folder; refuse while another build holds it, or where nothing can be written.

    The lock is the system's, so it ends with its holders, however they end.
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
        yield lock.fileno()


def build(root: Path) -> tuple[bool, str]:
    """Build the book in `root`; whether it is clean, and the whole log."""
    if fault := environment.web_fault(root / "vendor"):
        return False, f"ERROR: {fault}"
    with alone(root) as lock:
        try:
            return build_alone(root, lock)
        except OSError as error:
            return False, f"ERROR: {error}"


def build_alone(root: Path, lock: int) -> tuple[bool, str]:
    """Build the book in a folder that no other build uses, as long as `lock` is open."""
    output = root / "_build"
    site = output / "work" / "_build" / "html"
    stamp, state = output / "clean", fingerprint(root)
    unchanged = stamp.exists() and stamp.read_text() == state
    stamp.unlink(missing_ok=True)
    if not unchanged:
        shutil.rmtree(site, ignore_errors=True)
    jupyter_book = Path(sys.executable).with_name("jupyter-book")
    options = ["--path-output", output / "work", "-W", "-n", "--keep-going"]
    options += [] if unchanged else ["--all"]
    lines = []
    with subprocess.Popen(
        [jupyter_book, "build", ".", *options],
        cwd=root,
        env=dict(os.environ, PYDEVD_DISABLE_FILE_VALIDATION="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=[lock],
    ) as process:
        for line in process.stdout or []:
            lines.append(COLOUR.sub("", line.rstrip()).replace(f"{root}/", ""))
            if note := PROGRESS.search(lines[-1]):
                print(f"  {note[1]}: {note[2].lower()}", flush=True)
    log = "\n".join(lines)
    (output / "build.log").write_text(log)
    clean = process.returncode == 0 and (site / "index.html").exists()
    if clean:
        policy.protect(site)
        publish(site, output / "html")
        stamp.write_text(state)
    return clean, log


def publish(made: Path, served: Path) -> None:
    """Let a copy of a whole site take the place of the one that is served."""
    new, old = served.with_suffix(".new"), served.with_suffix(".old")
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(made, new)
    if served.exists():
        served.rename(old)
    new.rename(served)
    shutil.rmtree(old, ignore_errors=True)


def advice(log: str) -> str:
    """What to do about a failed build."""
    if any(sign in log for sign in environment.SPACE_SIGNS):
        return "The disk is full. Free some space, then run the same command again."
    return (
        "Each line above names the file, and the cell or line, to mend; "
        "the whole log is in _build/build.log."
    )


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
        print(f"\nThe build failed. {advice(log)}", file=sys.stderr)
        if (ROOT / "_build" / "html").exists():
            print("_build/html is still what the last clean build made.", file=sys.stderr)
        return 1
    print(f"Built in {time.monotonic() - started:.0f} s. Open it:")
    print(f"  {(ROOT / '_build' / 'html' / 'index.html').as_uri()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
