r"""Formulas are typeset when the site is built, so that a page shows them with its first words.

MathJax runs in Node, once for each formula that it has not seen before (`_build/formulas.json`
remembers). A page gets them as SVG, each letter drawn once and then used again, with MathML for
screen readers; no script typesets anything in the browser. The TeX stays in `data-tex`, where the
makers of decks and handouts find it again. A formula that MathJax does not understand stops the
build.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable
from html import escape, unescape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ConfigError
from sphinx.ext.mathjax import html_visit_displaymath, html_visit_math
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)
HERE = Path(__file__).resolve().parent
TEX = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]", re.S)
NO_TEXT = re.compile(r"(<(script|style|pre|code|textarea|head)\b.*?</\2>|<!--.*?-->|<[^>]*>)", re.S)
TYPESET = re.compile(
    r'<mjx-container class="MathJax"( display="true")? data-tex="([^"]*)">.*?</mjx-container>', re.S
)
LETTER = re.compile(r'<g( transform="[^"]*")><path d="([^"]*)"/></g>|<path d="([^"]*)"/>')
USE = re.compile(r'<use( transform="[^"]*")? href="#(g[0-9a-f]+)"/>')
Formula = tuple[str, bool]  # TeX, and whether it is displayed


class Typesetter:
    """MathJax, and the memory of what it has typeset."""

    def __init__(self, mathjax: Path, memory: Path, tex: dict[str, object]) -> None:
        self.mathjax, self.memory, self.tex = mathjax, memory, tex
        mark = (mathjax / "INTEGRITY").read_text() + json.dumps(tex, sort_keys=True)
        sources = [HERE / "typeset.cjs", Path(__file__)]
        mark += "".join(path.read_text(encoding="utf-8") for path in sources)
        self.version = hashlib.sha256(mark.encode()).hexdigest()
        stored = json.loads(memory.read_text(encoding="utf-8")) if memory.exists() else {}
        known = stored.get("version") == self.version
        self.letters: dict[str, str] = stored["letters"] if known else {}
        self.formulas: dict[str, str] = stored["formulas"] if known else {}

    def learn(self, formulas: Iterable[Formula]) -> dict[Formula, str]:
        """Typeset what is new; the formulas that MathJax refuses, with its reason."""
        new = sorted({one for one in formulas if key(one) not in self.formulas})
        if not new:
            return {}
        task = {"mathjax": str(self.mathjax), "tex": self.tex, "formulas": new}
        done = subprocess.run(
            [node(), HERE / "typeset.cjs"], input=json.dumps(task), capture_output=True, text=True
        )
        if done.returncode:
            raise ConfigError(f"MathJax could not typeset the formulas: {done.stderr[-500:]}")
        refused = {}
        for one, result in zip(new, json.loads(done.stdout), strict=True):
            if "error" in result:
                refused[one] = unescape(result["error"])
            else:
                self.formulas[key(one)] = self.slim(result["html"], one)
        content = {"version": self.version, "letters": self.letters, "formulas": self.formulas}
        self.memory.write_text(json.dumps(content), encoding="utf-8")
        return refused

    def slim(self, html: str, formula: Formula) -> str:
        """MathJax's HTML without what no reader of it needs, and with letters by their names."""
        tex, display = formula
        html = re.sub(r' (?:data-(?:mml|mjx|c)[\w-]*|xmlns|role|unselectable)="[^"]*"', "", html)
        html = re.sub(r' (?:stroke|fill|stroke-width|jax|focusable)="[^"]*"', "", html)
        html = re.sub(r"></(path|rect)>", "/>", html)
        html = re.sub(r"&#x([0-9A-F]+);", lambda at: escape(chr(int(at[1], 16))), html)
        html = without_bare_groups(html.replace(' display="inline"', ""))
        how = ' display="true"' if display else ""
        head = f'<mjx-container class="MathJax"{how} data-tex="{escape(tex)}">'
        html = re.sub(r"<mjx-container[^>]*>", lambda _: head, html)

        def named(found: re.Match[str]) -> str:
            shape = found[3] if found[2] is None else found[2]
            name = f"g{zlib.crc32(shape.encode()):x}"
            if self.letters.setdefault(name, shape) != shape:
                raise ConfigError(f"two letters are called {name}")
            return f'<use{found[1] or ""} href="#{name}"/>'

        return LETTER.sub(named, html)

    def typeset(self, html: str, alone: bool = False) -> str:
        """The HTML of a page with its formulas typeset; `alone` makes each of them whole, so that
        it may be copied to another page.
        """
        drawn: set[str] = set()

        def draw(found: re.Match[str]) -> str:
            where, name = found[1] or "", found[2]
            if name in drawn and not alone:
                return found[0]
            drawn.add(name)
            mark = "" if alone else f' id="{name}"'
            path = f'<path{mark} d="{self.letters[name]}"/>'
            return f"<g{where}>{path}</g>" if where else path

        def one(found: re.Match[str]) -> str:
            made = self.formulas.get(key(formula_of(found)))
            return found[0] if made is None else USE.sub(draw, made)

        parts = NO_TEXT.split(html)
        return "".join(
            TEX.sub(one, part) if at % 3 == 0 else part if at % 3 == 1 else ""
            for at, part in enumerate(parts)
        )


def without_bare_groups(svg: str) -> str:
    """An SVG without the groups that change nothing.

    >>> without_bare_groups('<g><g transform="scale(2)"><g><path/></g></g></g>')
    '<g transform="scale(2)"><path/></g>'
    """
    parts, bare = re.split(r"(</?g\b[^>]*>)", svg), []
    for at, part in enumerate(parts):
        if part == "</g>":
            parts[at] = "" if bare.pop() else part
        elif at % 2:
            bare.append(part == "<g>")
            parts[at] = "" if bare[-1] else part
    return "".join(parts)


def key(formula: Formula) -> str:
    """The name of a formula in the memory."""
    return hashlib.sha256(json.dumps(formula).encode()).hexdigest()[:20]


def formula_of(found: re.Match[str]) -> Formula:
    """What stands between the delimiters."""
    return unescape(found[1] or found[2]).strip(), found[2] is not None


def formulas_in(html: str) -> list[Formula]:
    r"""The formulas of a page, but not what looks like one in its code.

    >>> formulas_in(r'<p>\(a&lt;b\)</p><pre>\(c\)</pre><div>\[d\]</div>')
    [('a<b', False), ('d', True)]
    """
    return [formula_of(found) for part in NO_TEXT.split(html)[::3] for found in TEX.finditer(part)]


def with_tex(html: str) -> str:
    r"""The HTML of a page with its formulas as TeX again.

    >>> made = '<mjx-container class="MathJax" data-tex="a&lt;b"><svg></svg></mjx-container>'
    >>> with_tex(f"<p>{made}</p>")
    '<p>\\(a&lt;b\\)</p>'
    """
    return TYPESET.sub(lambda found: rf"\[{found[2]}\]" if found[1] else rf"\({found[2]}\)", html)


def node() -> Path:
    """The machine's Node, or the one that a wheel put into the environment."""
    beside = Path(sys.executable).with_name("node")
    found = shutil.which("node") or (str(beside) if beside.exists() else None)
    if found is None:
        raise ConfigError("formulas need Node: remove the folder vendor, then `make book` gets it")
    return Path(found)


def typesetter(app: Sphinx) -> Typesetter:
    """The typesetter of a build."""
    if not hasattr(app, "typesetter"):
        mathjax, memory = Path(app.confdir) / "vendor" / "mathjax", Path(app.outdir).parent
        tex = app.config.mathjax3_config["tex"]
        app.typesetter = Typesetter(mathjax, memory / "formulas.json", tex)  # type: ignore[attr-defined]
    return app.typesetter  # type: ignore[attr-defined]


def typeset_files(app: Sphinx, paths: Iterable[Path], alone: bool = False) -> None:
    """Typeset pages in place; a formula that can't be typeset is a warning with its page."""
    maker = typesetter(app)
    pages = {path: path.read_text(encoding="utf-8") for path in paths}
    pages = {path: with_tex(page) for path, page in pages.items() if formulas_in(page)}
    wanted = {path: formulas_in(page) for path, page in pages.items()}
    refused = maker.learn(one for formulas in wanted.values() for one in formulas)
    for path, formulas in wanted.items():
        for formula in formulas:
            if formula in refused:
                LOGGER.warning(
                    "the formula %s can't be typeset: %s",
                    *(formula[0], refused[formula]),
                    location=path.relative_to(app.outdir).with_suffix("").as_posix(),
                    type="formulas",
                )
        path.write_text(maker.typeset(pages[path], alone), encoding="utf-8")


def typeset_site(app: Sphinx, error: Exception | None) -> None:
    """Typeset every page that Sphinx has written."""
    if error is None and app.builder.format == "html":
        typeset_files(app, sorted(Path(app.outdir).rglob("*.html")))


def visit_display(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula as TeX, also one that brings its own environment."""
    if node["nowrap"]:
        self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
        self.body.append(rf"\[{self.encode(node.astext())}\]</div>")
        raise nodes.SkipNode
    html_visit_displaymath(self, node)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_html_math_renderer("typeset", (html_visit_math, None), (visit_display, None))
    app.connect("build-finished", typeset_site, priority=800)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
