"""The gallery: every figure of every paper, with the picture that a cell made of it."""

import base64
import json
import re
from html import escape

from nbformat.v4 import new_code_cell, new_notebook, new_output

import build
import gallery
from conftest import ROOT
from exacthessian import claims
from pictures import Picture

HEAD = (ROOT / "tests" / "broken_book" / "sound.md").read_text().split("\n# ")[0]
CHAPTER = f"""{HEAD}
# A chapter

```{{code-cell}} ipython3
---
mystnb:
  image:
    alt: A straight line that rises from left to right.
---
import matplotlib.pyplot as plt

from exacthessian import figures
from exacthessian.claims import figure

with figure("depth-not-data/figure-1", status="as stated"):
    picture, axes = plt.subplots()
    axes.plot([0, 1])
    plt.close()
picture
```

```{{code-cell}} ipython3
with figure("depth-not-data/figure-2", "analogue", "smaller <data>"):
    pass
with figure("depth-not-data/figure-3", "not possible here", "needs a telescope"):
    pass
```
"""


def svg(colour="white"):
    return f'<svg width="360pt" height="180pt"><path fill="{colour}"/></svg>'


def record(id, status="as stated"):
    data = json.dumps({"figure": {"id": id, "status": status}})
    facts = f'data-record="{escape(data)}" data-seal="{claims._seal(data)}"'
    return {"text/html": f'<div class="eh-verdict" {facts}></div>'}


def image(colour):
    return {"image/svg+xml": svg(colour)}


def cell(*outputs, alt="A picture of something"):
    return new_code_cell(
        outputs=[new_output("display_data", data=data) for data in outputs],
        metadata={"mystnb": {"image": {"alt": alt}}},
    )


def test_a_figure_gets_the_picture_of_its_cell_or_the_next_one():
    notebook = new_notebook(
        cells=[
            cell(image("red"), alt="Too early"),
            cell(record("own"), image("green"), alt="In the same cell"),
            cell(record("first")),
            cell(record("impossible", "not possible here"), record("second")),
            cell(image("blue"), alt="One for two"),
            cell(record("last")),
        ]
    )
    found = gallery.pictures_of_figures(notebook)
    assert {id: picture.alt for id, picture in found.items()} == {
        "own": "In the same cell",
        "first": "One for two",
        "second": "One for two",
    }
    assert found["own"].name == Picture(svg("green")).name


def test_a_flip_book_counts_as_a_picture():
    frame = base64.b64encode(svg().encode()).decode()
    image = '<img alt="Depth 2 &amp; more" src="data:image/svg+xml;base64,{}">'
    html = f"<figure>{image.format(frame)}{image.format('later')}</figure>"
    notebook = new_notebook(cells=[cell(record("moving"), {"text/html": html})])
    found = gallery.pictures_of_figures(notebook)
    assert found == {"moving": gallery.Thumbnail.of(svg(), "Depth 2 & more")}


def test_a_thumbnail_is_small():
    small = gallery.Thumbnail.of(svg(), "Nothing <to> see")
    assert small.size == (480, 240)
    html = small.html("../", small.alt)
    assert 'width="240" height="120"' in html
    assert 'alt="Nothing &lt;to&gt; see"' in html


def test_run_times_are_readable():
    assert [gallery.duration(s) for s in (0.0, 0.02, 1.64, 37.66, 119.9, 150)] == [
        *("under 0.1 s", "under 0.1 s", "1.6 s", "38 s", "120 s", "2.5 min"),
    ]


def test_the_gallery_shows_what_the_cells_made(scratch_book):
    pages = {"chapter": CHAPTER, "figures": "# Gallery\n\n```{gallery}\n```\n"}
    root = scratch_book(pages)
    clean, log = build.build(root)
    assert clean, log
    site = root / "_build" / "html"
    page = (site / "book" / "figures.html").read_text()
    rows = [row for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL) if "data-outcome" in row]
    assert len(rows) == sum(len(claims.paper(name).figures) for name in claims.PAPERS)

    assert 'loading="lazy"' in rows[0]
    assert 'alt="A straight line that rises from left to right."' in rows[0]
    assert 'href="../book/chapter.html#claim-depth-not-data-figure-1"' in rows[0]
    assert "Run time here:" in rows[0]
    for ending in ("", "-dark"):
        thumbnail = re.search(rf'src="\.\./(_images/\w+{ending}\.svg)"', rows[0])[1]
        assert (site / thumbnail).exists()

    assert "No picture: smaller &lt;data&gt;" in rows[1]
    assert "No picture: needs a telescope" in rows[2]
    assert "Run time here" not in rows[2]
    assert "No picture: no cell has made it" in rows[3]
    assert page.count('<img class="eh-thumb eh-light') == 1
    assert 'aria-label="Filter the table below"' in page
