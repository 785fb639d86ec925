"""A Content-Security-Policy in every page: load from this site only, run only what was built.

A script that stands in a page, or an attribute that is one, runs if its hash is in the policy; so
what gets into a page later, by whatever way, does not. `'self'` is the site's own host. A page that
was opened from a disk has none, and `file:` stands for it; a page from a host may load no file.
"""

import ast
import base64
import hashlib
import html
import re
from pathlib import Path

SITE = "'self' file:"
MARK = '<meta http-equiv="Content-Security-Policy"'
CHARSET = re.compile(r"<meta charset=[^>]*>", re.I)
INLINE = re.compile(r"<script\b([^>]*)>(.*?)</script>", re.S | re.I)
HANDLER = re.compile(r"""\son[a-z]+=(?:"([^"]*)"|'([^']*)')""")
KIND = re.compile(r"""\btype=["']?([^"'\s>]*)""")
RUNS = {"", "module", "text/javascript", "application/javascript"}
SPEAKER = "reveal/notes.js"  # it opens a window and writes a page with a script into it


def hashed(script: str) -> str:
    """A script as a policy names it.

    >>> hashed("alert(1)")
    "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
    """
    digest = hashlib.sha256(script.replace("\r\n", "\n").encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def inline_scripts(page: str) -> list[str]:
    """The scripts that stand in a page; data in a script element is none.

    >>> inline_scripts('<script>a()</script><script src="b.js"></script>')
    ['a()']
    >>> inline_scripts('<script type="application/json">{}</script>')
    []
    """
    return [
        content
        for attributes, content in INLINE.findall(page)
        if " src=" not in attributes and "".join(KIND.findall(attributes)) in RUNS
    ]


def handlers(page: str) -> list[str]:
    """The scripts that are attributes of a page's elements.

    >>> handlers('<button onclick="go(&quot;on&quot;)">')
    ['go("on")']
    """
    return [html.unescape(double or single) for double, single in HANDLER.findall(page)]


def speaker_script(notes: str) -> str:
    r"""The script of the speaker view, from the string in which reveal's plugin has it.

    >>> speaker_script(r'open("<body><script>\n\tgo(\"on\")<\/script>")')
    '\n\tgo("on")'
    """
    found = re.search(r"<script>(.*?)<\\?/script>", notes, re.S)
    if found is None:
        raise ValueError(f"{SPEAKER} has no script to be hashed")
    return ast.literal_eval(f'"{found[1]}"')


def policy(page: str, more: list[str]) -> str:
    """The policy of a page, which may also run the scripts `more`."""
    attributes = handlers(page)
    scripts = sorted({*map(hashed, [*inline_scripts(page), *attributes, *more])})
    scripts += ["'unsafe-hashes'"] if attributes else []
    rules = {
        "default-src": "'none'",
        "script-src": " ".join([SITE, *scripts]),
        "style-src": f"{SITE} 'unsafe-inline'",  # formulas and figures are styled as they are made
        "img-src": f"{SITE} data: blob:",
        "font-src": f"{SITE} data:",
        "connect-src": SITE,
        "frame-src": SITE,
        "worker-src": "blob:",
        "form-action": SITE,
        "base-uri": "'none'",
    }
    return "; ".join(f"{name} {sources}" for name, sources in rules.items())


def protect(site: Path) -> None:
    """Put its policy into every page of a site that has none yet."""
    for path in sorted(site.rglob("*.html")):
        page = path.read_text(encoding="utf-8")
        if MARK in page:
            continue
        notes = site / "_static" / SPEAKER
        more = [speaker_script(notes.read_text(encoding="utf-8"))] if SPEAKER in page else []
        tag = f'{MARK} content="{policy(page, more)}">'
        place = CHARSET.search(page)
        at = place.end() if place else 0
        path.write_text(f"{page[:at]}\n{tag}{page[at:]}", encoding="utf-8")
