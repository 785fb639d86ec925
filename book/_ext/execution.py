"""Execute honestly: a cache that sees the package, and failures that name their cell.

jupyter-cache looks at a notebook's cells only, so after an edit in `src` it would still show the
old numbers. Here the cache folder carries a digest of the package and of the pinned versions:
change either, and every notebook runs again.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


def content_digest(root: Path) -> str:
    """A digest of everything besides its own cells that a notebook's outputs depend on.

    Names and contents of the package's files and of the constraints; not their dates.
    """
    digest = hashlib.sha256()
    sources = sorted(path for path in (root / "src").rglob("*.[pt][yo]*") if path.is_file())
    for path in [*sources, root / "constraints.txt"]:
        if path.exists() and path.suffix != ".pyc":
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def choose_cache(app: Sphinx, config: Config) -> None:
    """Put the cache of executed notebooks in a folder named after the package's content."""
    root = Path(app.confdir)
    config.nb_execution_cache_path = str(root / "_build" / "jupyter_cache" / content_digest(root))


def executed_path(app: Sphinx, docname: str) -> Path:
    """Where MyST-NB leaves the executed notebook of a page."""
    return Path(app.outdir).parent / "jupyter_execute" / f"{docname}.ipynb"


def restore_cached_outputs(app: Sphinx, env: BuildEnvironment) -> None:
    """Write the outputs of pages that came from the cache, which MyST-NB leaves without them."""
    cache = get_cache(app.config.nb_execution_cache_path)
    for docname in sorted(env.found_docs):
        path = executed_path(app, docname)
        if path.exists():
            with suppress(KeyError):
                notebook = nbformat.read(path, as_version=4)
                _, merged = cache.merge_match_into_notebook(notebook)
                path.write_text(nbformat.writes(merged), encoding="utf-8")


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
                        *(number, output.ename, output.evalue.splitlines()[0]),
                        cell.source.strip().splitlines()[0],
                        location=docname,
                        type="execution",
                    )
        if outcome["error"] != "CellExecutionError":
            LOGGER.warning("stopped by %s", outcome["error"], location=docname, type="execution")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("config-inited", choose_cache)
    app.connect("env-check-consistency", restore_cached_outputs, priority=100)
    app.connect("env-check-consistency", name_failing_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
