"""The ledger: verdicts read from the outputs of the executed chapters, never from their prose.

`{ledger}` makes the table of all claims, `{ledger-counts}` the counts by paper and verdict,
`{errata} paper` the list of what its authors would change, `{verdicts} paper` the summary of one
paper for the head of its chapter. They are written while pages are read; verdicts are filled in
once every page has been executed. The same data go into the site as `ledger.json`, `ledger.csv` and
`figures.csv`. Errata that are out of step with the verdicts stop the build.
"""

import csv
import json
from collections import Counter
from html import escape
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
NO_ERRATA = "No cell of this book has found a claim of this paper that needs a correction."


class Slot(nodes.General, nodes.Element):
    """A place in a page that waits for the verdicts of all pages."""


def slot(**attributes: Any) -> nodes.paragraph:
    """A paragraph with one slot in it."""
    return nodes.paragraph("", "", Slot("", **attributes))


class LedgerTable(SphinxDirective):
    """The table of every claim of every paper, with controls to filter it."""

    kind = "claims"
    titles = ("claim", "statement", "verdict")

    def run(self) -> list[nodes.Node]:
        """Write all rows; their verdicts are slots."""
        rows = [
            nodes.row("", *(nodes.entry("", *cell) for cell in self.cells(subject)))
            for name in claims.PAPERS
            for subject in getattr(claims.paper(name), self.kind).values()
        ]
        group = nodes.tgroup("", cols=len(self.titles))
        group += [nodes.colspec("", colwidth=width) for width in (26, 54, 20)]
        titles = (nodes.entry("", nodes.paragraph(text=title)) for title in self.titles)
        group += nodes.thead("", nodes.row("", *titles))
        group += nodes.tbody("", *rows)
        table = nodes.table("", group, classes=["eh-ledger", f"eh-ledger-{self.kind}"])
        return [slot(kind="filter", subject=self.kind), nodes.container("", table)]

    def cells(self, subject: claims.Claim) -> list[list[nodes.Node]]:
        """One claim: its place and id, its statement, and a slot for what a cell found."""
        return [
            [nodes.paragraph("", subject.place), nodes.literal(text=subject.id)],
            [inline(self, subject.statement)],
            [slot(kind="verdict", subject=subject.id)],
        ]


class LedgerCounts(SphinxDirective):
    """How many claims of each paper got which verdict."""

    def run(self) -> list[nodes.Node]:
        """Leave a slot for the table, which is no part of a paragraph."""
        return [Slot("", kind="counts", subject="claims")]


class Errata(SphinxDirective):
    """What the authors of a paper would change: an item for each claim that is wrong as printed."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Write every erratum; those that no verdict supports are taken out once all is known."""
        subjects = claims.paper(self.arguments[0]).claims.values()
        items = [self.item(subject, subject.erratum) for subject in subjects if subject.erratum]
        return [nodes.enumerated_list("", *items, enumtype="arabic", classes=["eh-errata"])]

    def item(self, subject: claims.Claim, erratum: claims.Erratum) -> nodes.list_item:
        """One erratum: the place, what is printed there, what should be, why, and where to look."""
        head = nodes.paragraph("", "", nodes.strong(text=subject.place), nodes.Text(" "))
        head += [nodes.literal(text=subject.id), nodes.Text(" ")]
        head += Slot("", kind="erratum", subject=subject.id)
        lines = (
            inline(self, f"*{label}:* {text}")
            for label, text in (
                ("Printed", erratum.printed),
                ("Should read", erratum.corrected),
                ("Because", erratum.reason),
            )
        )
        return nodes.list_item("", head, *lines, ids=[erratum_anchor(subject)])


def inline(directive: SphinxDirective, text: str) -> nodes.paragraph:
    """A paragraph of Markdown, such as a statement with formulas."""
    content, messages = directive.state.inline_text(text, directive.lineno)
    return nodes.paragraph("", "", *content, *messages)


def erratum_anchor(subject: claims.Claim) -> str:
    """The name that a link to an erratum uses."""
    return subject.anchor.replace("claim-", "erratum-", 1)


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
    for problem in claims.errata_out_of_step(records):
        LOGGER.warning("%s", problem, type="ledger")
    for row in app.env.metadata[LEDGER]["claims"]:
        erratum = subject_of(row).erratum
        if is_wrong(row) and erratum and erratum.proof and not proof_address(app, erratum):
            message = "%s: no page has the label %r, which its erratum gives as proof"
            LOGGER.warning(message, row["id"], erratum.proof, type="ledger")


def subject_of(row: dict[str, Any]) -> claims.Claim:
    """The registry's entry of a row of the ledger's claims."""
    return claims.paper(row["paper"]).claims[row["id"]]


def is_wrong(row: dict[str, Any]) -> bool:
    """Whether a cell found a claim wrong as printed."""
    return row["verdict"] in claims.WRONG_AS_PRINTED


def proof_address(app: Sphinx, erratum: claims.Erratum) -> str | None:
    """The address of an erratum's proof, a theorem or a section, or None if no page has it."""
    theorem = getattr(app.env, "proof_list", {}).get(erratum.proof)
    if theorem is not None:
        return f"{theorem['docname']}.html#{erratum.proof}"
    docname, anchor = app.env.get_domain("std").anonlabels.get(erratum.proof, (None, None))
    return docname and f"{docname}.html#{anchor}"


def fill_slots(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the slots of a page by what the whole book found."""
    rows = {row["id"]: row for row in app.env.metadata[LEDGER]["claims"]}
    up = "../" * docname.count("/")
    for waiting in list(doctree.findall(Slot)):
        kind, subject = waiting["kind"], waiting["subject"]
        if kind == "erratum" and not is_wrong(rows[subject]):
            item = waiting.parent.parent
            item.parent.remove(item)
            continue
        if kind == "filter":
            html = filter_controls(app.env.metadata[LEDGER][subject])
        elif kind == "counts":
            html = counts_table(app.env.metadata[LEDGER][subject])
        elif kind == "erratum":
            html = erratum_links(app, rows[subject], up)
        elif kind == "summary":
            mine = [row for row in app.env.metadata[LEDGER]["claims"] if row["paper"] == subject]
            html = badge_counts(mine, f"{up}book/ledger.html")
        else:
            html = row_verdict(rows[subject], up)
        waiting.replace_self(nodes.raw("", html, format="html"))
    for empty in list(doctree.findall(is_empty_list)):
        empty.replace_self(nodes.paragraph(text=NO_ERRATA))


def is_empty_list(node: nodes.Node) -> bool:
    """Whether a node is a list of errata without a single one."""
    return (
        isinstance(node, nodes.enumerated_list)
        and "eh-errata" in node["classes"]
        and not node.children
    )


def erratum_links(app: Sphinx, row: dict[str, Any], up: str) -> str:
    """An erratum's badge, and where to look: the proof and the cell that decided."""
    erratum = subject_of(row).erratum
    proof = erratum and erratum.proof and proof_address(app, erratum)
    places = [("proof", proof), ("cell", row["cell"])]
    links = [f'<a href="{up}{address}">{name}</a>' for name, address in places if address]
    return f"{claims.verdict_badge(row['verdict'])} " + " · ".join(links)


def outcome(row: dict[str, Any]) -> str:
    """The verdict of a claim, or the status of a figure."""
    return str(row["verdict"] if "verdict" in row else row["status"])


def row_verdict(row: dict[str, Any], up: str) -> str:
    """A claim's badge, what it leaves out, and links to the deciding cell and to the erratum."""
    lines = [filter_facts(row)]
    if row["verdict"] in ("not attempted", "analogue") and row["note"]:
        lines.append(escape(row["note"]))
    if row["cell"] is not None:
        errors = [
            f"{form} {row[key]:.1e}"
            for form, key in (("printed", "printed_error"), ("corrected", "corrected_error"))
            if row[key] is not None
        ]
        lines.append(f'<a href="{up}{row["cell"]}">{"<br>".join(errors) or "see the cell"}</a>')
    subject = subject_of(row)
    if is_wrong(row) and subject.erratum:
        lines.append(f'<a href="{up}book/ledger.html#{erratum_anchor(subject)}">erratum</a>')
    return "<br>".join(lines)


def filter_facts(row: dict[str, Any]) -> str:
    """A row's badge, with facts for the filter to read."""
    badge = claims.verdict_badge(outcome(row))
    return f'<span data-paper="{row["paper"]}" data-outcome="{outcome(row)}">{badge}</span>'


def badge_counts(rows: list[dict[str, Any]], address: str) -> str:
    """How many claims got which verdict, as badges that link to the ledger."""
    counts = Counter(outcome(row) for row in rows)
    badges = [
        f"{claims.verdict_badge(verdict)} {counts[verdict]}"
        for verdict in reversed(claims.WORST_FIRST)
        if counts[verdict]
    ]
    return f'<a class="eh-summary" href="{address}">' + " &nbsp; ".join(badges) + "</a>"


def counts_table(rows: list[dict[str, Any]]) -> str:
    """A table with a row for each paper and a column for each verdict."""
    verdicts = list(claims.WORDS)
    counts = Counter((row["paper"], row["verdict"]) for row in rows)
    head = "".join(f'<th scope="col">{claims.verdict_badge(verdict)}</th>' for verdict in verdicts)
    lines = [f'<tr><th scope="col">paper</th>{head}<th scope="col">all</th></tr>']
    for title, names in [
        *((claims.paper(name).short, [name]) for name in claims.PAPERS),
        ("All four", claims.PAPERS),
    ]:
        numbers = [sum(counts[name, verdict] for name in names) for verdict in verdicts]
        cells = "".join(
            f'<td data-label="{label}">{number}</td>'
            for label, number in zip(
                [*(claims.WORDS[verdict] for verdict in verdicts), "all"],
                [*numbers, sum(numbers)],
                strict=True,
            )
        )
        lines.append(f'<tr><th scope="row">{title}</th>{cells}</tr>')
    return f'<table class="table eh-counts"><tbody>{"".join(lines)}</tbody></table>'


def filter_controls(rows: list[dict[str, Any]]) -> str:
    """Two menus that filter the table below them, and the counts per paper and outcome."""
    outcomes = Counter(outcome(row) for row in rows)
    papers = Counter(row["paper"] for row in rows)
    words = {**claims.WORDS, **{name: claims.paper(name).short for name in claims.PAPERS}}

    def menu(name: str, label: str, counts: Counter[str]) -> str:
        options = "".join(
            f'<option value="{value}">{words.get(value, value)} ({count})</option>'
            for value, count in counts.items()
        )
        everything = f'<option value="">all ({len(rows)})</option>'
        return f'<label>{label} <select data-filter="{name}">{everything}{options}</select></label>'

    return (
        '<span class="eh-filter" role="group" aria-label="Filter the table below">'
        + menu("paper", "Paper", papers)
        + menu("outcome", "Verdict" if "verdict" in rows[0] else "Status", outcomes)
        + f'<output aria-live="polite">{len(rows)} rows</output></span>'
    )


def write_data(app: Sphinx, error: Exception | None) -> None:
    """Put the ledger beside the pages as JSON and CSV."""
    if error is not None:
        return
    data = app.env.metadata[LEDGER]
    folder = Path(app.outdir)
    (folder / "ledger.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    for name, rows in (("ledger.csv", data["claims"]), ("figures.csv", data["figures"])):
        with (folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_node(Slot)
    app.add_directive("ledger", LedgerTable)
    app.add_directive("ledger-counts", LedgerCounts)
    app.add_directive("errata", Errata)
    app.add_directive("verdicts", Verdicts)
    app.connect("env-check-consistency", collect)
    app.connect("doctree-resolved", fill_slots)
    app.connect("build-finished", write_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
