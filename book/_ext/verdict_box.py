"""A verdict as a reader sees it: a badge, a box, and the record inside a cell's output."""

import hmac
import json
import re
from collections.abc import Mapping
from html import escape, unescape
from typing import Any

from exacthessian import claims

FOUND = re.compile(r'data-record="([^"]*)"(?: data-seal="([^"]*)")?')
HEAD = re.compile(rf'<div class="eh-verdict"(?: id="[^"]*")? {FOUND.pattern}')
IMITATION = re.compile(r"data-record|data-seal|eh-badge|eh-verdict(?! eh-changed)", re.IGNORECASE)


def records_in(html: str) -> list[dict[str, Any]]:
    """The records that an output's HTML carries; one whose seal is not the build's is refused.

    >>> records_in('<div data-record="{&quot;claim&quot;: {}}" data-seal="x">')
    Traceback (most recent call last):
    exacthessian.claims.ClaimError: a record that no claim of the package has made: {"claim": {}}
    """
    records = []
    for data, mark in FOUND.findall(html):
        text = unescape(data)
        if not hmac.compare_digest(mark, claims._seal(text)):
            raise claims.ClaimError(f"a record that no claim of the package has made: {text[:200]}")
        records.append(json.loads(text))
    if IMITATION.search(unescape(HEAD.sub("", html))):
        raise claims.ClaimError("a box that looks like a verdict, but that no claim has made")
    return records


def badge(verdict: str) -> str:
    """A verdict, or the status of a figure, as a small coloured label.

    >>> badge("corrected")
    '<span class="eh-badge eh-corrected">holds once corrected</span>'
    """
    words = escape(claims.WORDS.get(verdict, verdict))
    return f'<span class="eh-badge eh-{escape(verdict.replace(" ", "-"))}">{words}</span>'


def markdown_html(text: str) -> str:
    """One line of Markdown with formulas, as HTML in which nothing else is markup.

    >>> markdown_html("for *all* $a<b$")
    'for <em>all</em> \\\\(a&lt;b\\\\)'
    """
    pieces = re.split(r"\$([^$]+)\$", escape(text, quote=False))
    for index, piece in enumerate(pieces):
        if index % 2:
            pieces[index] = rf"\({piece}\)"
        else:
            piece = re.sub(r"`([^`]+)`", r"<code>\1</code>", piece)
            pieces[index] = re.sub(r"\*([^*\s][^*]*)\*", r"<em>\1</em>", piece)
    return "".join(pieces)


def said(subject: claims.Claim, verdict: str) -> str:
    """What is true, and what is printed where that is something else."""
    if verdict not in claims.WRONG_AS_PRINTED or subject.erratum is None:
        return markdown_html(subject.statement)
    erratum = subject.erratum
    true, printed = markdown_html(erratum.corrected), markdown_html(erratum.printed)
    return f"{true} <em>Printed:</em> {printed}"


def decided(record: claims.Record) -> str:
    """What decided a verdict, in words that say whether automatic differentiation was asked."""
    return "; ".join(f"{name}: {_with_oracle(fact)}" for name, fact in record.facts)


def _with_oracle(fact: claims.Check | claims.Interval | str) -> str:
    if not isinstance(fact, claims.Check) or not fact.oracle:
        return str(fact)
    asked = f"against automatic differentiation ({fact.truth}):"
    return str(fact).replace(f"against {fact.truth}:", asked)


def box(record: claims.Record, links: Mapping[str, str]) -> str:
    """A record as a box: what is claimed, what is true, what decided it, and where to look.

    `links` are addresses by the word that a reader clicks.

    >>> found = claims.Record("this-book/aligned-chain", "holds", claims.Check(0.0, 1e-10))
    >>> box(found, {"a": "b.html"}).endswith('chain</code> · <a href="b.html">a</a></p></div>')
    True
    """
    subject = claims.paper(record.id.split("/")[0]).claims[record.id]
    head = f"{badge(record.verdict)} <strong>{escape(subject.place)}.</strong>"
    lines = [f"{head} {said(subject, record.verdict)}"]
    if facts := decided(record):
        lines.append(f"<em>What decided it.</em> {escape(facts)}.")
    ends = [f'<a href="{escape(to)}">{escape(word)}</a>' for word, to in links.items()]
    lines.append(" · ".join([f"<code>{escape(record.id)}</code>", *ends]))
    inner = "".join(f"<p>{line}</p>" for line in lines)
    return f'<div class="eh-verdict mathjax_process" id="{subject.anchor}">{inner}</div>'
