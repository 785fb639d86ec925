"""The ledger: verdicts read from the outputs of the executed pages, never from their prose.

`{ledger}` makes the table of all claims, `{ledger-counts}` the counts by paper and verdict,
`{errata}` the lists of what authors would change (of one paper, if it is named), `{verdicts} paper`
the counts of one paper for the head of its chapter. They are written while pages are read; verdicts
are filled in once every page has been executed, and a verdict's box gets its links. The same data
go into the site as `ledger.json`, `ledger.csv` and `figures.csv`. A record that cannot be believed,
or that is out of step with the registry, stops the build.
"""

import csv
import json
import re
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from exacthessian import claims
from exacthessian.ledger import faults, ledger
from execution import executed_notebooks

LOGGER = logging.getLogger(__name__)
NO_ERRATA = "No cell of this book has found a claim of this paper that needs a correction."
# What a page has no business to touch: a verdict comes from `claim(...)` and nothing else.
TAMPERING = re.compile(
    r"data-record|data-seal|eh-verdict|EXACTHESSIAN_|\bclaims\._|\bReferee\b|\bsetattr\(|"
    r"\bRecord\(|\bCheck\(|\bseal\("
)
OURS = [name for name in claims.REGISTRIES if name not in claims.PAPERS]
SEALED = re.compile(r' data-record="[^"]*" data-seal="[^"]*"')
WAITS = "waits for the verdicts of other pages"  # a key of a page's metadata
Row = dict[str, Any]


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
            nodes.row(
                "",
                *(nodes.entry("", *cell) for cell in self.cells(subject)),
                ids=[row_anchor(subject)],
            )
            for name in [*claims.PAPERS, *OURS]
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
        under = inline(self, "*Under:* " + "; ".join(subject.hypotheses) + ".")
        return [
            [nodes.paragraph("", subject.place), nodes.literal(text=subject.id)],
            [inline(self, subject.statement), under],
            [slot(kind="verdict", subject=subject.id)],
        ]


class LedgerCounts(SphinxDirective):
    """How many claims of each paper got which verdict."""

    def run(self) -> list[nodes.Node]:
        """Leave a slot for the table, which is no part of a paragraph."""
        return [Slot("", kind="counts", subject="claims")]


class Errata(SphinxDirective):
    """What the authors of a paper would change: an item for each claim that is wrong as printed,
    grouped by cause. Without an argument, a section for each paper.
    """

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Write every erratum; those that no verdict supports are taken out once all is known."""
        if self.arguments:
            return [self.of_paper(self.arguments[0])]
        return [
            nodes.section(
                "",
                nodes.title(text=claims.paper(name).short),
                self.of_paper(name),
                ids=[f"errata-{name}"],
                names=[f"errata {name}"],
            )
            for name in claims.PAPERS
        ]

    def of_paper(self, name: str) -> nodes.container:
        """The errata of one paper, a list for each cause in the order of the paper."""
        groups: dict[str, list[nodes.list_item]] = {}
        for subject in claims.paper(name).claims.values():
            if subject.erratum:
                items = groups.setdefault(subject.erratum.cause, [])
                items.append(self.item(subject, subject.erratum))
        causes = []
        for cause, items in groups.items():
            title = [inline(self, f"**{cause[:1].upper()}{cause[1:]}.**")] if cause else []
            items_list = nodes.bullet_list("", *items, bullet="-")
            causes.append(nodes.container("", *title, items_list, classes=["eh-cause"]))
        return nodes.container("", *causes, classes=["eh-errata"])

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


def row_anchor(subject: claims.Claim) -> str:
    """The name that a link to a row of the ledger uses."""
    return subject.anchor.replace("claim-", "row-", 1)


class Verdicts(SphinxDirective):
    """The verdicts of one paper, counted, for the head of its chapter."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Leave a slot for the counts."""
        return [slot(kind="summary", subject=claims.paper(self.arguments[0]).id)]


def records_of(output: NotebookNode) -> list[dict[str, Any]]:
    """The records that one output of a cell carries."""
    return claims.records_in(output.get("data", {}).get("text/html", ""))


def collect(app: Sphinx, env: BuildEnvironment) -> None:
    """Gather the records of all executed notebooks, believing none that cannot be believed."""
    records, pages = [], {}
    for docname, notebook in executed_notebooks(app):
        for number, cell in enumerate(notebook.cells, start=1):
            if cell.cell_type != "code":
                continue
            place = {"location": docname, "type": "ledger"}
            if touched := TAMPERING.search(cell.source):
                LOGGER.warning(
                    "cell %d touches %r, which only the package's claims may",
                    number,
                    touched[0],
                    **place,
                )
            for output in cell.outputs:
                try:
                    found = records_of(output)
                except claims.ClaimError as error:
                    LOGGER.warning("cell %d shows %s", number, error, **place)
                    continue
                for record in found:
                    id = (record.get("claim") or record["figure"])["id"]
                    if f'"{id}"' not in cell.source:
                        LOGGER.warning(
                            "cell %d must write the id %r literally", number, id, **place
                        )
                    records.append(record)
                    pages[id] = f"{docname}.html"
    try:
        env.ledger = ledger(records, pages)
    except claims.ClaimError as error:
        LOGGER.warning("%s", error, type="ledger")
        env.ledger = ledger([], {})
    for problem in faults(records):
        LOGGER.warning("%s", problem, type="ledger")
    for row in env.ledger["claims"]:
        erratum = subject_of(row).erratum
        if is_wrong(row) and erratum and erratum.proof and not proof_address(app, erratum):
            message = "%s: no page has the label %r, which its erratum gives as proof"
            LOGGER.warning(message, row["id"], erratum.proof, type="ledger")


def subject_of(row: Row) -> claims.Claim:
    """The registry's entry of a row of the ledger's claims."""
    return claims.paper(row["paper"]).claims[row["id"]]


def is_wrong(row: Row) -> bool:
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
    """Replace the slots of a page by what the whole book found, and complete its verdicts."""
    rows = {row["id"]: row for row in app.env.ledger["claims"]}
    up = "../" * docname.count("/")
    for waiting in list(doctree.findall(lambda node: type(node) is Slot)):
        kind, subject = waiting["kind"], waiting["subject"]
        if kind == "erratum" and not is_wrong(rows[subject]):
            item = waiting.parent.parent
            item.parent.remove(item)
            continue
        if kind == "filter":
            html = filter_controls(app.env.ledger[subject])
        elif kind == "counts":
            html = counts_table(app.env.ledger[subject])
        elif kind == "erratum":
            html = erratum_links(app, rows[subject], up)
        elif kind == "summary":
            mine = [row for row in app.env.ledger["claims"] if row["paper"] == subject]
            html = badge_counts(mine, f"{up}book/ledger.html")
        else:
            html = row_verdict(rows[subject], up)
        waiting.replace_self(nodes.raw("", html, format="html"))
    remove_empty_lists(doctree)
    for box in list(doctree.findall(nodes.raw)):
        if "data-record" in box.astext() or "eh-verdict" in box.astext():
            complete_box(app, box, docname, rows, up)


def remove_empty_lists(doctree: nodes.document) -> None:
    """Take out causes without a supported erratum, and say so where a paper has none."""
    for group in list(doctree.findall(nodes.container)):
        if "eh-cause" in group["classes"] and not group.children[-1].children:
            group.parent.remove(group)
    for errata in list(doctree.findall(nodes.container)):
        if "eh-errata" in errata["classes"] and not errata.children:
            errata += nodes.paragraph(text=NO_ERRATA)


def complete_box(app: Sphinx, box: nodes.raw, docname: str, rows: dict[str, Row], up: str) -> None:
    """Write a verdict's box anew from its record, with links; refuse one that no claim has made."""
    try:
        records = claims.records_in(box.astext())
    except claims.ClaimError as error:
        LOGGER.warning("the page shows %s", error, location=docname, type="ledger")
        return
    text = SEALED.sub("", box.astext())
    for entry in (record["claim"] for record in records if "claim" in record):
        record = claims.record_of(entry)
        row = rows[record.id]
        html = claims.as_html(record, box_links(app, row, rows, up))
        anchor = subject_of(row).anchor
        text = f'<div class="eh-verdict mathjax_process" id="{anchor}">{html}</div>'
    box.replace_self(nodes.raw("", text, format="html"))


def box_links(app: Sphinx, row: Row, rows: dict[str, Row], up: str) -> dict[str, str]:
    """Where a reader of a verdict may want to go."""
    subject = subject_of(row)
    links = {}
    if is_wrong(row) and subject.erratum:
        if proof := proof_address(app, subject.erratum):
            links["proof"] = f"{up}{proof}"
        links["erratum"] = f"{up}book/ledger.html#{erratum_anchor(subject)}"
    links["ledger"] = f"{up}book/ledger.html#{row_anchor(subject)}"
    leaning = [other for other in rows.values() if row["id"] in other["uses"] and other["leaf"]]
    if leaning:
        links[f"leaned on by {len(leaning)}"] = links["ledger"]
    return links


def erratum_links(app: Sphinx, row: Row, up: str) -> str:
    """An erratum's badge, and where to look: the proof and the cell that decided."""
    erratum = subject_of(row).erratum
    proof = erratum and erratum.proof and proof_address(app, erratum)
    places = [("proof", proof), ("cell", row["cell"])]
    links = [f'<a href="{up}{address}">{name}</a>' for name, address in places if address]
    return f"{claims.verdict_badge(row['verdict'])} " + " · ".join(links)


def outcome(row: Row) -> str:
    """The verdict of a claim, or the status of a figure."""
    return str(row["verdict"] if "verdict" in row else row["status"])


def row_verdict(row: Row, up: str) -> str:
    """A claim's badge, what decided it, what leans on what, and links to cell and erratum."""
    lines = [filter_facts(row)]
    if not row["leaf"]:
        lines.append("the worst of its parts")
    if row["differs"] or row["verdict"] == "not attempted":
        lines.append(escape(row["differs"] or row["note"]))
    if row["cell"] is not None:
        lines.append(f'<a href="{up}{row["cell"]}">what decided it</a>')
    subject = subject_of(row)
    if is_wrong(row) and subject.erratum:
        lines.append(f'<a href="{up}book/ledger.html#{erratum_anchor(subject)}">erratum</a>')
    return "<br>".join(line for line in lines if line)


def filter_facts(row: Row) -> str:
    """A row's badge, with facts for the filter to read."""
    badge = claims.verdict_badge(outcome(row))
    leaf = "" if row.get("leaf", True) else ' data-whole="yes"'
    return f'<span data-paper="{row["paper"]}" data-outcome="{outcome(row)}"{leaf}>{badge}</span>'


def counted(rows: list[Row]) -> list[Row]:
    """The rows that count: figures, and claims without parts."""
    return [row for row in rows if row.get("leaf", True)]


def badge_counts(rows: list[Row], address: str) -> str:
    """How many claims got which verdict, as badges that link to the ledger."""
    counts = Counter(outcome(row) for row in counted(rows))
    badges = [
        f"{claims.verdict_badge(verdict)} {counts[verdict]}"
        for verdict in claims.WORDS
        if counts[verdict]
    ]
    return f'<a class="eh-summary" href="{address}">' + " &nbsp; ".join(badges) + "</a>"


def counts_table(rows: list[Row]) -> str:
    """A table with a row for each paper and a column for each verdict that occurs."""
    counts = Counter((row["paper"], row["verdict"]) for row in counted(rows))
    verdicts = [verdict for verdict in claims.WORDS if any(v == verdict for _, v in counts)]
    head = "".join(f'<th scope="col">{claims.verdict_badge(verdict)}</th>' for verdict in verdicts)
    lines = [f'<tr><th scope="col">paper</th>{head}<th scope="col">all</th></tr>']
    for title, names in [
        *((claims.paper(name).short, [name]) for name in claims.PAPERS),
        ("All papers", claims.PAPERS),
        *((claims.paper(name).short, [name]) for name in OURS),
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


def filter_controls(rows: list[Row]) -> str:
    """Two menus that filter the table below them, and the counts per paper and outcome."""
    listed = counted(rows)
    outcomes = Counter(outcome(row) for row in listed)
    papers = Counter(row["paper"] for row in listed)
    words = {**claims.WORDS, **{name: claims.paper(name).short for name in claims.REGISTRIES}}

    def menu(name: str, label: str, counts: Counter[str]) -> str:
        options = "".join(
            f'<option value="{value}">{words.get(value, value)} ({count})</option>'
            for value, count in counts.items()
        )
        everything = f'<option value="">all ({len(listed)})</option>'
        return f'<label>{label} <select data-filter="{name}">{everything}{options}</select></label>'

    return (
        '<span class="eh-filter" role="group" aria-label="Filter the table below">'
        + menu("paper", "Paper", papers)
        + menu("outcome", "Verdict" if "verdict" in rows[0] else "Status", outcomes)
        + f'<output aria-live="polite">{len(listed)} rows</output></span>'
    )


def write_data(app: Sphinx, error: Exception | None) -> None:
    """Put the ledger beside the pages as JSON and CSV."""
    if error is not None:
        return
    data = json.loads(json.dumps(app.env.ledger), parse_constant=lambda _: "infinite")
    folder = Path(app.outdir)
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "ledger.json").write_text(text + "\n", encoding="utf-8")
    for name, rows in (("ledger.csv", data["claims"]), ("figures.csv", data["figures"])):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(rows[0])
            for row in rows:
                plain = (str, int, float, type(None))
                writer.writerow(v if isinstance(v, plain) else json.dumps(v) for v in row.values())


def rewritten_pages(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """The pages whose slots depend on the verdicts of others: they are written at every build."""
    return [docname for docname in env.found_docs if env.metadata[docname].get(WAITS)]


def note_slots(app: Sphinx, doctree: nodes.document) -> None:
    """Remember whether a page has slots, which are filled once all pages are known."""
    if next(doctree.findall(lambda node: isinstance(node, Slot)), None) is not None:
        app.env.metadata[app.env.docname][WAITS] = "yes"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_node(Slot)
    app.add_directive("ledger", LedgerTable)
    app.add_directive("ledger-counts", LedgerCounts)
    app.add_directive("errata", Errata)
    app.add_directive("verdicts", Verdicts)
    app.connect("doctree-read", note_slots)
    app.connect("env-check-consistency", collect)
    app.connect("env-updated", rewritten_pages)
    app.connect("doctree-resolved", fill_slots)
    app.connect("build-finished", write_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
