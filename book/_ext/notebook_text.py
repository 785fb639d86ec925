"""The text of a page for a reader who has a notebook and no site.

Any Jupyter knows Markdown and TeX, and JupyterLab's MyST renders theorems, proofs and exercises.
None knows this book's own TeX macros and directives. `expanded` writes the macros out and replaces
the directives: `{closed-form}` by the code it stands for, `{install-line}` by the line, any other
by a sentence that says what the site shows there.

Who opens a page itself in JupyterLab sees its source. There an unknown directive is a red box and
an unknown role is its own text, so a page may write a directive of ours as a role on a line of its
own, {closed-form}`papers.depth_not_data.theorem_3_5`, or {install-line}`install line` where there
is no argument. Sphinx reads such a line as the directive.
"""

import re
from functools import cache
from importlib import metadata
from pathlib import Path

import yaml
from nbformat import NotebookNode
from sphinx.application import Sphinx

from closed_form import formula

HERE = Path(__file__).resolve().parent
WHEEL = f"exacthessian-{metadata.version('exacthessian')}-py3-none-any.whl"


def expanded(markdown: str) -> str:
    r"""The same text in words that any Jupyter knows.

    >>> print(expanded("$\\tr A^\\R$, then\n\n```{verdicts} depth-not-data\n```"))
    $\operatorname{tr} A^{\mathbb{R}}$, then
    <BLANKLINE>
    *(The site shows the verdicts here.)*
    """
    return without_macros(_own_directives().sub(_in_plain_markdown, as_directives(markdown)))


def without_macros(text: str) -> str:
    """The same text with our TeX macros written out."""
    return _own_macros().sub(_written_out, text)


def as_directives(markdown: str) -> str:
    """Each line that is one of our roles as the directive it stands for.

    >>> print(as_directives("{verdicts}`depth-not-data`\\n\\nThe end."))
    ```{verdicts} depth-not-data
    ```
    <BLANKLINE>
    The end.
    """
    return _own_roles().sub(_directive, markdown)


def as_roles(markdown: str) -> str:
    """The inverse: each directive of ours as a role on a line of its own.

    >>> as_roles("```{install-line}\\n```"), as_roles("```{verdicts} depth-not-data\\n```")
    ('{install-line}`install line`', '{verdicts}`depth-not-data`')
    """
    return _own_directives().sub(_role, markdown)


def with_expanded_text(notebook: NotebookNode) -> NotebookNode:
    """The notebook itself, with the text of its Markdown cells expanded."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = expanded(cell.source)
    return notebook


def install_line(address: str = "") -> str:
    """The line that installs the package in a notebook which is alone on somebody's server: from
    the public repository where there is one, else from the wheel that the site offers.
    """
    source = f"exacthessian[torch] @ git+{address}" if address else f"./{WHEEL}[torch]"
    return f"%pip install '{source}'"


@cache
def macros() -> dict[str, str]:
    """The TeX macros of the site, name → meaning, read from its configuration."""
    config = yaml.safe_load((HERE.parent.parent / "_config.yml").read_text(encoding="utf-8"))
    return config["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]


@cache
def directives() -> list[str]:
    """The names of the book's own directives, read from the extensions that register them."""
    sources = (path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.py")))
    return re.findall(r'app\.add_directive\("([\w-]+)"', "".join(sources))


@cache
def _own_macros() -> re.Pattern[str]:
    return re.compile(rf"(?P<script>[_^])?\\(?P<name>{'|'.join(macros())})(?![A-Za-z])")


@cache
def _own_directives() -> re.Pattern[str]:
    return re.compile(
        rf"^(?P<fence>`{{3,}}|:{{3,}})\{{(?P<name>{'|'.join(directives())})\}}"
        r"[ \t]*(?P<argument>[^\n]*)\n.*?^(?P=fence)[ \t]*$",
        re.M | re.S,
    )


@cache
def _own_roles(after: str = "") -> re.Pattern[str]:
    names = "|".join(directives())
    return re.compile(rf"^\{{(?P<name>{names})\}}`(?P<argument>[^`\n]+)`[ \t]*${after}", re.M)


def _directive(use: re.Match[str]) -> str:
    argument = "" if use["argument"] == _words(use["name"]) else f" {use['argument']}"
    return f"```{{{use['name']}}}{argument}\n```"


def _role(use: re.Match[str]) -> str:
    return f"{{{use['name']}}}`{use['argument'].strip() or _words(use['name'])}`"


def _words(name: str) -> str:
    return name.replace("-", " ")


def _written_out(use: re.Match[str]) -> str:
    meaning = macros()[use["name"]]
    return f"{use['script']}{{{meaning}}}" if use["script"] else meaning


def _in_plain_markdown(use: re.Match[str]) -> str:
    if use["name"] == "closed-form":
        return f"```python\n{formula(use['argument'].strip())}\n```"
    if use["name"] == "install-line":
        return f"```\n{install_line()}\n```"
    return f"*(The site shows the {_words(use['name'])} here.)*"


def read_roles(app: Sphinx, page: str, source: list[str]) -> None:
    """Give Sphinx the directives for the roles of a page. The second line of a directive takes the
    place of the empty line that follows, so that its messages name the right lines.
    """
    source[0] = _own_roles(after=r"(\n$)?").sub(_directive, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("source-read", read_roles)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
