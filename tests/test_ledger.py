"""The ledger page is made from the outputs of executed cells."""

import json
import re

import build
from conftest import ROOT

HEAD = (ROOT / "tests" / "broken_book" / "sound.md").read_text().split("\n# ")[0]
LEDGER = "# Ledger\n\n```{ledger}\n```\n\n```{ledger-figures}\n```\n"
PAGE = f"""{HEAD}
# A chapter

```{{verdicts}} depth-not-data
```

```{{code-cell}} ipython3
from exacthessian.claims import claim, figure

with claim("depth-not-data/lemma-a.5") as c:
    c.printed(error=ERROR, tol=1e-10)
    c.counterexample("none needed when it holds")
with figure("depth-not-data/figure-1", status="as stated"):
    pass
```
"""


def built(root):
    clean, log = build.build(root)
    return clean, log, root / "_build" / "html"


def test_the_ledger_shows_what_the_cells_computed(scratch_book):
    for error, verdict in (("1e-15", "holds"), ("0.5", "fails")):
        pages = {"chapter": PAGE.replace("ERROR", error), "ledger": LEDGER}
        clean, log, site = built(scratch_book(pages))
        assert clean, log

        data = json.loads((site / "ledger.json").read_text())
        row = next(row for row in data["claims"] if row["id"] == "depth-not-data/lemma-a.5")
        assert row["verdict"] == verdict
        assert row["printed_error"] == float(error)
        assert len(data["figures"]) == 16 + 23 + 27 + 18
        made = next(row for row in data["figures"] if row["id"] == "depth-not-data/figure-1")
        assert made["status"] == "as stated"
        assert made["seconds"] >= 0

        chapter = (site / "book" / "chapter.html").read_text()
        assert 'id="claim-depth-not-data-lemma-a-5"' in chapter
        assert f"eh-{verdict}" in chapter.split("eh-summary")[1]
        ledger = (site / "book" / "ledger.html").read_text()
        assert 'href="../book/chapter.html#claim-depth-not-data-lemma-a-5"' in ledger
        assert len(re.findall(r"data-outcome=", ledger)) == len(data["claims"]) + 84
        assert (site / "ledger.csv").read_text().count("depth-not-data/lemma-a.5") == 1

        clean, log, _ = built(site.parent.parent)
        assert "Using cached notebook" in log
        assert json.loads((site / "ledger.json").read_text()) == data


def test_two_cells_for_one_claim_stop_the_build(scratch_book):
    page = PAGE.replace("ERROR", "0.0")
    clean, log, _ = built(scratch_book({"chapter": page, "again": page, "ledger": LEDGER}))
    assert not clean
    assert "depth-not-data/lemma-a.5: two cells give a verdict" in log
