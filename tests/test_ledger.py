"""The ledger is made from the outputs of executed cells, and from nothing that imitates them."""

import csv
import json
import re
from xml.etree import ElementTree

import pytest
import yaml

import build
from conftest import ROOT
from exacthessian import claims
from exacthessian.ledger import faults

HEAD = (ROOT / "tests" / "broken_book" / "sound.md").read_text().split("\n# ")[0]
LEAVES = [s for name in claims.PAPERS for s in claims.paper(name).leaves if not s.form]
PLAIN = next(s for s in LEAVES if s.kind == "number" and not s.erratum)
LEAVES = [s for s in LEAVES if s.kind == "equal" and s.loosest < 1e-3]
RIGHT, OTHER, *REST = (s for s in LEAVES if not s.erratum)
WRONG, UNPROVED, *_ = (s for s in LEAVES if s.erratum and s.erratum.proof)
LEDGER = "# Ledger\n\n```{ledger-counts}\n```\n\n```{errata}\n```\n\n```{ledger}\n```\n"
PAPER = "# A paper\n\n```{{claim-graph}} {0}\n```\n\n```{{claims}} {0}\n```\n"
PAGE = """
# A page

```{{verdicts}} {paper}
```

({label})=
## Where the proof stands

```{{code-cell}} ipython3
from exacthessian.claims import claim, figure

with claim("{id}") as c:
    c.printed(lambda x: x + {error}, lambda x: x, [1.0], tol=1e-10, unit="of the whole")
    c.counterexample("none needed when it holds")
with figure("{paper}/figure-{figure}", status="as stated"):
    pass
```
"""


def page(subject, error, label="here", figure=1):
    text = PAGE.format(id=subject.id, paper=subject.paper, error=error, label=label, figure=figure)
    return HEAD + text


def built(root):
    clean, log = build.build(root)
    return clean, log, root / "_build" / "html"


def counts_in(page):
    """The table of counts: paper, then verdict, then number."""
    table = page.split('<table class="table eh-counts">')[1].split("</table>")[0]
    return {
        title: {label: int(n) for label, n in re.findall(r'data-label="([^"]*)">(\d+)<', cells)}
        for title, cells in re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table)
    }


def test_the_ledger_shows_what_the_cells_computed(scratch_book):
    """One claim that holds, on a page in a folder, and one that fails, with its proof."""
    pages = {
        "chapter": page(WRONG, 0.5, WRONG.erratum.proof),
        "chapter/inner": page(RIGHT, 1e-15, figure=2),
        "ledger": LEDGER,
        f"claims_{RIGHT.paper.replace('-', '_')}": PAPER.format(RIGHT.paper),
    }
    root = scratch_book(pages)
    clean, log, site = built(root)
    assert clean, log
    data = json.loads((site / "ledger.json").read_text())
    rows = {row["id"]: row for row in data["claims"]}
    assert (rows[RIGHT.id]["verdict"], rows[WRONG.id]["verdict"]) == ("holds", "fails")
    assert 0 < rows[RIGHT.id]["printed"]["error"] < 1e-14
    assert rows[RIGHT.id]["versions"]["numpy"]
    assert rows[RIGHT.id]["cell"] == f"book/chapter/inner.html#{RIGHT.anchor}"
    assert len(data["figures"]) == sum(len(claims.paper(n).figures) for n in claims.PAPERS)
    made = next(row for row in data["figures"] if row["id"] == f"{RIGHT.paper}/figure-2")
    assert made["status"] == "as stated"

    chapter = (site / "book" / "chapter.html").read_text()
    ledger = (site / "book" / "ledger.html").read_text()
    erratum = WRONG.anchor.replace("claim-", "erratum-", 1)
    assert f'id="{WRONG.anchor}"' in chapter
    assert f'href="../book/ledger.html#{erratum}">erratum</a>' in chapter
    assert f'href="../book/chapter.html#{WRONG.erratum.proof}">proof</a>' in chapter
    assert "eh-fails" in chapter.split("eh-summary")[1]
    assert "data-record" not in chapter
    inner = (site / "book" / "chapter" / "inner.html").read_text()
    row = RIGHT.anchor.replace("claim-", "row-", 1)
    mine = f"book/claims_{RIGHT.paper.replace('-', '_')}.html"
    assert f'href="../../{mine}#{row}">in the ledger</a>' in inner
    assert f'id="{row}"' in ledger
    assert f'href="../book/chapter/inner.html#{RIGHT.anchor}"' in ledger
    leaves = sum(len(claims.paper(name).leaves) for name in claims.PAPERS)
    assert counts_in(ledger)["All papers"] == {
        "holds": 1,
        "fails": 1,
        "not attempted": leaves - 2,
        "all": leaves,
    }
    page_of_paper = (site / mine).read_text()
    for claim in claims.paper(RIGHT.paper).claims.values():
        assert f'id="{claim.anchor.replace("claim-", "row-", 1)}"' in page_of_paper
        whole = claim.id.rpartition(".")[0] in claims.paper(RIGHT.paper).claims
        assert (f'data-id="{claim.id}"' in page_of_paper) != whole
    challenge = page_of_paper.split(f'id="{row}"')[1].split("Challenge this verdict")[1]
    for words in (RIGHT.id, f"cell {rows[RIGHT.id]['cell']}", rows[RIGHT.id]["digest"], "1e-10"):
        assert words in challenge.split("</pre>")[0]
    check_what_others_show(site, RIGHT.paper)
    assert faults(data) == []
    assert re.findall(r'<li id="(erratum-[^"]*)"', ledger) == [erratum]
    for file, kind in (("ledger.csv", "claims"), ("figures.csv", "figures")):
        table = list(csv.DictReader((site / file).read_text().splitlines()))
        assert [row["id"] for row in table] == [row["id"] for row in data[kind]]

    # An old address of the chapter knows where its anchors have moved.
    moved = json.loads(re.search(r"const moved = (\{.*\});", chapter)[1])
    assert moved[RIGHT.anchor] == "chapter/inner.html"
    assert moved["here"] == "chapter/inner.html"
    assert "const moved" not in inner

    # A change of prose reads that page only, and leaves the same verdicts.
    source = root / "book" / "chapter.md"
    source.write_text(source.read_text().replace("# A page", "# A renamed page"))
    clean, log, _ = built(root)
    assert clean, log
    assert "Executed notebook" not in log
    assert json.loads((site / "ledger.json").read_text()) == data
    assert "A renamed page" in (site / "book" / "chapter.html").read_text()


def check_what_others_show(site, paper):
    facts = yaml.safe_load((site / "papers" / paper / "codecheck.yml").read_text())
    assert facts["paper"]["title"] == claims.paper(paper).title
    assert [author["name"] for author in facts["paper"]["authors"]] == [
        *claims.paper(paper).authors
    ]
    assert any(item["comment"].endswith(": as stated") for item in facts["manifest"])
    assert "certificate" not in facts
    svg = ElementTree.parse(site / "papers" / paper / "badge.svg").getroot()
    leaves = len(claims.paper(paper).leaves)
    assert f"{leaves}: " in "".join(svg.itertext())


CHECK = "c.printed(lambda x: x + 0.4, lambda x: x, [1.0], tol=1e-10)"
FORGERIES = {
    "imitated_box": (
        "from IPython.display import HTML\n"
        f"""HTML('<div class="{"eh"}-verdict">holds</div>')""",
        "looks like a verdict",
    ),
    "imitated_record": (
        "from IPython.display import HTML\n"
        """HTML('<div data-record="{&quot;claim&quot;: {}}" data-seal="0">holds</div>')""",
        "a record that no claim of the package has made",
    ),
    "hand_made_dictionary": (
        "import json\nfrom html import escape\nfrom IPython.display import display\n"
        f'data = escape(json.dumps({{"claim": {{"id": "{RIGHT.id}", "verdict": "holds"}}}}))\n'
        "display({'text/html': f'<i data-' f'record=\"{data}\">x</i>'}, raw=True)",
        "a record that no claim of the package has made",
    ),
    "patched_decision": (
        "from exacthessian import claims\n"
        "globals()['claims'].decide = lambda record, subject: 'holds'\n"
        f'with claims.claim("{OTHER.id}") as c:\n'
        f"    {CHECK}\n    c.counterexample('x')",
        "decide of exacthessian.claims was replaced",
    ),
    "patched_verdict": (
        "import exacthessian.claims as the_claims\n"
        "the_claims.Referee.verdict = 'holds'\n"
        f'with the_claims.claim("{REST[0].id}") as c:\n    {CHECK}\n    c.counterexample("x")',
        "touches 'the_claims.Referee.verdict'",
    ),
    "patched_gap": (
        "from exacthessian import claims\nclaims.gap = lambda found, true: 0.0\nprint('patched')",
        "touches 'claims.gap'",
    ),
    "patched_passes": (
        "from exacthessian.claims import Check\nCheck.passes = True\nprint('patched')",
        "touches 'Check.passes'",
    ),
    "patched_registry": (
        "from exacthessian import claims\n"
        f'subject = claims.paper("{OTHER.paper}").claims["{OTHER.id}"]\n'
        "object.__setattr__(subject, 'loosest', 0.9)\n"
        f'with claims.claim("{OTHER.id}") as c:\n    {CHECK.replace("1e-10", "0.5")}',
        "got 0.5, and its record says 'holds'",
    ),
    "typed_error": (
        "from exacthessian.claims import claim\n"
        f'with claim("{PLAIN.id}") as c:\n    c.printed(error=0, tol=0)',
        "types the error of a check",
    ),
    "own_seal": (
        "from exacthessian import claims\nmark = claims._seal('{}')\nprint('sealed')",
        "touches 'claims._seal'",
    ),
    "composed_id": (
        "from exacthessian.claims import claim\n"
        f"with claim({RIGHT.paper!r} + {RIGHT.id.removeprefix(RIGHT.paper)!r}) as c:\n"
        f"    {CHECK.replace('0.4', '0.0')}",
        f"must write the id '{RIGHT.id}' literally",
    ),
}


def test_forgeries_stop_the_build_and_are_named(scratch_book):
    cell = "\n# A page\n\n```{{code-cell}} ipython3\n{}\n```\n"
    pages = {name: HEAD + cell.format(code) for name, (code, _) in FORGERIES.items()}
    pages["imitated_in_prose"] = '# A page\n\n<div class="eh-verdict">holds</div>\n'
    clean, log, _ = built(scratch_book({**pages, "ledger": LEDGER}))
    assert not clean
    problems = [line for line in log.splitlines() if "WARNING" in line]
    for name, (_, problem) in FORGERIES.items():
        where = name if "its record says" not in problem else OTHER.id
        assert any(where in line and problem in line for line in problems), (name, problems)
    prose = [line for line in problems if "imitated_in_prose" in line]
    assert any("looks like a verdict" in line for line in prose), problems


def test_what_is_out_of_step_stops_the_build(scratch_book):
    pages = {
        "chapter": page(RIGHT, 0.0),
        "again": page(RIGHT, 0.0, "two", 2),
        "missing": page(OTHER, 0.5, "three", 3),
        "unsupported": page(WRONG, 0.0, "four", 4),
        "unproved": page(UNPROVED, 0.5, "five", 5),
        "ledger": LEDGER,
    }
    clean, log, _ = built(scratch_book({k: v for k, v in pages.items() if k != "again"}))
    assert not clean
    for sentence in (
        f"{OTHER.id}: the verdict is 'fails', but the registry has no erratum",
        f"{WRONG.id}: the verdict is 'holds', but the registry has an erratum",
        f"{UNPROVED.id}: no page has the label '{UNPROVED.erratum.proof}'",
    ):
        assert sentence in log
    clean, log, _ = built(scratch_book(pages))
    assert not clean
    assert f"{RIGHT.id}: two cells give a verdict" in log


def test_a_closed_form_is_printed_from_the_package(scratch_book):
    pages = {
        "sound": "# Sound\n\n```{closed-form} chain.LinearChain.loss\n```\n",
        "package": "# Reference\n\n```{package}\n```\n",
    }
    clean, log, site = built(scratch_book(pages))
    assert clean, log
    html = (site / "book" / "sound.html").read_text()
    assert 'href="package.html#exacthessian.chain.LinearChain.loss"' in html
    shown = re.sub(r"<[^>]*>", "", html.split("eh-formula")[1].split("eh-where")[0])
    assert "def loss(self)" in shown
    assert "&gt;&gt;&gt;" not in shown


@pytest.mark.parametrize("path", ["chain.LinearChain.nothing", "nothing.at_all", "claims._refuse"])
def test_a_wrong_closed_form_is_named(path):
    import closed_form

    with pytest.raises(ValueError, match=re.escape(path)):
        closed_form.formula(path)


def test_a_wrong_closed_form_stops_the_build(scratch_book):
    clean, log, _ = built(scratch_book({"page": "# Page\n\n```{closed-form} chain.nothing\n```\n"}))
    assert not clean
    assert re.search(r"page\.md:3: ERROR: .*the package has no function 'chain\.nothing'", log)
