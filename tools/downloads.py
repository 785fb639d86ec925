"""Run the notebooks that the built site offers as a stranger would: away from the repository.

An empty environment gets Jupyter's kernel and what the notebooks' first cells install, from the
wheel of the site; every other cell then runs in a folder that holds nothing else. Name pages on the
command line, or run all.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"
AT_ONCE = 2  # notebooks at the same time, one thread each
KERNEL = "stranger"


def downloads(names: list[str]) -> dict[str, NotebookNode]:
    """The notebooks that pages offer, by the page's name; all, or those of the named pages."""
    folder = SITE / "_sources" / "book"
    found = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.ipynb"))
    }
    if not found or set(names) - set(found):
        raise SystemExit(f"no such notebook in {folder}: run `make book` first, and name pages")
    return {name: nbformat.read(found[name], as_version=4) for name in names or found}


def install_line(notebook: NotebookNode) -> str:
    """What the first cell of a notebook gives to pip."""
    return re.search(r"^%pip install (.*)$", notebook.cells[0].source, flags=re.M)[1]


def make_stranger(folder: Path, lines: set[str]) -> None:
    """An environment in which only these lines were run, and a kernel that runs in it."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    held = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    for line in ["ipykernel", *sorted(lines)]:
        print(f"  pip install {line}", flush=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *shlex.split(line)], cwd=folder, env=held, check=True)
    spec = folder / "jupyter" / "kernels" / KERNEL / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    # A verdict that does not come out is an error, as in the build.
    strict = {"EXACTHESSIAN_STRICT": "1", "PYTHONPATH": ""}
    spec.write_text(
        json.dumps({"argv": argv, "display_name": KERNEL, "language": "python", "env": strict})
    )


def problem_of(notebook: NotebookNode, folder: Path) -> str:
    """What stops a notebook in an empty folder, "" if nothing does."""
    notebook.cells = notebook.cells[1:]
    with tempfile.TemporaryDirectory(dir=folder) as alone:
        client = NotebookClient(
            notebook, timeout=600, kernel_name=KERNEL, resources={"metadata": {"path": alone}}
        )
        try:
            client.execute()
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            return str(error).strip().splitlines()[-1]
        if left := sorted(path.name for path in Path(alone).iterdir()):
            return f"it leaves {', '.join(left)} behind"
    return ""


def outcomes(notebooks: dict[str, NotebookNode], folder: Path) -> Iterator[bool]:
    """Run the notebooks and say how each went; whether it ran."""

    def one(name: str) -> bool:
        started = time.monotonic()
        problem = problem_of(notebooks[name], folder)
        took = f"{time.monotonic() - started:.0f} s"
        print(f"{'FAIL' if problem else 'ok  '} {name} ({took}) {problem}", flush=True)
        return not problem

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(one, notebooks)


def main(names: list[str]) -> int:
    """Install once, run every notebook; the exit code says whether all ran."""
    notebooks = downloads(names)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for wheel in SITE.glob("*.whl"):
            shutil.copy(wheel, folder)
        make_stranger(folder, {install_line(notebook) for notebook in notebooks.values()})
        os.environ["JUPYTER_PATH"] = str(folder / "jupyter")
        ran = list(outcomes(notebooks, folder))
    print(f"{sum(ran)} of {len(ran)} notebooks run away from the repository.")
    return not all(ran)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
