"""Run a page, then each of its cells once more from where the page ends, and compare.

A reader goes back to a cell and runs it again. That must give what it gave before; it does not if
a later cell has given one of its names another meaning. Name pages on the command line, or rerun
all; each cell that raises or prints something else is named.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from IPython.core.displayhook import CapturingDisplayHook
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from reference import (
    ATOL,
    KEPT,
    ROOT,
    RTOL,
    WIDGET,
    disagreement,
    name_of,
    notebooks,
    source_notebook,
)

AT_ONCE = 2  # pages at the same time, one thread each


def run_cell(shell: InteractiveShell, source: str) -> tuple[str, str]:
    """What a cell prints and shows as text, and the error that ends it, if any."""
    shown: list[dict[str, Any]] = []
    shell.display_trap.hook = CapturingDisplayHook(shell, shown)
    with capture_output() as captured:
        result = shell.run_cell(source)
    shown += [{"data": output.data} for output in captured.outputs]
    texts = [
        str(output["data"][kind])
        for output in shown
        if WIDGET not in output["data"]
        for kind in KEPT
        if kind in output["data"]
    ]
    error = result.error_before_exec or result.error_in_exec
    printed = "\n".join([captured.stdout, *texts])
    return printed, f"{type(error).__name__}: {error}" if error else ""


def in_a_fork(job: Callable[[], Any]) -> Any:
    """What `job` returns in a copy of this process, which it can't change."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with open(writer, "w") as pipe:
                json.dump(job(), pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer)


def rerun(page: Path) -> list[str]:
    """A line for each cell of a page that raises, or that gives something else the second time."""
    os.chdir(page.parent)
    # What is run here does not belong into the reader's history.
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    cells = [cell.source for cell in source_notebook(page).cells if cell.cell_type == "code"]
    first = []
    for number, source in enumerate(cells, start=1):
        printed, error = run_cell(shell, source)
        if error:
            return [f"code cell {number} raises: {error}"]
        first.append(printed)
    problems = []
    for number, (source, before) in enumerate(zip(cells, first, strict=True), start=1):
        again, error = in_a_fork(lambda source=source: run_cell(shell, source))
        if error:
            problems.append(f"code cell {number} raises when run again: {error}")
        elif difference := disagreement(before, again, RTOL, ATOL):
            problems.append(f"code cell {number} gives something else again: {difference}")
    return problems


def main(names: list[str]) -> int:
    """Rerun the named pages, or all, each in a process of its own; whether any cell misbehaved."""
    if names[:1] == ["--here"]:
        started = time.monotonic()
        problems = rerun(ROOT / "book" / f"{names[1]}.md")
        print(f"{names[1]}: {len(problems)} cells ({time.monotonic() - started:.0f} s)")
        print("".join(f"  {problem}\n" for problem in problems), end="", flush=True)
        return bool(problems)
    # A claim that does not pass is an error; a copied process would wait for other threads forever.
    strict = {"EXACTHESSIAN_STRICT": "1", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    strict |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

    def one(name: str) -> int:
        command = [sys.executable, __file__, "--here", name]
        return subprocess.run(command, env={**os.environ, **strict}).returncode

    chosen = [name_of(page) for page in notebooks() if not names or name_of(page) in names]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return any(list(pool.map(one, chosen)))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
