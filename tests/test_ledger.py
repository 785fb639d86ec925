"""The ledger page is made from the outputs of executed cells."""

import csv
import json
import re

import pytest

import build
from conftest import ROOT
from exacthessian import claims

HEAD = (ROOT / "tests" / "broken_book" / "sound.md").read_text().split("\n# ")[0]
LEDGER = """# Ledger

```{ledger-counts}
```

```{errata} depth-not-data
```

```{ledger}
```
"""
PAGE = f"""{HEAD}
# A chapter

```{{verdicts}} depth-not-data
```

(dnd-rates)=
## Where the proof of Lemma A.7 stands

```{{code-cell}} ipython3
from exacthessian.claims import claim, figure

with claim("depth-not-data/CLAIM") as c:
    c.printed(error=ERROR, tol=1e-10)
    c.counterexample("none needed when it holds")
with figure("depth-not-data/figure-1", status="as stated"):
    pass
```
"""
HOLDS = PAGE.replace("CLAIM", "lemma-a.5").replace("ERROR", "1e-15")
FAILS = PAGE.replace("CLAIM", "lemma-a.7").replace("ERROR", "0.5")


def built(root):
    clean, log = build.build(root)
    return clean, log, root / "_build" / "html"


@pytest.mark.parametrize(
    ("page", "name", "verdict", "error"),
    [(HOLDS, "lemma-a.5", "holds", 1e-15), (FAILS, "lemma-a.7", "fails", 0.5)],
)
def test_the_ledger_shows_what_the_cells_computed(scratch_book, page, name, verdict, error):
    clean, log, site = built(scratch_book({"chapter": page, "ledger": LEDGER}))
    assert clean, log

    data = json.loads((site / "ledger.json").read_text())
    row = next(row for row in data["claims"] if row["id"] == f"depth-not-data/{name}")
    assert row["verdict"] == verdict
    assert row["printed_error"] == error
    assert len(data["figures"]) == 16 + 23 + 27 + 18
    made = next(row for row in data["figures"] if row["id"] == "depth-not-data/figure-1")
    assert made["status"] == "as stated"
    assert made["seconds"] >= 0

    anchor = f"depth-not-data-{name.replace('.', '-')}"
    chapter = (site / "book" / "chapter.html").read_text()
    assert f'id="claim-{anchor}"' in chapter
    assert f"eh-{verdict}" in chapter.split("eh-summary")[1]
    ledger = (site / "book" / "ledger.html").read_text()
    assert f'href="../book/chapter.html#claim-{anchor}"' in ledger
    assert len(re.findall(r"data-outcome=", ledger)) == len(data["claims"])
    assert counts_in(ledger)["Depth, Not Data"][claims.WORDS[verdict]] == 1
    assert counts_in(ledger)["All four"]["all"] == len(data["claims"])

    errata = re.findall(r'<li id="erratum-([^"]*)"', ledger)
    assert errata == ([anchor] if verdict == "fails" else [])
    assert ("needs a correction" in ledger) == (verdict == "holds")
    assert ('href="../book/chapter.html#dnd-rates">proof</a>' in ledger) == (verdict == "fails")
    for file, kind in (("ledger.csv", "claims"), ("figures.csv", "figures")):
        rows = list(csv.DictReader((site / file).read_text().splitlines()))
        assert [row["id"] for row in rows] == [row["id"] for row in data[kind]]
        assert list(rows[0]) == list(data[kind][0])

    clean, log, _ = built(site.parent.parent)
    assert clean, log
    assert "Using cached notebook" in log
    assert json.loads((site / "ledger.json").read_text()) == data


def counts_in(page):
    """The table of counts: paper, then verdict, then number."""
    table = page.split('<table class="table eh-counts">')[1].split("</table>")[0]
    return {
        title: {label: int(n) for label, n in re.findall(r'data-label="([^"]*)">(\d+)<', cells)}
        for title, cells in re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table)
    }


def test_faults_of_the_ledger_stop_the_build(scratch_book):
    pages = {
        "again": HOLDS.replace("dnd-rates", "elsewhere").replace("figure-1", "figure-2"),
        "chapter": HOLDS,
        "ledger": LEDGER,
    }
    clean, log, _ = built(scratch_book(pages))
    assert not clean
    assert "depth-not-data/lemma-a.5: two cells give a verdict" in log


def test_errata_out_of_step_stop_the_build(scratch_book):
    unsupported = FAILS.replace("0.5", "0.0").replace("figure-1", "figure-2")
    unproved = FAILS.replace("lemma-a.7", "lemma-a.8").replace("figure-1", "figure-3")
    pages = {
        "missing": HOLDS.replace("1e-15", "0.5"),
        "unsupported": unsupported.replace("dnd-rates", "one"),
        "unproved": unproved.replace("dnd-rates", "two"),
        "ledger": LEDGER,
    }
    pages["missing"] = pages["missing"].replace("dnd-rates", "three")
    clean, log, _ = built(scratch_book(pages))
    assert not clean
    for sentence in (
        "depth-not-data/lemma-a.5: the verdict is 'fails', but the registry has no erratum",
        "depth-not-data/lemma-a.7: the registry has an erratum for it, but the verdict is 'holds'",
        "depth-not-data/lemma-a.8: no page has the label 'dnd-rates'",
    ):
        assert sentence in log
