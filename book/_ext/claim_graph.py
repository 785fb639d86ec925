"""The claims of a paper as a graph, drawn from `uses` and the verdicts; nothing is placed by hand.

An arrow leads from what a proof uses to what it proves, left to right. The border of a claim is its
printed form, the filling its corrected form. Our own theorems are nodes, too. A claim that uses
nothing and is used by nothing stands below the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from exacthessian import claims

WIDTH, HEIGHT, ACROSS, DOWN = 150, 30, 36, 10  # of a node, and between nodes, in pixels
SMALLEST = 0.85  # a wider graph scrolls, so that its words stay legible
SWEEPS = 8
SIGNS = {  # beside the colours, for who can't tell them apart
    "holds": "✓",
    "holds generically": "✓",
    "misprint": "✎",
    "corrected": "✎",
    "fails": "✗",
    "not attempted": "…",
}


@dataclass(frozen=True)
class Node:
    """A claim with its parts: what it is called, how it came out, and the claims it uses."""

    id: str
    label: str
    place: str
    verdict: str
    uses: tuple[str, ...]


def label_of(subject: claims.Claim) -> str:
    """A few words that fit into a node.

    >>> paper = claims.paper("depth-not-data").claims
    >>> [label_of(paper[f"depth-not-data/{id}"]) for id in ("lemma-a.9", "equation-10")]
    ['Lemma A.9', 'Equation (10)']
    >>> label_of(claims.paper("this-book").claims["this-book/aligned-chain"])
    'Aligned-chain theorem'
    """
    kind, _, number = subject.id.split("/")[1].partition("-")
    if subject.paper not in claims.PAPERS:
        words = subject.place.split(",")[0].removeprefix("The ")
    elif kind == "equation":
        words = f"Equation ({number})"
    elif kind == "statement":
        words = f"“{number.replace('-', ' ')}”"
    else:
        words = f"{kind} {number}"
    return words[:1].upper() + words[1:].replace(" a.", " A.").replace(" b.", " B.")


def nodes_of(name: str, verdicts: Mapping[str, str]) -> dict[str, Node]:
    """The claims of a paper, and whatever of this book or of other papers their proofs use."""
    nodes: dict[str, Node] = {}
    subjects = {
        id: s for paper in claims.REGISTRIES for id, s in claims.paper(paper).claims.items()
    }
    whole = {part: id for id, subject in subjects.items() for part in subject.parts}
    waiting = [id for id in claims.paper(name).claims if id not in whole]
    for id in waiting:
        if id not in nodes:
            subject = subjects[id]
            used = [u for one in (id, *subject.parts) for u in subjects[one].uses]
            uses = dict.fromkeys(whole.get(use, use) for use in used)
            uses.pop(id, None)
            nodes[id] = Node(id, label_of(subject), subject.place, verdicts[id], tuple(uses))
            waiting += uses
    return nodes


def columns_of(nodes: Mapping[str, Node]) -> list[list[str]]:
    """The nodes that are joined to others, by the length of the longest way to them.

    Within a column they are sorted by the mean height of their neighbours, again and again.
    """
    depth: dict[str, int] = {}

    def deepen(id: str) -> int:
        if id not in depth:
            depth[id] = 1 + max((deepen(use) for use in nodes[id].uses), default=-1)
        return depth[id]

    neighbours: dict[str, list[str]] = {id: list(node.uses) for id, node in nodes.items()}
    for id, node in nodes.items():
        for use in node.uses:
            neighbours[use].append(id)
    joined = [id for id in nodes if neighbours[id]]
    columns: list[list[str]] = [[] for _ in range(1 + max(map(deepen, joined), default=-1))]
    for id in joined:
        columns[depth[id]].append(id)
    for _ in range(SWEEPS):
        height = {id: y - len(column) / 2 for column in columns for y, id in enumerate(column)}
        for column in columns:
            column.sort(key=lambda id: sum(height[n] for n in neighbours[id]) / len(neighbours[id]))
    return columns


def picture(name: str, verdicts: Mapping[str, str]) -> str:
    """The graph of one paper as SVG, with links to the rows below it."""
    nodes = nodes_of(name, verdicts)
    columns = columns_of(nodes)
    tallest = max(map(len, columns), default=0)
    at: dict[str, tuple[float, float]] = {}
    for x, column in enumerate(columns):
        for y, id in enumerate(column):
            middle = (tallest - len(column)) / 2
            at[id] = (4 + x * (WIDTH + ACROSS), 4 + (y + middle) * (HEIGHT + DOWN))
    wide = max(4 + len(columns) * (WIDTH + ACROSS), 4 + 5 * (WIDTH + ACROSS)) - ACROSS + 4
    per_row = (wide + ACROSS) // (WIDTH + DOWN)
    alone = [id for id in nodes if id not in at]
    below = 4 + tallest * (HEIGHT + DOWN) + 34
    for index, id in enumerate(alone):
        x, y = index % per_row, index // per_row
        at[id] = (4 + x * (WIDTH + DOWN), below + y * (HEIGHT + DOWN))
    tall = max(y for _, y in at.values()) + HEIGHT + 4
    edges = "".join(
        edge(use, id, at) for id, node in nodes.items() for use in node.uses if use in at
    )
    boxes = "".join(box(node, name, at[id]) for id, node in sorted(nodes.items(), key=order(at)))
    caption = f'<text class="eh-alone" x="4" y="{below - 10:g}">joined to nothing:</text>' * bool(
        alone
    )
    title = f"Claims of {claims.paper(name).short} and what their proofs use"
    return (
        f'<div class="eh-graph" tabindex="-1"><svg viewBox="0 0 {wide:g} {tall:g}" '
        f'width="{SMALLEST * wide:g}" height="{SMALLEST * tall:g}" role="group" '
        f'aria-label="{escape(title)}">'
        f'<g class="eh-edges" aria-hidden="true">{edges}</g>{caption}{boxes}</svg></div>'
        '<div class="eh-graph-row" aria-live="polite">Point at a claim, or move to one with the '
        "Tab and arrow keys, and its row appears here. The same is listed below.</div>"
    )


def order(at: Mapping[str, tuple[float, float]]) -> Any:
    """Reading order: column by column, top to bottom."""
    return lambda item: at[item[0]]


def edge(start: str, end: str, at: Mapping[str, tuple[float, float]]) -> str:
    """A curve from what is used to what uses it."""
    (x, y), (to_x, to_y) = at[start], at[end]
    x, y, to_y = x + WIDTH, y + HEIGHT / 2, to_y + HEIGHT / 2
    bend = (to_x - x) / 2
    path = f"M{x:g},{y:g}C{x + bend:g},{y:g} {to_x - bend:g},{to_y:g} {to_x:g},{to_y:g}"
    return f'<path d="{path}" data-from="{escape(start)}" data-to="{escape(end)}"/>'


def box(node: Node, name: str, at: tuple[float, float]) -> str:
    """One claim: a link to its row, with the border and the filling of its verdict."""
    x, y = at
    own = node.id.split("/")[0]
    kind = "" if own == name else " eh-ours" if own not in claims.PAPERS else " eh-other"
    words = f"{node.place}: {claims.WORDS[node.verdict]}"
    sign = SIGNS.get(node.verdict, "~")
    label = f"{sign} {node.label if len(node.label) <= 19 else node.label[:18] + '…'}"
    spoken = escape(f"{label}, {words}")
    page = "" if own == name else f"claims_{own.replace('-', '_')}.html"
    anchor = "row-" + node.id.replace("/", "-").replace(".", "-")
    verdict = node.verdict.replace(" ", "-")
    return (
        f'<a class="eh-node eh-node-{verdict}{kind}" href="{page}#{anchor}" '
        f'data-id="{escape(node.id)}" aria-label="{spoken}"><title>{escape(words)}</title>'
        f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>'
        f'<text x="{x + 8:g}" y="{y + HEIGHT / 2 + 4:g}">{escape(label)}</text></a>'
    )
