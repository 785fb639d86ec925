"""Execute pages for real and rewrite their reference notebooks.

Run it after a change that is meant to change outputs, and read the diff before committing it. What
verdicts rest on and what has changed is shown; the changelog must name it (`verdicts.py`).
Name pages on the command line (`linear_chains`, `depth_not_data/proofs`) to accept those only.
With `--prose` nothing is executed: references whose code is unchanged get the new text around it.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_notebook

import verdicts
from reference import (
    loosened,
    name_of,
    notebooks,
    source_notebook,
    stripped,
    with_outputs_of,
    write,
)

AT_ONCE = 2  # pages executed at the same time, one thread each
TIMEOUT = 600  # seconds that one cell may take


def accept(page: Path) -> str:
    """Execute one page and write its reference beside it; what is wrong with it, or nothing."""
    started = time.monotonic()
    notebook = source_notebook(page)
    if escapes := loosened(name_of(page), notebook):
        return "\n".join(escapes)
    folder = {"metadata": {"path": page.parent}}
    try:
        NotebookClient(notebook, timeout=TIMEOUT, resources=folder).execute()
    except CellExecutionError as error:
        return f"{name_of(page)}: {error}"
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                return f"{name_of(page)}, cell {number} writes to stderr: {output.text}"
    write(stripped(notebook), page.with_suffix(".ipynb"))
    print(f"{name_of(page)}: accepted in {time.monotonic() - started:.1f} s", flush=True)
    return ""


def accept_prose(page: Path) -> str:
    """Write the page's text into its reference and keep the outputs; what is wrong, or nothing."""
    reference = page.with_suffix(".ipynb")
    executed = nbformat.read(reference, as_version=4) if reference.exists() else new_notebook()
    notebook = with_outputs_of(executed, source_notebook(page))
    if notebook is None:
        return f"{name_of(page)}: its code has changed, so it must be executed"
    write(notebook, reference)
    return ""


def main(names: list[str]) -> int:
    """Accept the named pages, or all, two at a time."""
    os.environ["EXACTHESSIAN_STRICT"] = "1"  # a claim that does not pass is an error
    job = accept_prose if "--prose" in names else accept
    names = [name for name in names if name != "--prose"]
    known = {name_of(page): page for page in notebooks()}
    if unknown := set(names) - known.keys():
        print(f"no such page: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 1
    chosen = [known[name] for name in names or known]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        problems = [problem for problem in pool.map(job, chosen) if problem]
    print("\n".join(problems), file=sys.stderr, end="")
    verdicts.show_changes()
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
