"""Pictures in the site: a light and a dark file, one of them shown, and a table of the numbers."""

import base64
import io
import re
from html import escape
from types import SimpleNamespace

import numpy as np
import pytest
from docutils import nodes
from docutils.utils import new_document
from PIL import Image

import build
from conftest import ROOT
from exacthessian import figures
from exacthessian.widget import flip_book
from live_figure import draw_cells
from pictures import DARK, INK, Picture, darkened, themed

HEAD = (ROOT / "tests" / "broken_book" / "sound.md").read_text().split("\n# ")[0]
CHAPTER = f"""{HEAD}
# A chapter

```{{code-cell}} ipython3
---
mystnb:
  figure:
    name: fig-line
    caption: '**It rises.** A line.'
  image:
    alt: A straight line that rises from left to right.
---
from exacthessian import figures

figures.plots([figures.Plot("", "x", "y", lines={{"theory": ([0, 1], [2, 5])}})])
```

```{{code-cell}} ipython3
figures.slider(
    lambda n: figures.plots([figures.Plot("", "x", "y", dots={{"n": ([0], [n])}}, limits=(0, 5))]),
    lambda n: f"One dot at height {{n}}", {{"n": [3, 4]}}, "A dot moves.")
```
"""


def drawn(**parts):
    return Picture(figures._svg(figures.plots([figures.Plot("", "x", "y", **parts)])))


def test_the_twin_has_the_dark_colours_and_no_ground():
    picture = drawn(lines={"theory": ([0, 1], [2, 5])}, levels={"edge": 3})
    assert figures.PURPLE in picture.light
    assert "fill: #ffffff" in picture.light
    left_over = {colour for colour in DARK if colour in picture.dark} - set(DARK.values())
    assert left_over == set()
    assert DARK[figures.PURPLE] in picture.dark
    assert f'<svg fill="{INK}"' in picture.dark


def test_dots_drawn_as_pixels_get_the_dark_colours_too():
    colours = [figures.PURPLE, figures.ORANGE, "#000000"]
    row = [[*(int(c[i : i + 2], 16) for i in (1, 3, 5)), 200] for c in colours]
    file = io.BytesIO()
    Image.fromarray(np.array([row], dtype=np.uint8)).save(file, "PNG")
    dark = base64.b64decode(darkened(base64.b64encode(file.getvalue()).decode()))
    found = np.array(Image.open(io.BytesIO(dark)))[0]
    assert ["#{:02x}{:02x}{:02x}".format(*pixel[:3]) for pixel in found] == [
        DARK[colour] for colour in colours
    ]
    assert set(found[:, 3]) == {200}


def test_a_figure_gets_a_twin_and_a_link_below_its_caption(tmp_path):
    picture = drawn(dots={"seen": ([1], [4])})
    picture.write(tmp_path)
    image = f'<img alt="One &gt; none" src="../_images/{picture.name}.svg" />'
    page = f"<figure>{image}<figcaption><p>Said.</p></figcaption></figure>"
    better = themed(page, tmp_path)
    assert re.findall(r'<img class="(eh-\w+)', better) == ["eh-light", "eh-dark"]
    assert better.count('alt="One &gt; none"') == 2
    assert better.count('loading="lazy"') == 2
    link = re.search(r'<a class="eh-data" href="\.\./_images/(\w+\.csv)"', better)[1]
    assert better.index("Said.") < better.index("eh-data") < better.index("</figcaption>")
    assert (tmp_path / link).read_text() == "panel,series,x,y\n1,seen,1,4\n"
    assert themed(better, tmp_path) == better, "twice is as good as once"


def test_frames_leave_the_page_and_keep_their_words(tmp_path):
    frame = base64.b64encode(drawn(dots={"n": ([0], [3])}).svg.encode()).decode()
    image = f'<img alt="{escape("<A> dot")}" src="data:image/svg+xml;base64,{frame}">'
    html = flip_book([image, image], {"n": [1, 2]}, "It moves. See?").markup
    doctree = new_document("page")
    doctree += nodes.raw("", html, format="html")
    draw_cells(SimpleNamespace(outdir=tmp_path), doctree, "book/chapter/page")
    better = themed(doctree.astext(), tmp_path / "_images")
    assert "data:" not in better
    assert better.count('alt="&lt;A&gt; dot"') == 4  # light and dark
    assert better.count("eh-data") == 2  # beside each frame, and not below the caption
    for name in re.findall(r'(?:src|href)="\.\./\.\./_images/([\w.-]+)"', better):
        assert (tmp_path / "_images" / name).exists()


@pytest.fixture
def site(scratch_book):
    root = scratch_book({"chapter": CHAPTER})
    clean, log = build.build(root)
    assert clean, log
    return root / "_build" / "html"


def test_a_built_page_follows_the_theme_and_offers_its_numbers(site):
    page = (site / "book" / "chapter.html").read_text()
    assert "image/png" not in page
    assert "data:image/svg" not in page
    figure = re.search(r'<figure[^>]*id="fig-line".*?</figure>', page, re.S)[0]
    files = re.findall(r'src="\.\./(_images/[\w-]+\.svg)"', figure)
    assert [("dark" in file, (site / file).exists()) for file in files] == [
        (False, True),
        (True, True),
    ]
    assert "<metadata>" not in (site / files[0]).read_text()
    table = re.search(r'href="\.\./(_images/\w+\.csv)"', figure)[1]
    assert (site / table).read_text() == "panel,series,x,y\n1,theory,0,2\n1,theory,1,5\n"
