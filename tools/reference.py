"""Reference notebooks: what is kept of a chapter's outputs, and when two outputs agree.

A chapter is written in MyST Markdown. Beside it lies a generated notebook with its text outputs
and execution counts: the launch buttons open it, and nbval runs it and compares. This module says
what such a notebook holds (`stripped`) and how its numbers are compared (`disagreement`).
"""

import copy
import math
import re
import sys
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "book" / "_ext"))

from notebook_text import with_expanded_text  # noqa: E402

WIDGET = "application/vnd.jupyter.widget-view+json"
KEPT = ("text/plain", "text/markdown", "application/papermill.record/text/plain")
NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w])|\d+")
RTOL, ATOL = 1e-6, 1e-12
TAGS = {"hide-input", "hide-cell", "remove-input"}  # what is hidden is executed and compared
METADATA = {"tags", "nbval", "mystnb"}
HEAD = {"kernelspec", "jupytext"}
COMMENT = re.compile(r"#\s*(NBVAL_|PYTEST_VALIDATE_)\w*", re.IGNORECASE)
LOOSEST = 1e-3
# Pages with cells that are compared more loosely: how many, how loosely at most, and why.
LOOSE = {
    "beyond_edge_of_stability/bifurcations": (1, 0.15, "Lyapunov exponents of chaotic orbits"),
    "beyond_edge_of_stability/more_figures": (2, 0.1, "statistics of chaotic orbits"),
    "beyond_edge_of_stability/nonlinear": (6, 0.3, "training beyond the edge is chaotic"),
    "beyond_edge_of_stability/who_oscillates": (1, 0.1, "a statistic of a chaotic orbit"),
    "deep_linear_ufm/digits": (1, 0.03, "trained networks, printed with two digits"),
}


def pages(root: Path = ROOT) -> list[Path]:
    """All pages of the book: its own, and those of a chapter in the chapter's folder."""
    return sorted(
        page
        for page in (root / "book").rglob("*.md")
        if not {"_ext", "web", ".ipynb_checkpoints"} & set(page.relative_to(root).parts)
    )


def notebooks(root: Path = ROOT) -> list[Path]:
    """The pages of the book that are notebooks: those with a kernel in their head."""
    return [p for p in pages(root) if "\nkernelspec:\n" in p.read_text(encoding="utf-8")]


def name_of(page: Path, root: Path = ROOT) -> str:
    """What commands and tests call a page: its path below `book`, without the suffix."""
    return page.relative_to(root / "book").with_suffix("").as_posix()


def source_notebook(page: Path) -> NotebookNode:
    """A page as a notebook without outputs, with cell ids that depend on the order only."""
    notebook = with_expanded_text(jupytext.read(page))
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number:03d}"
    notebook.metadata = {"kernelspec": dict(notebook.metadata["kernelspec"], language="python")}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def loosened(name: str, notebook: NotebookNode) -> list[str]:
    """Where a page escapes comparison: what nbval would skip, or compare more loosely than listed.

    >>> from nbformat.v4 import new_code_cell, new_notebook
    >>> loosened("page", new_notebook(cells=[new_code_cell("# NBVAL_SKIP")]))
    ['page, cell 1: # NBVAL_SKIP']
    """
    problems, loose = [], []
    for number, cell in enumerate(notebook.cells, start=1):
        tolerance = cell.metadata.get("nbval", {})
        loose += [rtol for rtol in [tolerance.get("rtol", 0)] if not 0 <= rtol <= LOOSEST]
        unknown = [
            *sorted(set(cell.metadata) - METADATA),
            *sorted(set(cell.metadata.get("tags", [])) - TAGS),
            *sorted(set(tolerance) - {"rtol"}),
            *sorted(set(cell.metadata.get("mystnb", {})) - {"figure", "image"}),
            *(match[0] for match in COMMENT.finditer(cell.source)),
        ]
        problems += [f"{name}, cell {number}: {what}" for what in unknown]
    count, most, _ = LOOSE.get(name, (0, 0.0, ""))
    if (len(loose), max(loose, default=0.0)) != (count, most):
        problems.append(f"{name}: tolerances {loose} are not those that reference.LOOSE explains")
    return problems


def compared(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """The part of a cell's outputs that another machine must reproduce.

    Printed text, text forms of results, glued numbers. Not pictures (their bytes differ
    between machines), not HTML (it repeats the text), not a widget's representation (it
    contains pictures).
    """
    kept = []
    for output in copy.deepcopy(outputs):
        if output["output_type"] in ("display_data", "execute_result"):
            data = {} if WIDGET in output["data"] else output["data"]
            output["data"] = {kind: data[kind] for kind in KEPT if kind in data}
            output["metadata"] = {}
            if not output["data"]:
                continue
        stream = output.get("name")
        if kept and stream is not None and kept[-1].get("name") == stream:
            kept[-1]["text"] += output["text"]  # where a stream was cut depends on the moment
        else:
            kept.append(output)
    return kept


def stripped(executed: NotebookNode) -> NotebookNode:
    """An executed notebook reduced to sources, execution counts and compared outputs."""
    notebook = copy.deepcopy(executed)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = compared(cell.outputs)
            cell.metadata.pop("execution", None)
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    return notebook


def with_outputs_of(executed: NotebookNode, source: NotebookNode) -> NotebookNode | None:
    """A notebook without outputs given those of one that ran the same code; None if it did not."""
    notebook = copy.deepcopy(source)
    new, old = (
        [cell for cell in cells if cell.cell_type == "code"]
        for cells in (notebook.cells, executed.cells)
    )
    if [cell.source for cell in new] != [cell.source for cell in old]:
        return None
    for cell, ran in zip(new, old, strict=True):
        cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
    return notebook


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook so that equal content gives equal bytes."""
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook, version=4) + "\n", encoding="utf-8")


def disagreement(reference: str, computed: str, rtol: float, atol: float) -> str | None:
    """What differs between two texts when numbers are compared as numbers; None if they agree.

    Words and integers must be equal; a number with a point or an exponent must agree within
    `rtol` of its size, or within `atol`.

    >>> disagreement("gap 3 at 0.25", "gap 3 at 0.25000000001", 1e-6, 1e-12) is None
    True
    >>> disagreement("gap 3", "gap 4", 1e-6, 1e-12)
    '3 became 4'
    >>> disagreement("0.25 wide", "0.25 long", 1e-6, 1e-12)
    "'wide' became 'long'"
    """
    old_words, new_words = (NUMBER.sub(" # ", text).split() for text in (reference, computed))
    if old_words != new_words:
        return _first_difference(old_words, new_words)
    for old, new in zip(NUMBER.findall(reference), NUMBER.findall(computed), strict=True):
        old, new = old.replace("−", "-"), new.replace("−", "-")
        if old == new:
            continue
        if _is_integer(old) and _is_integer(new):
            return f"{old} became {new}"
        close = math.isclose(float(old), float(new), rel_tol=rtol, abs_tol=atol)
        if not close or math.isinf(float(old)):  # beyond 1e308 all numbers would be equal
            return f"{old} became {new} (relative tolerance {rtol:g})"
    return None


def _is_integer(number: str) -> bool:
    return number.lstrip("+-").isdigit()


def _first_difference(old: list[str], new: list[str]) -> str:
    for before, after in zip(old, new, strict=False):
        if before != after:
            return f"{before!r} became {after!r}"
    return f"{len(old)} words became {len(new)}"
