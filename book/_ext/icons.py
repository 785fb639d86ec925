"""The few icons that the site shows, without the script of 1.5 MB and the font that hold thousands.

The theme draws its icons from Font Awesome. Here the ones that some page or script names are taken
out of the theme's own copy and become masks in its style sheet; font, script and source maps stay
away from the site.
"""

import re
import shutil
from pathlib import Path
from urllib.parse import quote

import pydata_sphinx_theme
from sphinx.application import Sphinx
from sphinx.errors import ConfigError

THEME = Path(pydata_sphinx_theme.__file__).parent / "theme" / "pydata_sphinx_theme" / "static"
KINDS = {"fa-solid", "fa-regular", "fa-brands", "fa-lg", "fa-classic"}
NAME = re.compile(r"\bfa-[a-z][a-z-]*")
FONT = re.compile(
    r'@font-face\{[^}]*fontawesome[^}]*\}|(?:\.fa-[\w-]+:before,?)+\{content:"[^"]*"\}'
)
LOOK = (
    ':is(.fas,.fa-solid)::before{content:""!important;display:inline-block;width:1.25em;height:1em;'
    "background:currentColor;mask:var(--icon) center/contain no-repeat}"
)


def names_in(text: str) -> set[str]:
    """The icons that a page or a script names.

    >>> sorted(names_in('<i class="fa-solid fa-moon"></i><i class="fas fa-angle-left"></i>'))
    ['fa-angle-left', 'fa-moon']
    """
    return set(NAME.findall(text)) - KINDS


def mask(name: str, drawings: str) -> str:
    """The rule that shows an icon."""
    plain = name.removeprefix("fa-")
    drawing = r'\[(\d+),(\d+),\[{}\],"\w+","([^"]+)"\]'
    found = re.findall(rf'[{{,]"?{plain}"?:' + drawing.format(r"[^\]]*"), drawings)
    found = found or re.findall(drawing.format(rf'[^\]]*"{plain}"[^\]]*'), drawings)  # other name
    if not found:
        raise ConfigError(f"the theme has no icon {name}")
    width, height, path = found[-1]  # the solid one comes last
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}'>"
        f"<path d='{path}'/></svg>"
    )
    return f'.{name}{{--icon:url("data:image/svg+xml,{quote(svg, safe=chr(39) + " =:/,")}")}}'


def draw_icons(app: Sphinx, error: Exception | None) -> None:
    """Put the icons of the site into the theme's style sheet, and leave out all others."""
    static = Path(app.outdir) / "_static"
    sheet = static / "styles" / "pydata-sphinx-theme.css"
    if error is not None or app.builder.format != "html" or not sheet.exists():
        return
    sources = [*Path(app.outdir).rglob("*.html"), *(static / "scripts").glob("*theme.js")]
    names = set().union(*(names_in(path.read_text(encoding="utf-8")) for path in sources))
    drawings = (THEME / "scripts" / "fontawesome.js").read_text(encoding="utf-8")
    rules = [mask(name, drawings) for name in sorted(names)]
    plain = FONT.sub("", (THEME / "styles" / sheet.name).read_text(encoding="utf-8"))
    sheet.write_text("\n".join([plain, LOOK, *rules, ""]), encoding="utf-8")
    shutil.rmtree(static / "vendor" / "fontawesome", ignore_errors=True)
    for path in [*static.glob("scripts/*.map"), *static.glob("styles/*.map")]:
        path.unlink()
    (static / "scripts" / "fontawesome.js").unlink(missing_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("build-finished", draw_icons, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
