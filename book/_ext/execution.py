"""Execute honestly: a cache that sees the package, and failures that name their cell.

jupyter-cache looks at a notebook's cells only, so after an edit in `src` it would still show the
old numbers. Here the cache folder carries a digest of the package and of the pinned versions:
change either, and every notebook runs again. Pages that are not in the cache are executed two at a
time, before MyST-NB asks for them one by one.
"""

import gc
import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import myst_nb.core.execute.cache
import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.cache.db import NbCacheRecord
from jupyter_cache.cache.main import JupyterCacheBase
from jupyter_cache.executors.utils import ExecutionResult, single_nb_execution
from myst_nb.core.read import create_nb_reader
from myst_nb.sphinx_ import NbMetadataCollector
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

from exacthessian import claims, live

LOGGER = logging.getLogger(__name__)
AT_ONCE = 2  # pages executed at the same time, one thread each


def content_digest(root: Path) -> str:
    """A digest of everything besides its own cells that a notebook's outputs depend on.

    The interpreter, names and contents of the package's files and of the constraints; not dates.
    """
    digest = hashlib.sha256(sys.version.encode())
    sources = sorted(path for path in (root / "src").rglob("*") if path.is_file())
    for path in [*sources, root / "constraints.txt"]:
        made = any(part == "__pycache__" or part.endswith(".egg-info") for part in path.parts)
        if path.exists() and not made:
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def choose_cache(app: Sphinx, config: Config) -> None:
    """Put the cache of executed notebooks in a folder named after the package's content.

    The key that seals the records of its notebooks lies beside them; kernels inherit it.
    """
    root = Path(app.confdir)
    folder = root / "_build" / "jupyter_cache" / content_digest(root)
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "seal"
    if not key.exists():
        key.write_text(secrets.token_hex())
    os.environ[claims.SEAL] = key.read_text()
    os.environ[live.STRICT] = "1"
    config.nb_execution_cache_path = str(folder)


def execute_notebook(
    nb: NotebookNode, cwd: str, timeout: int, allow_errors: bool, meta_override: bool = True
) -> ExecutionResult:
    """Execute a notebook in place, and leave an error in the cell that stopped it, however it did.

    A kernel that died or did not answer in time leaves no trace of its own.
    """
    running: list[int] = []

    def note(cell: NotebookNode, cell_index: int) -> None:
        running.append(cell_index)

    options: dict[str, Any] = {"meta_override": meta_override, "on_cell_start": note}
    try:
        result = single_nb_execution(nb, cwd, timeout, allow_errors, **options)
    except DeadKernelError as error:
        result = ExecutionResult(nb, cwd, 0.0, error, str(error))
    if result.err is not None and not isinstance(result.err, CellExecutionError):
        name, said = type(result.err).__name__, str(result.err)
        nb.cells[running[-1]].outputs.append(
            new_output("error", ename=name, evalue=said, traceback=[f"{name}: {said}"])
        )
    return result


def in_cache(cache: JupyterCacheBase, notebook: NotebookNode) -> bool:
    """Whether the cache has a notebook's outputs; what a killed build left of them is removed."""
    try:
        record = cache.match_cache_notebook(notebook)
    except KeyError:
        return False
    try:
        cache.get_cache_bundle(record.pk)
    except (KeyError, ValueError):  # no file, or half of one
        shutil.rmtree(Path(cache.path) / "executed" / record.hashkey, ignore_errors=True)
        NbCacheRecord.remove_record(record.pk, cache.db)
        return False
    return True


def execute_ahead(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Execute the pages that are to be read and not in the cache, some at the same time."""
    cache = get_cache(app.config.nb_execution_cache_path)
    waiting: dict[str, NotebookNode] = {}
    for docname in docnames:
        path = env.doc2path(docname)
        text = Path(path).read_text(encoding="utf-8")
        reader = create_nb_reader(path, env.myst_config, env.mystnb_config, text)
        notebook = reader.read(text) if reader else None
        runs = notebook is not None and any(cell.cell_type == "code" for cell in notebook.cells)
        if runs and not in_cache(cache, notebook):
            waiting[path] = notebook

    def execute(path: str) -> ExecutionResult:
        timeout = env.mystnb_config.execution_timeout
        return execute_notebook(waiting[path], str(Path(path).parent), timeout, False)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for path, result in zip(waiting, pool.map(execute, waiting), strict=True):
            if result.err is None:  # MyST-NB runs a failing page again, and reports it
                name = Path(path).relative_to(app.srcdir)
                LOGGER.info("%s: Executed notebook in %.1f seconds", name, result.time)
                bundle = CacheBundleIn(result.nb, path, data={"execution_seconds": result.time})
                cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def executed_path(app: Sphinx, docname: str) -> Path:
    """Where MyST-NB leaves the executed notebook of a page."""
    return Path(app.outdir).parent / "jupyter_execute" / f"{docname}.ipynb"


def executed_notebooks(app: Sphinx) -> Iterator[tuple[str, NotebookNode]]:
    """Every page that is a notebook, with its outputs."""
    for docname in sorted(app.env.found_docs):
        path = executed_path(app, docname)
        if path.exists():
            yield docname, _read(path, path.stat().st_mtime_ns)


@cache
def _read(path: Path, written: int) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def restore_cached_outputs(app: Sphinx, env: BuildEnvironment) -> None:
    """Write the outputs of pages that came from the cache, which MyST-NB leaves without them."""
    cache = get_cache(app.config.nb_execution_cache_path)
    for docname, notebook in executed_notebooks(app):
        if any(cell.get("outputs") for cell in notebook.cells):
            continue  # it was read in an earlier build, or executed in this one
        with suppress(KeyError):
            _, merged = cache.merge_match_into_notebook(notebook)
            executed_path(app, docname).write_text(nbformat.writes(merged), encoding="utf-8")


def name_failing_cells(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn once per failed notebook, with its file, cell, line and error."""
    for docname in sorted(env.found_docs):
        outcome = NbMetadataCollector.get_exec_data(env, docname)
        if outcome is None or outcome["succeeded"]:
            continue
        notebook = nbformat.read(executed_path(app, docname), as_version=4)
        for number, cell in enumerate(notebook.cells, start=1):
            for output in cell.get("outputs", []):
                if output.output_type == "error":
                    LOGGER.warning(
                        "cell %d raised %s: %s  (it starts: %s)",
                        *(number, output.ename, (output.evalue.splitlines() or [""])[0]),
                        (cell.source.strip().splitlines() or [""])[0],
                        location=docname,
                        type="execution",
                    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    gc.set_threshold(200_000, 100, 10)  # a build makes millions of nodes, which all stay
    myst_nb.core.execute.cache.single_nb_execution = execute_notebook  # it has no hook for this
    app.connect("config-inited", choose_cache)
    app.connect("env-before-read-docs", execute_ahead)
    app.connect("env-check-consistency", restore_cached_outputs, priority=100)
    app.connect("env-check-consistency", name_failing_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
