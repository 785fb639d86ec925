"""The ledger: verdicts read from the outputs of the executed chapters, never from their prose.

`{ledger}` makes the table of all claims, `{ledger-figures}` that of all figures, `{verdicts} paper`
the summary of one paper for the head of its chapter. The tables are written while pages are read;
verdicts are filled in once every page has been executed. The same data go into the site as
`ledger.json` and `ledger.csv`.
"""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from exacthessian import claims
from execution import executed_path

LOGGER = logging.getLogger(__name__)
LEDGER = "the ledger of all pages"  # the key under which the environment keeps it
COLUMNS = {
    "claims": ("claim", "statement", "verdict"),
    "figures": ("figure", "what it shows", "status"),
}


class Slot(nodes.General, nodes.Element):
    """A place in a page that waits for the verdicts of all pages."""


def slot(**attributes: Any) -> nodes.paragraph:
    """A paragraph with one slot in it."""
    return nodes.paragraph("", "", Slot("", **attributes))


class LedgerTable(SphinxDirective):
    """The table of every claim (or figure) of every paper, with controls to filter it."""

    kind = "claims"

    def run(self) -> list[nodes.Node]:
        """Write all rows; their verdicts are slots."""
        rows = [
            self.row(subject)
            for name in claims.PAPERS
            for subject in getattr(claims.paper(name), self.kind).values()
        ]
        group = nodes.tgroup("", cols=len(COLUMNS[self.kind]))
        group += [nodes.colspec("", colwidth=width) for width in (26, 54, 20)]
        titles = (nodes.entry("", nodes.paragraph(text=title)) for title in COLUMNS[self.kind])
        group += nodes.thead("", nodes.row("", *titles))
        group += nodes.tbody("", *rows)
        table = nodes.table("", group, classes=["eh-ledger", f"eh-ledger-{self.kind}"])
        return [slot(kind="counts", subject=self.kind), nodes.container("", table)]

    def row(self, subject: claims.Claim) -> nodes.row:
        """One claim: its place and id, its statement, and a slot for what a cell found."""
        statement, messages = self.state.inline_text(subject.statement, self.lineno)
        cells = (
            [nodes.paragraph("", subject.place), nodes.literal(text=subject.id)],
            [nodes.paragraph("", "", *statement, *messages)],
            [slot(kind="verdict", subject=subject.id)],
        )
        return nodes.row("", *(nodes.entry("", *cell) for cell in cells))


class FigureTable(LedgerTable):
    """The table of every figure."""

    kind = "figures"


class Verdicts(SphinxDirective):
    """The verdicts of one paper, counted, for the head of its chapter."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Leave a slot for the counts."""
        return [slot(kind="summary", subject=claims.paper(self.arguments[0]).id)]


def collect(app: Sphinx, env: BuildEnvironment) -> None:
    """Gather the records of all executed notebooks and write the ledger's data files."""
    records, pages = [], {}
    for docname in sorted(env.found_docs):
        executed = executed_path(app, docname)
        if not executed.exists():
            continue
        for cell in nbformat.read(executed, as_version=4).cells:
            for output in cell.get("outputs", []):
                for record in claims.records_in(output.get("data", {}).get("text/html", "")):
                    records.append(record)
                    entry = record.get("claim") or record["figure"]
                    pages[entry["id"]] = f"{docname}.html"
    try:
        app.env.metadata[LEDGER] = claims.ledger(records, pages)
    except claims.ClaimError as error:
        LOGGER.warning("%s", error, type="ledger")
        app.env.metadata[LEDGER] = claims.ledger([], {})


def fill_slots(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the slots of a page by what the whole book found."""
    rows = {row["id"]: row for part in app.env.metadata[LEDGER].values() for row in part}
    up = "../" * docname.count("/")
    for waiting in list(doctree.findall(Slot)):
        kind, subject = waiting["kind"], waiting["subject"]
        if kind == "counts":
            html = filter_controls(app.env.metadata[LEDGER][subject])
        elif kind == "summary":
            mine = [row for row in app.env.metadata[LEDGER]["claims"] if row["paper"] == subject]
            html = badge_counts(mine, f"{up}book/ledger.html")
        else:
            html = row_verdict(rows[subject], up)
        waiting.replace_self(nodes.raw("", html, format="html"))


def outcome(row: dict[str, Any]) -> str:
    """The verdict of a claim, or the status of a figure."""
    return str(row["verdict"] if "verdict" in row else row["status"])


def row_verdict(row: dict[str, Any], up: str) -> str:
    """A row's badge and the link to the cell that decided, with facts for the filter to read."""
    badge = claims.verdict_badge(outcome(row))
    facts = f'<span data-paper="{row["paper"]}" data-outcome="{outcome(row)}">{badge}</span>'
    if row["cell"] is None:
        return facts
    errors = [
        f"{form} {row[key]:.1e}"
        for form, key in (("printed", "printed_error"), ("corrected", "corrected_error"))
        if row.get(key) is not None
    ]
    return f'{facts}<br><a href="{up}{row["cell"]}">{"<br>".join(errors) or "see the cell"}</a>'


def badge_counts(rows: list[dict[str, Any]], address: str) -> str:
    """How many claims got which verdict, as badges that link to the ledger."""
    counts = Counter(outcome(row) for row in rows)
    badges = [
        f"{claims.verdict_badge(verdict)} {counts[verdict]}"
        for verdict in reversed(claims.WORST_FIRST)
        if counts[verdict]
    ]
    return f'<a class="eh-summary" href="{address}">' + " &nbsp; ".join(badges) + "</a>"


def filter_controls(rows: list[dict[str, Any]]) -> str:
    """Two menus that filter the table below them, and the counts per paper and outcome."""
    outcomes = Counter(outcome(row) for row in rows)
    papers = Counter(row["paper"] for row in rows)

    def menu(name: str, label: str, counts: Counter[str]) -> str:
        options = "".join(
            f'<option value="{value}">{claims.WORDS.get(value, value)} ({count})</option>'
            for value, count in counts.items()
        )
        everything = f'<option value="">all ({len(rows)})</option>'
        return f'<label>{label} <select data-filter="{name}">{everything}{options}</select></label>'

    return (
        '<span class="eh-filter" role="group" aria-label="Filter the table below">'
        + menu("paper", "Paper", papers)
        + menu("outcome", "Verdict", outcomes)
        + f'<output aria-live="polite">{len(rows)} rows</output></span>'
    )


def write_data(app: Sphinx, error: Exception | None) -> None:
    """Put the ledger beside the pages as JSON and CSV."""
    if error is not None:
        return
    data = app.env.metadata[LEDGER]
    folder = Path(app.outdir)
    (folder / "ledger.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    with (folder / "ledger.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(data["claims"][0]))
        writer.writeheader()
        writer.writerows(data["claims"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_node(Slot)
    app.add_directive("ledger", LedgerTable)
    app.add_directive("ledger-figures", FigureTable)
    app.add_directive("verdicts", Verdicts)
    app.connect("env-check-consistency", collect)
    app.connect("doctree-resolved", fill_slots)
    app.connect("build-finished", write_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
