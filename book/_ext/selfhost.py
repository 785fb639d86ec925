"""The site asks no other host for anything: scripts, styles, fonts and pictures are its own.

Links that a reader may click are free to leave; what a page loads by itself is not.
"""

import re
from html.parser import HTMLParser
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ConfigError
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
LOADED_BY_SRC = {"script", "img", "iframe", "audio", "video", "source", "embed", "track", "input"}
LOADED_BY_REL = {"stylesheet", "preload", "modulepreload", "icon", "preconnect", "dns-prefetch"}
# The tags that may load something, which are few among those of a formula's drawing.
LOADING = re.compile(
    rf"<(?:{'|'.join(sorted(LOADED_BY_SRC))}|link|object)\b(?:[^>\"']|\"[^\"]*\"|'[^']*')*>", re.I
)


class LoadedResources(HTMLParser):
    """Collects the addresses that a browser fetches by itself when it opens a page.

    >>> page = LoadedResources()
    >>> page.feed('<a href="https://a.org/x"></a><script src="https://b.org/y.js"></script>')
    >>> page.addresses
    ['https://b.org/y.js']
    """

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the address of a tag that loads one."""
        values = {name: value or "" for name, value in attrs}
        if tag in LOADED_BY_SRC and "src" in values:
            self.addresses.append(values["src"])
        if tag == "link" and LOADED_BY_REL & set(values.get("rel", "").split()):
            self.addresses.append(values.get("href", ""))
        if tag == "object":
            self.addresses.append(values.get("data", ""))


def leaves_the_site(address: str) -> bool:
    """Whether an address names another host.

    >>> leaves_the_site("//cdn.example/x.js"), leaves_the_site("../_static/x.js")
    (True, False)
    """
    return address.startswith(("//", "http:", "https:", "ftp:", "ws:", "wss:"))


def require_vendored_files(app: Sphinx) -> None:
    """Stop before a build whose pages would silently lack maths."""
    name = "mathjax/node-main.js"
    if not (Path(app.confdir) / "vendor" / name).exists():
        raise ConfigError(f"vendor/{name} is missing: run `make book`, which fetches it")


def check_page(app: Sphinx, error: Exception | None) -> None:
    """Warn about everything that a built page would load from another host."""
    if error is not None:
        return
    for path in sorted(Path(app.outdir).rglob("*.html")):
        page = LoadedResources()
        for tag in LOADING.findall(path.read_text(encoding="utf-8")):
            page.reset()  # else what follows a script tag would be its content
            page.feed(tag)
        for address in filter(leaves_the_site, page.addresses):
            LOGGER.warning(
                "loads %s from another host; the site must work without a network",
                address,
                location=path.relative_to(app.outdir).with_suffix("").as_posix(),
                type="selfhost",
            )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("builder-inited", require_vendored_files)
    app.connect("build-finished", check_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
