"""Launch, edit and download buttons, derived from the repository the site is built from.

Where the repository's `origin` is a public forge, the pages link to it, to Binder and (for
GitHub) to Colab. Anywhere else there is no such button: a dead one is worse than none. The
executed notebook of a page can be downloaded in either case; its first cell installs the package,
from the repository or from a wheel that the site carries.

`{local-lines}` shows how to run the book on this computer, `{install-line}` the line for any other,
`{online}` what opens in Binder and Colab, and `{run-times}` how long the pages took.
"""

import base64
import hashlib
import re
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from myst_nb.sphinx_ import NbMetadataCollector
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective

from exacthessian import claims
from execution import executed_path
from ledger import Slot
from notebook_text import WHEEL, install_line, with_expanded_text

ALSO_IMPORTED = {"sklearn": "scikit-learn", "myst_nb": "myst-nb"}  # by some pages
FORGES = ("github.com", "gitlab.com", "bitbucket.org")
REMOTE = re.compile(r"https://(?:[^@/]+@)?([^/:@]+)/([\w.-]+(?:/[\w.-]+)+)/?")


def public_address(remote: str) -> str | None:
    """The address of a public forge's repository, without credentials; None for anything else.

    >>> public_address("https://someone:secret@github.com/owner/name.git")
    'https://github.com/owner/name'
    >>> public_address("git@github.com:owner/name.git") is None
    True
    >>> public_address("https://git.internal/owner/name") is None
    True
    """
    match = REMOTE.fullmatch(remote.strip())
    if match is None or match[1] not in FORGES:
        return None
    return f"https://{match[1]}/{match[2].removesuffix('.git')}"


def git(root: Path, *arguments: str) -> str:
    """What git answers, or nothing where there is no git or no repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def theme_options(address: str | None, branch: str) -> dict[str, Any]:
    """The theme's options for a repository, or the ones that show no button."""
    if address is None:
        return {"repository_url": "", "launch_buttons": {}}
    buttons = {"notebook_interface": "jupyterlab", "binderhub_url": "https://mybinder.org"}
    if address.startswith("https://github.com/"):
        buttons["colab_url"] = "https://colab.research.google.com"
    return {
        "repository_url": address,
        "repository_branch": branch,
        "path_to_docs": "",
        "use_repository_button": True,
        "use_edit_page_button": True,
        "use_issues_button": "bitbucket" not in address,
        "launch_buttons": buttons,
    }


def derive_buttons(app: Sphinx, config: Config) -> None:
    """Set the theme's options from the repository's `origin` and branch."""
    root = Path(app.confdir)
    address = public_address(git(root, "remote", "get-url", "origin"))
    branch = git(root, "rev-parse", "--abbrev-ref", "HEAD")
    config.html_theme_options = {
        **config.html_theme_options,
        **theme_options(address, "main" if branch in ("", "HEAD") else branch),
    }


class InstallLine(SphinxDirective):
    """The line that installs the package in a notebook which is alone on somebody's server."""

    def run(self) -> list[nodes.Node]:
        """Name the repository where one is known, and the site's own wheel otherwise."""
        return code(install_line(self.config.html_theme_options["repository_url"]), "text")


class LocalLines(SphinxDirective):
    """How to run the book on this computer."""

    def run(self) -> list[nodes.Node]:
        """Start from the public repository where one is known, and from the copy at hand if not."""
        address = self.config.html_theme_options["repository_url"]
        if not address:
            return code(
                "$ make lab    # the pages, live in JupyterLab\n$ make book   # this site\n"
                "$ make test   # everything that it promises"
            )
        folder = address.rpartition("/")[2]
        return code(f"$ git clone {address}\n$ cd {folder}\n$ make lab")


class Online(SphinxDirective):
    """What can be opened on somebody else's computer."""

    def run(self) -> list[nodes.Node]:
        """Say what the buttons do, or that this copy of the site has none, and why."""
        buttons = self.config.html_theme_options["launch_buttons"]
        if not buttons:
            text = (
                "This copy of the site was built from a repository without a public address, so "
                "its pages have no button for Binder or Colab. Use one of the ways above."
            )
        else:
            colab = ", or on Colab after its first cell" if "colab_url" in buttons else ""
            text = (
                f"The rocket at the top of a page opens it on Binder{colab}. A page needs less "
                "than the 1 to 2 GB of memory that they give; a first start takes minutes."
            )
        return [nodes.paragraph(text=text)]


def code(lines: str, language: str = "console") -> list[nodes.Node]:
    """A block of code."""
    return [nodes.literal_block(lines, lines, language=language)]


class TimesSlot(Slot):
    """A sentence that waits for all pages to have run."""


class RunTimes(SphinxDirective):
    """How long the pages took where this site was built."""

    def run(self) -> list[nodes.Node]:
        """Leave a slot."""
        return [nodes.paragraph("", "", TimesSlot(""))]


def fill_times(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Say how long the pages took."""
    ran = {page: NbMetadataCollector.get_exec_data(app.env, page) for page in app.env.found_docs}
    seconds = {page: data["runtime"] for page, data in ran.items() if data and data["runtime"]}
    for slot in list(doctree.findall(TimesSlot)):
        text = "No page has run."
        if seconds:
            slowest = max(seconds, key=lambda page: seconds[page])
            text = (
                f"Where this site was built, the {len(seconds)} pages with code took "
                f"{sum(seconds.values()) / 60:.0f} minutes one after another, the slowest "
                f"({app.env.titles[slowest].astext()}) {seconds[slowest]:.0f} seconds."
            )
        slot.replace_self(nodes.Text(text))


def with_install_cell(notebook: NotebookNode, address: str) -> NotebookNode:
    """The notebook itself, with a first cell that installs what it imports."""
    source = "".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    more = [f" {name}" for module, name in ALSO_IMPORTED.items() if f"from {module}" in source]
    where = "" if address else f" {WHEEL}, from the site's page Run, must lie beside it."
    lines = f"# Run this first, unless the package is installed.{where}\n{install_line(address)}"
    notebook.cells.insert(0, new_code_cell(lines + "".join(more), metadata={"tags": ["install"]}))
    return notebook


def offer_notebook(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Put the executed notebook beside the page's source and let the theme link to it."""
    executed = executed_path(app, page)
    if doctree is not None and executed.exists():
        target = Path(app.outdir) / "_sources" / f"{page}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        notebook = with_expanded_text(nbformat.read(executed, as_version=4))
        address = app.config.html_theme_options["repository_url"]
        nbformat.write(with_install_cell(notebook, address), target)
        context["ipynb_source"] = f"{page}.ipynb"


def write_wheel(folder: Path) -> None:
    """The package as a wheel, from what is installed: pip needs nothing else of ours."""
    about = metadata.distribution("exacthessian")
    info = f"exacthessian-{about.version}.dist-info"
    tag = "Wheel-Version: 1.0\nGenerator: this book\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {f"{info}/METADATA": about.read_text("METADATA") or "", f"{info}/WHEEL": tag}
    content = {name: text.encode() for name, text in files.items()}
    for path in sorted(claims.PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content[path.relative_to(claims.PACKAGE.parent).as_posix()] = path.read_bytes()
    record = [f"{name},{digest(data)},{len(data)}\n" for name, data in content.items()]
    content[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in content.items():
            wheel.writestr(zipfile.ZipInfo(name), data)  # without dates: equal content, equal file


def digest(data: bytes) -> str:
    """A hash as a wheel's record has it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def offer_wheel(app: Sphinx, error: Exception | None) -> None:
    """Put the wheel into the site."""
    if error is None:
        write_wheel(Path(app.outdir))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.setup_extension("ledger")
    app.add_node(TimesSlot)
    app.add_directive("install-line", InstallLine)
    app.add_directive("local-lines", LocalLines)
    app.add_directive("online", Online)
    app.add_directive("run-times", RunTimes)
    app.connect("config-inited", derive_buttons)
    app.connect("doctree-resolved", fill_times)
    app.connect("html-page-context", offer_notebook, priority=100)
    app.connect("build-finished", offer_wheel)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
