"""Execute the chapters for real and rewrite their reference notebooks.

Run it after a change that is meant to change outputs, and read the diff before committing it.
Name chapters on the command line to accept those only.
"""

import sys
import time
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from reference import ROOT, chapters, source_notebook, stripped, write


def accept(page: Path) -> None:
    """Execute one chapter and write its reference beside it."""
    notebook = source_notebook(page)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": page.parent}})
    client.execute()
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                raise SystemExit(f"{page.name}, cell {number} writes to stderr: {output.text}")
    write(stripped(notebook), page.with_suffix(".ipynb"))


def main(names: list[str]) -> int:
    """Accept the named chapters, or all."""
    for page in chapters():
        if names and page.stem not in names:
            continue
        started = time.monotonic()
        try:
            accept(page)
        except CellExecutionError as error:
            print(f"{page.relative_to(ROOT)}: {error}", file=sys.stderr)
            return 1
        print(f"{page.relative_to(ROOT)}: accepted in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
