"""Launch, edit and download buttons, derived from the repository the site is built from.

Where the repository's `origin` is a public forge, the pages link to it, to Binder and (for
GitHub) to Colab. Anywhere else there is no such button: a dead one is worse than none. The
executed notebook of a page can be downloaded in either case.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective

from execution import executed_path
from notebook_text import NO_ADDRESS, install_line, with_expanded_text

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
        """Name the repository where one is known, and what to put there otherwise."""
        line = install_line(self.config.html_theme_options["repository_url"] or NO_ADDRESS)
        return [nodes.literal_block(line, line, language="text")]


def offer_notebook(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Put the executed notebook beside the page's source and let the theme link to it."""
    executed = executed_path(app, page)
    if doctree is not None and executed.exists():
        target = Path(app.outdir) / "_sources" / f"{page}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(with_expanded_text(nbformat.read(executed, as_version=4)), target)
        context["ipynb_source"] = f"{page}.ipynb"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_directive("install-line", InstallLine)
    app.connect("config-inited", derive_buttons)
    app.connect("html-page-context", offer_notebook, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
