"""What a reference leads to, shown in place.

A link to a theorem, an exercise, an equation, a figure, a term or a citation is marked with
`data-preview`. What it leads to on another page lies in a script of that page's name below
`_static/previews`, which `previews.js` loads when a reader first asks: a page that was opened from
a file may load scripts, but no other page.
"""

import json
import posixpath
import re
from pathlib import Path

from sphinx.application import Sphinx

from formulas import formulas_in, typesetter, with_tex

LINK = re.compile(
    r'<a class="([\w -]*\breference internal)"( data-preview="")? href="([^"#]*)#([^"]+)"'
)
WANTED = re.compile(
    r'<(?P<tag>div) class="(?:proof (?!admonition)[\w-]+|exercise|math|citation)[^"]*" id="[^"]+"'
    r'|<(?P<figure>figure) (?!class="eh-live)[^>]*id="[^"]+"'
    r'|<(?P<term>dt) id="term-[^"]+"'
)
OWN = re.compile(r'<a class="headerlink".*?</a>|<svg\b.*?</svg>|<button.*?</button>', re.S)
ID = re.compile(r' id="([^"]+)"')
IMAGE = re.compile(r'( src=")(?:\.\./)*(_images/)')


def element(page: str, start: int, tag: str) -> str:
    """The element that starts at a place of a page.

    >>> element("<div><div>a</div>b</div>c", 0, "div")
    '<div><div>a</div>b</div>'
    """
    depth = 0
    for found in re.compile(rf"<(/?){tag}\b").finditer(page, start):
        depth += -1 if found[1] else 1
        if depth == 0:
            return page[start : page.index(">", found.start()) + 1]
    return ""


def targets(page: str) -> dict[str, str]:
    """What on a page may be previewed: the HTML by its id, without links and ids.

    >>> targets('<dl><dt id="term-bulk">bulk</dt><dd><p>Many <a href="x">eigenvalues</a>.</p></dd>')
    {'term-bulk': '<dt>bulk</dt><dd><p>Many eigenvalues.</p></dd>'}
    """
    found = {}
    for start in WANTED.finditer(page):
        tag = start["tag"] or start["figure"] or start["term"]
        html = element(page, start.start(), tag)
        if tag == "dt":
            html += element(page, page.index("<dd", start.end()), "dd")
        name = ID.findall(start[0])[0]
        html = OWN.sub("", html)
        found[name] = IMAGE.sub(r"\1\2", ID.sub("", re.sub(r"</?a\b[^>]*>", "", html)))
    return found


def write_previews(app: Sphinx, error: Exception | None) -> None:
    """Mark the links that have a preview, and write what they show."""
    if error is not None or app.builder.format != "html":
        return
    root = Path(app.outdir)
    paths = {path.relative_to(root).as_posix(): path for path in root.glob("book/**/*.html")}
    pages = {name: with_tex(path.read_text(encoding="utf-8")) for name, path in paths.items()}
    known = {name: targets(page) for name, page in pages.items()}
    asked: dict[str, set[str]] = {}
    for name, page in pages.items():

        def marked(found: re.Match[str], name: str = name) -> str:
            folder = posixpath.dirname(name)
            there = posixpath.normpath(posixpath.join(folder, found[3])) if found[3] else name
            if found[4] not in known.get(there, ()):
                return found[0]
            if there != name:
                asked.setdefault(there, set()).add(found[4])
            return f'<a class="{found[1]}" data-preview="" href="{found[3]}#{found[4]}"'

        changed = LINK.sub(marked, page)
        if changed != page:
            paths[name].write_text(changed, encoding="utf-8")
    for name, ids in asked.items():
        write_script(app, name, {one: known[name][one] for one in sorted(ids)})


def write_script(app: Sphinx, name: str, shown: dict[str, str]) -> None:
    """Write the script that holds what links lead to on one page."""
    maker = typesetter(app)
    maker.learn(one for html in shown.values() for one in formulas_in(html))
    content = {one: maker.typeset(html, alone=True) for one, html in shown.items()}
    page = name.removesuffix(".html")
    file = Path(app.outdir) / "_static" / "previews" / f"{page}.js"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, ensure_ascii=False).replace("</", "<\\/")
    file.write_text(f"(window.previews??={{}})[{json.dumps(page)}]={text};\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("build-finished", write_previews, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
