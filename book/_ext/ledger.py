"""The ledger: verdicts read from the outputs of the executed pages, never from their prose.

`{ledger}` makes the table of all claims, `{ledger-counts}` the counts by paper and verdict,
`{errata}` the lists of what authors would change (of one paper, if it is named), `{verdicts} paper`
the counts of one paper for the head of its chapter, `{claim-graph} paper` its graph, `{claims}
paper` its rows in full, and `{refereed}` one sentence about all papers. They are written while
pages are read; verdicts are filled in once every page has been executed, and a verdict's box gets
its links. The same data go into the site as `ledger.json`, `ledger.csv` and `figures.csv`, and for
each paper as a badge and a `codecheck.yml`. A record that cannot be believed, or that is out of
step with the registry, stops the build.
"""

import csv
import hashlib
import json
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from html import escape, unescape
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml
from docutils import nodes
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import claim_graph
import tampering
from exacthessian import claims
from exacthessian.ledger import faults, ledger, to_json
from execution import executed_notebooks
from verdict_box import badge, box, decided, records_in

LOGGER = logging.getLogger(__name__)
# In words, for one and for several.
DECIDED = {
    "holds": ("holds", "hold"),
    "holds generically": ("holds generically", "hold generically"),
    "misprint": ("is a misprint", "are misprints"),
    "corrected": ("holds once corrected", "hold once corrected"),
    "fails": ("fails", "fail"),
}
EXPERIMENTS = {
    "analogue agrees": ("agrees", "agree"),
    "analogue undecided": ("is undecided", "are undecided"),
    "analogue disagrees": ("disagrees", "disagree"),
}
LEFT = {"not attempted": ("not attempted", "not attempted")}
NO_ERRATA = "No cell of this book has found a claim of this paper that needs a correction."
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


class ClaimGraph(SphinxDirective):
    """The claims of one paper as a picture."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Leave a slot for it, which is no part of a paragraph."""
        return [Slot("", kind="graph", subject=claims.paper(self.arguments[0]).id)]


class Refereed(SphinxDirective):
    """One sentence: how many claims were refereed, and how they came out."""

    def run(self) -> list[nodes.Node]:
        """Leave a slot for it."""
        return [slot(kind="refereed", subject="claims")]


class Claims(SphinxDirective):
    """The rows of one paper in full, as a list; what the graph shows, without the picture."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Write every claim; what cells found about it is a slot."""
        items = []
        for subject in claims.paper(self.arguments[0]).claims.values():
            head = nodes.paragraph("", "", Slot("", kind="badge", subject=subject.id))
            head += [nodes.Text(" "), nodes.strong(text=f"{subject.place}.")]
            head += [nodes.Text(" "), nodes.literal(text=subject.id)]
            under = inline(self, "*Under:* " + "; ".join(subject.hypotheses) + ".")
            body = [head, inline(self, subject.statement), under]
            body.append(Slot("", kind="entry", subject=subject.id))
            items.append(nodes.list_item("", *body, ids=[row_anchor(subject)]))
        return [nodes.bullet_list("", *items, bullet="-", classes=["eh-entries"])]


def records_of(output: NotebookNode) -> list[dict[str, Any]]:
    """The records that one output of a cell carries."""
    return records_in(output.get("data", {}).get("text/html", ""))


def commit(root: Path) -> str:
    """The commit that the site is built from, or nothing."""
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def versions() -> dict[str, str]:
    """What decides a number besides our own code."""
    known = {name: metadata.version(name) for name in ("numpy", "scipy", "torch")}
    return {"python": platform.python_version(), **known}


def collect(app: Sphinx, env: BuildEnvironment) -> None:
    """Gather the records of all executed notebooks, believing none that cannot be believed."""
    records = []
    made = {"commit": commit(Path(app.confdir)), "versions": versions()}
    for docname, notebook in executed_notebooks(app):
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for number, problem in tampering.problems(cell.source for cell in code):
            where = notebook.cells.index(code[number - 1]) + 1
            LOGGER.warning("cell %d %s", where, problem, location=docname, type="ledger")
        for number, cell in enumerate(notebook.cells, start=1):
            if cell.cell_type != "code":
                continue
            place = {"location": docname, "type": "ledger"}
            for output in cell.outputs:
                try:
                    found = records_of(output)
                except claims.ClaimError as error:
                    LOGGER.warning("cell %d shows %s", number, error, **place)
                    continue
                for record in found:
                    id = (record.get("claim") or record["figure"])["id"]
                    if f'"{id}"' not in cell.source:
                        message = "cell %d must write the id %r literally"
                        LOGGER.warning(message, number, id, **place)
                    source = hashlib.sha256(cell.source.encode()).hexdigest()[:12]
                    records.append({**record, **made, "page": f"{docname}.html", "source": source})
    try:
        env.ledger = ledger(records)
    except claims.ClaimError as error:
        LOGGER.warning("%s", error, type="ledger")
        env.ledger = ledger([])
    for problem in faults(env.ledger):
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
    book = Book(app, "../" * docname.count("/"))
    for waiting in list(doctree.findall(lambda node: type(node) is Slot)):
        kind, subject = waiting["kind"], waiting["subject"]
        if kind == "erratum" and not is_wrong(book.rows[subject]):
            item = waiting.parent.parent
            item.parent.remove(item)
            continue
        html = getattr(book, kind)(subject)
        waiting.replace_self(nodes.raw("", html, format="html"))
    remove_empty_lists(doctree)
    for box_ in list(doctree.findall(nodes.raw)):
        if re.search("data-record|eh-verdict", unescape(box_.astext())):
            complete_box(book, box_, docname)


def remove_empty_lists(doctree: nodes.document) -> None:
    """Take out causes without a supported erratum, and say so where a paper has none."""
    for group in list(doctree.findall(nodes.container)):
        if "eh-cause" in group["classes"] and not group.children[-1].children:
            group.parent.remove(group)
    for errata in list(doctree.findall(nodes.container)):
        if "eh-errata" in errata["classes"] and not errata.children:
            errata += nodes.paragraph(text=NO_ERRATA)


def complete_box(book: "Book", shown: nodes.raw, docname: str) -> None:
    """Write a verdict's box anew from its record, with links; refuse one that no claim has made."""
    try:
        records = records_in(shown.astext())
    except claims.ClaimError as error:
        LOGGER.warning("the page shows %s", error, location=docname, type="ledger")
        return
    text = SEALED.sub("", shown.astext())
    for entry in (record["claim"] for record in records if "claim" in record):
        record = claims.Record.of(entry)
        text = box(record, book.links(book.rows[record.id]))
    shown.replace_self(nodes.raw("", text, format="html"))


def outcome(row: Row) -> str:
    """The verdict of a claim, or the status of a figure."""
    return str(row["verdict"] if "verdict" in row else row["status"])


def filter_facts(row: Row) -> str:
    """A row's badge, with facts for the filter to read."""
    leaf = "" if row.get("leaf", True) else ' data-whole="yes"'
    facts = f'data-paper="{row["paper"]}" data-outcome="{outcome(row)}"{leaf}'
    return f"<span {facts}>{badge(outcome(row))}</span>"


def counted(rows: list[Row]) -> list[Row]:
    """The rows that count: figures, and claims without parts."""
    return [row for row in rows if row.get("leaf", True)]


def badge_counts(rows: list[Row], address: str) -> str:
    """How many claims got which verdict, as badges that link to the ledger."""
    counts = Counter(outcome(row) for row in counted(rows))
    badges = [f"{badge(verdict)} {counts[verdict]}" for verdict in claims.WORDS if counts[verdict]]
    return f'<a class="eh-summary" href="{address}">' + " &nbsp; ".join(badges) + "</a>"


def counts_table(rows: list[Row]) -> str:
    """A table with a row for each paper and a column for each verdict that occurs."""
    counts = Counter((row["paper"], row["verdict"]) for row in counted(rows))
    verdicts = [verdict for verdict in claims.WORDS if any(v == verdict for _, v in counts)]
    head = "".join(f'<th scope="col">{badge(verdict)}</th>' for verdict in verdicts)
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
        + '<label>Words <input type="search" size="14" data-filter="text"></label> '
        + f'<output aria-live="polite">{len(listed)} rows</output></span>'
    )


def page_of(name: str) -> str:
    """The page of one paper's claims."""
    return f"book/claims_{name.replace('-', '_')}"


class Book:
    """What all pages found, and how a page that is `up` folders from the top shows it.

    A slot of a kind is filled by the method of that name.
    """

    def __init__(self, app: Sphinx, up: str) -> None:
        self.app, self.up = app, up
        self.ledger = app.env.ledger
        self.rows = {row["id"]: row for row in self.ledger["claims"]}

    def filter(self, kind: str) -> str:
        """The controls above a table."""
        return filter_controls(self.ledger[kind])

    def counts(self, kind: str) -> str:
        """The table of counts."""
        return counts_table(self.ledger[kind])

    def summary(self, name: str) -> str:
        """The counts of one paper, with a link to its page."""
        mine = [row for row in self.rows.values() if row["paper"] == name]
        return badge_counts(mine, self.paper_page(name))

    def refereed(self, kind: str) -> str:
        """How the claims of the papers came out."""
        rows = [row for row in counted(self.ledger[kind]) if row["paper"] in claims.PAPERS]
        own = [row for row in counted(self.ledger[kind]) if row["paper"] not in claims.PAPERS]
        head = f"{len(rows)} claims of {len(claims.PAPERS)} papers refereed"
        return (
            f'<a class="eh-refereed" href="{self.up}book/ledger.html"><strong>{head}</strong>: '
            f"{counted_in_words(rows)}. {len(own)} theorems of our own.</a>"
        )

    def graph(self, name: str) -> str:
        """The claims of one paper as a picture."""
        return claim_graph.picture(name, {id: row["verdict"] for id, row in self.rows.items()})

    def erratum(self, id: str) -> str:
        """An erratum's badge, and where to look: the proof and the cell that decided."""
        row = self.rows[id]
        erratum = subject_of(row).erratum
        proof = erratum and erratum.proof and proof_address(self.app, erratum)
        places = [("proof", proof), ("cell", row["cell"])]
        links = [f'<a href="{self.up}{address}">{name}</a>' for name, address in places if address]
        return f"{badge(row['verdict'])} " + " · ".join(links)

    def badge(self, id: str) -> str:
        """The verdict of a claim."""
        return filter_facts(self.rows[id])

    def verdict(self, id: str) -> str:
        """The last column of the table: the verdict, what decided it, what leans on what."""
        row = self.rows[id]
        lines = [filter_facts(row), self.decided(row), *self.leaning(row), self.ends(row)]
        return "<br>".join(filter(None, lines))

    def entry(self, id: str) -> str:
        """All about one claim: what decided it, what leans on what, its provenance."""
        row = self.rows[id]
        lines = [self.decided(row), *self.leaning(row), provenance(row), self.ends(row)]
        body = "".join(f"<p>{line}</p>" for line in lines if line)
        return f'<div class="eh-entry mathjax_process">{body}{self.challenge(row)}</div>'

    def decided(self, row: Row) -> str:
        """What decided a verdict, with a link to the cell."""
        if not row["leaf"]:
            return "the worst of its parts"
        facts = escape(decided(claims.Record.of(row)))
        link = f'<a href="{self.up}{row["cell"]}">cell</a>' if row["cell"] else ""
        return f"<em>What decided it:</em> {facts or 'nothing yet'}. {link}"

    def leaning(self, row: Row) -> list[str]:
        """What the claim leans on, what is wrong as printed below it, and what leans on it."""
        printed = [use for use in row["uses"] if use.split("/")[0] in claims.PAPERS]
        ours = [use for use in row["uses"] if use not in printed]
        users = [other["id"] for other in self.rows.values() if row["id"] in self.used(other)]
        lines = [(f"{printed_argument(row)} uses", printed), ("Behind it, in this book:", ours)]
        if row["paper"] not in claims.PAPERS:
            lines = [("Its proof uses", row["uses"])]
        shown = [f"<em>{name}</em> {self.names(ids)}." for name, ids in lines if ids]
        shown += [self.propagated(row)] if row["leans"] else []
        return shown + ([f"<em>Leaned on by</em> {self.names(users)}."] if users else [])

    def used(self, row: Row) -> list[str]:
        """What a row uses; a part that says the same as its whole is left to the whole."""
        whole = self.rows.get(row["id"].rpartition(".")[0], {})
        return [] if row["uses"] == whole.get("uses") else row["uses"]

    def propagated(self, row: Row) -> str:
        """The sentence about a printed proof that leans on something wrong as printed; on what it
        uses itself if there is such a thing, else on what lies deeper.
        """
        direct = [lean["id"] for lean in row["leans"] if not lean["through"]]
        through = list(dict.fromkeys(lean["through"] for lean in row["leans"]))
        wrong = direct or [lean["id"] for lean in row["leans"]]
        way = " on" if direct else f", through {self.names(through)}, on"
        some = any(
            part not in wrong and not is_wrong(self.rows[part]) for part in self.parts(wrong)
        )
        verb = "is" if len(wrong) == 1 else "are"
        says = f"{verb} {'in part ' if some else ''}wrong as printed"
        own = " It holds all the same." if outcome(row).startswith("holds") else ""
        text = f"{printed_argument(row)} leans{way} {self.names(wrong)}, which {says}.{own}"
        return f'<span class="eh-leans">{text}</span>'

    def parts(self, ids: list[str]) -> list[str]:
        """The parts of some claims."""
        return [part for id in ids for part in subject_of(self.rows[id]).parts]

    def names(self, ids: list[str]) -> str:
        """Claims by their place, with links to their rows."""
        subjects = [subject_of(self.rows[id]) for id in ids]
        return ", ".join(
            f'<a href="{self.row_address(subject)}">{escape(claim_graph.label_of(subject))}</a>'
            for subject in subjects
        )

    def ends(self, row: Row) -> str:
        """Links to the erratum and to the row in full."""
        links = {name: to for name, to in self.links(row).items() if name != "leaned on"}
        return " · ".join(f'<a href="{to}">{name}</a>' for name, to in links.items())

    def links(self, row: Row) -> dict[str, str]:
        """Where a reader of a verdict may want to go."""
        subject = subject_of(row)
        links = {}
        if is_wrong(row) and subject.erratum:
            if proof := proof_address(self.app, subject.erratum):
                links["proof"] = f"{self.up}{proof}"
            links["erratum"] = f"{self.up}book/ledger.html#{erratum_anchor(subject)}"
        links["in the ledger"] = self.row_address(subject)
        return links

    def paper_page(self, name: str) -> str:
        """The page of a paper's claims, or the whole ledger where the book has no such page."""
        page = page_of(name)
        known = page in self.app.env.found_docs
        return f"{self.up}{page if known else 'book/ledger'}.html"

    def row_address(self, subject: claims.Claim) -> str:
        """The address of a claim's row."""
        return f"{self.paper_page(subject.paper)}#{row_anchor(subject)}"

    def challenge(self, row: Row) -> str:
        """A text to paste into an issue: what is claimed, what was found, and room for a case."""
        if not row["leaf"]:
            return ""
        address = self.app.config.html_theme_options.get("repository_url", "")
        text = challenge_text(row)
        link = ""
        if address.startswith("https://github.com/"):
            query = urlencode({"title": f"Challenge: {row['id']}", "body": text})
            link = f'<a href="{address}/issues/new?{escape(query)}">open an issue with it</a>'
        return (
            "<details class='eh-challenge'><summary>Challenge this verdict</summary>"
            f"<pre>{escape(text)}</pre>{link}</details>"
        )


def printed_argument(row: Row) -> str:
    """What supports a claim in the paper: a proof, or the text around a sentence."""
    return "The printed text" if "/statement-" in row["id"] else "Its printed proof"


def provenance(row: Row) -> str:
    """With what a record was made."""
    if not row["leaf"] or not row["cell"]:
        return ""
    checks = [row[name] for name in ("printed", "corrected", "exception") if row[name]]
    cases = sum(check["cases"] for check in checks)
    hashes = dict.fromkeys(f"{c['function']} {c['source']}" for c in checks if c["source"])
    facts = [f"commit {row['commit']}" if row["commit"] else "", f"cell {row['source']}"]
    facts += [f"function {one}" for one in hashes]
    facts += [f"{cases} cases" if cases else "", f"{row['seconds']:g} s"]
    facts += [f"{name} {version}" for name, version in row["versions"].items()]
    return f'<span class="eh-made">Made with: {escape(", ".join(filter(None, facts)))}.</span>'


def challenge_text(row: Row) -> str:
    """A text that starts an issue about one verdict."""
    erratum = subject_of(row).erratum if is_wrong(row) else None
    corrected = f"Should read, says the ledger: {erratum.corrected}\n" if erratum else ""
    return (
        f"I challenge a verdict of the ledger.\n\n{row['place']}: {row['statement']}\n{corrected}\n"
        f"{claims.Record.of(row)}\n\ncell {row['cell']}, its source {row['source']}, "
        f"commit {row['commit'] or 'unknown'}, row {row['digest']}\n\n"
        "What I think is right, and why:\n\n"
        "A case that shows it (sizes, weights or seed, and the two numbers):\n"
    )


def counted_in_words(rows: list[Row]) -> str:
    """How many claims got which verdict, as a sentence.

    >>> counted_in_words([{"verdict": "holds"}, {"verdict": "fails"}, {"verdict": "holds"}])
    '2 hold, 1 fails'
    >>> counted_in_words([{"verdict": "analogue agrees"}, {"verdict": "analogue undecided"}])
    'experiments in other settings: 1 agrees, 1 is undecided'
    """
    counts = Counter(outcome(row) for row in counted(rows))

    def several(verdicts: Mapping[str, tuple[str, str]]) -> str:
        shown = ((counts[verdict], words) for verdict, words in verdicts.items() if counts[verdict])
        return ", ".join(f"{n} {words[n > 1]}" for n, words in shown)

    proofs, experiments = several(DECIDED), several(EXPERIMENTS)
    tried = f"experiments in other settings: {experiments}" if experiments else ""
    return "; ".join(filter(None, [proofs, tried, several(LEFT)]))


def write_data(app: Sphinx, error: Exception | None) -> None:
    """Put the ledger beside the pages: as JSON and CSV, and for each paper what others show.

    A build that has read no page has no ledger, and what is there is right.
    """
    if error is not None or not hasattr(app.env, "ledger"):
        return
    folder = Path(app.outdir)
    text = to_json(app.env.ledger)
    (folder / "ledger.json").write_text(text, encoding="utf-8")
    data = json.loads(text)
    for name, rows in (("ledger.csv", data["claims"]), ("figures.csv", data["figures"])):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(rows[0])
            for row in rows:
                plain = (str, int, float, type(None))
                writer.writerow(v if isinstance(v, plain) else json.dumps(v) for v in row.values())
    for name in claims.PAPERS:
        place = folder / "papers" / name
        place.mkdir(parents=True, exist_ok=True)
        rows = [row for row in data["claims"] if row["paper"] == name]
        (place / "badge.svg").write_text(badge_svg(rows), encoding="utf-8")
        facts = codecheck(name, data, app.config.html_theme_options.get("repository_url", ""))
        text = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=100)
        (place / "codecheck.yml").write_text(f"---\n{text}", encoding="utf-8")


def badge_svg(rows: list[Row]) -> str:
    """A picture for a paper's own page: how many of its claims were refereed, and the outcome."""
    right = [row for row in counted(rows) if outcome(row).startswith("holds")]
    left, words = "claims refereed", f"{len(counted(rows))}: {len(right)} hold as printed"
    title = f"{left} {words}; {counted_in_words(rows)}"
    a, b = 7 * len(left) + 12, 7 * len(words) + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{a + b}" height="20" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f'<rect width="{a + b}" height="20" rx="3" fill="#2a5d9f"/>'
        f'<rect width="{a}" height="20" rx="3" fill="#444"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="6" y="14">{left}</text><text x="{a + 6}" y="14">{words}</text></g></svg>\n'
    )


def codecheck(name: str, data: dict[str, list[Row]], repository: str) -> dict[str, Any]:
    """What a CODECHECK configuration says about a paper: what was run again, and how close it is.

    We are not CODECHECK's certifiers, so there is no certificate.
    """
    paper = claims.paper(name)
    figures = [row for row in data["figures"] if row["paper"] == name and row["cell"]]
    rows = [row for row in data["claims"] if row["paper"] == name]
    facts = {
        "version": "https://codecheck.org.uk/spec/config/1.0/",
        "paper": {"title": paper.title, "authors": [{"name": one} for one in paper.authors]},
        "manifest": [
            {"file": row["cell"], "comment": f"{row['place']}: {row['status']}"} for row in figures
        ],
        "codechecker": [{"name": "The Exact Hessian contributors"}],
        "summary": f"{len(counted(rows))} claims refereed: {counted_in_words(rows)}.",
        "report": page_of(name) + ".html",
    }
    return facts | ({"repository": repository} if repository else {})


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
    app.add_directive("claim-graph", ClaimGraph)
    app.add_directive("claims", Claims)
    app.add_directive("refereed", Refereed)
    app.connect("doctree-read", note_slots)
    app.connect("env-check-consistency", collect)
    app.connect("env-updated", rewritten_pages)
    app.connect("doctree-resolved", fill_slots)
    app.connect("build-finished", write_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
