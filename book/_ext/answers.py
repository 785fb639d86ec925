"""Search that answers, offline, and links to the glossary.

Sphinx's own index knows pages. This one knows what a reader asks for: headings, theorems by name,
terms of the glossary, claims, exercises and functions of the package, each with a line of context.
It is a script of the site (`answers-index.js`), because a page that was opened from a file may load
scripts but no data; `answers.js` searches it on the search page. The first use of a term on a page
is a link to the glossary.
"""

import html
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from docutils import nodes
from sphinx.addnodes import desc, desc_signature, glossary, pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from claim_graph import label_of
from exacthessian import claims
from ledger import outcome, page_of, row_anchor, subject_of
from names import NAMES

LINE = 220  # characters of context
# Plain words are terms in these chapters only, or only where a page writes {term}.
EDGE, UFM = "book/beyond_edge_of_stability", "book/deep_linear_ufm"
CHAINS = ("book/linear_chains", "book/one_spectrum", "book/depth_not_data")
COMMON: dict[str, tuple[str, ...]] = {
    **{"active": CHAINS, "block": (*CHAINS, EDGE), "ratio": (EDGE,), "fold": (UFM,)},
    **{"idle": (UFM,), "claim": (), "fit": (), "corrected": ()},
}
TERMS = "terms of the glossary"  # a key of a page's metadata
SYMBOLS = {
    "le": "≤", "ge": "≥", "ne": "≠", "to": "→", "times": "×", "cdot": "·", "pm": "±", "mp": "∓",
    "in": "∈", "infty": "∞", "otimes": "⊗", "approx": "≈", "simeq": "≃", "sum": "Σ", "prod": "Π",
    "partial": "∂", "nabla": "∇", "top": "ᵀ", "ell": "ℓ", "ldots": "…", "dots": "…", "cdots": "…",
    "lVert": "‖", "rVert": "‖", "lvert": "|", "rvert": "|", "langle": "⟨", "rangle": "⟩",
    "tfrac": "", "frac": "", "sqrt": "√", "mapsto": "↦", "quad": " ",
}  # fmt: skip


def readable(tex: str) -> str:
    r"""A formula as plain text, good enough for a line of context.

    >>> readable(r"\lambda_{\max} \le 2/\eta"), readable(r"\tfrac12\lVert W^\top x\rVert^2")
    ('λ_max ≤ 2/η', '1/2‖ Wᵀ x‖²')
    """
    text = re.sub(r"\\[td]?frac\s*(\{[^{}]*\}|\w)\s*(\{[^{}]*\}|\w)", r"\1/\2", tex)

    def symbol(found: re.Match[str]) -> str:
        name = found[1]
        if name in SYMBOLS:
            return SYMBOLS[name]
        size = "CAPITAL" if name[:1].isupper() else "SMALL"
        greek = "LAMDA" if name.lower() == "lambda" else name.upper().removeprefix("VAR")
        try:
            return unicodedata.lookup(f"GREEK {size} LETTER {greek}")
        except KeyError:
            return name if name in ("max", "min", "log", "exp", "tr", "diag", "rank", "vec") else ""

    text = re.sub(r"\\([A-Za-z]+)", symbol, text)
    text = text.replace("^ᵀ", "ᵀ").replace("^2", "²").replace("^3", "³")
    return " ".join(re.sub(r"\\.|[{}$]|&", "", text).split())


Known = Mapping[str, str]  # what a reference leads to → its name


def text_of(node: nodes.Node, known: Known) -> str:
    """The words of a node, formulas and references made readable, without code and outputs."""
    if isinstance(node, nodes.math | nodes.math_block):
        return readable(node.astext())
    if isinstance(node, nodes.Text):
        return str(node)
    if isinstance(node, nodes.literal_block | nodes.raw | nodes.image):
        return ""
    if isinstance(node, pending_xref) and not node.get("refexplicit") and node["reftype"] != "term":
        page = normpath(join(dirname(node["refdoc"]), node["reftarget"]))
        return known.get(node["reftarget"], known.get(page, ""))
    return "".join(text_of(child, known) for child in node.children)


def line(text: str) -> str:
    """One line of context, cut at a word; a reference that has no name has left a gap.

    >>> line("It is known: , and .  More.")
    'It is known. More.'
    """
    words = re.sub(r"(?:[:,;]| and| )+(?=\.(?:\s|$))", "", " ".join(text.split()))
    return words if len(words) <= LINE else words[:LINE].rpartition(" ")[0] + " …"


def first_words(section: nodes.Element, known: Known) -> str:
    """The first paragraphs below a heading, not those of its subsections."""
    found: list[str] = []
    for child in section.children[1:]:
        if isinstance(child, nodes.section) and found:
            break
        if isinstance(child, nodes.paragraph | nodes.bullet_list | nodes.math_block):
            found.append(text_of(child, known))
        if sum(map(len, found)) > LINE:
            break
    return line(" ".join(found))


def entries(docname: str, doctree: nodes.document, known: Known) -> Iterator[list[str]]:
    """What a page has to offer: kind, title, address and a line of context each."""
    page = f"{docname}.html"
    for section in doctree.findall(nodes.section):
        if isinstance(section.parent, nodes.Admonition) or not section["ids"]:
            continue
        title = text_of(section.children[0], known)
        top = isinstance(section.parent, nodes.document)
        kind = "page" if top else "function" if docname == "book/package" else "section"
        yield [
            kind,
            title,
            f"{page}#{section['ids'][0]}",
            first_words(section, known),
        ]
    for node in doctree.findall(nodes.Admonition):
        kinds = [kind for kind in ("proof", "exercise") if kind in node.get("classes", [])]
        head = next(iter(node.findall(nodes.title)), None)
        if not kinds or head is None or not node.get("ids"):
            continue
        title = text_of(head, known).strip().removeprefix("Exercise").strip("() ")
        inner = [child for child in node.children if not isinstance(child, nodes.title)]
        kind = "exercise" if kinds == ["exercise"] else node["classes"][1]
        if title and not title.lower().startswith("proof"):
            yield [
                kind,
                title,
                f"{page}#{node['ids'][0]}",
                line(" ".join(text_of(part, known) for part in inner)),
            ]
    for terms in doctree.findall(glossary):
        for item in terms.findall(nodes.definition_list_item):
            about = line(" ".join(text_of(part, known) for part in item.findall(nodes.definition)))
            for term in item.findall(nodes.term):
                yield ["term", text_of(term, known), f"{page}#{term['ids'][0]}", about]
    for signature in doctree.findall(desc_signature):
        if signature["ids"] and isinstance(signature.parent, desc):
            about = next(iter(signature.parent.findall(nodes.paragraph)), None)
            name = signature["ids"][0].removeprefix("exacthessian.")
            yield [
                "function",
                name,
                f"{page}#{signature['ids'][0]}",
                line(text_of(about, known)) if about else "",
            ]


def claim_entries(app: Sphinx) -> Iterator[list[str]]:
    """Every claim, called by its paper and its place."""
    for row in app.env.ledger["claims"]:
        subject = subject_of(row)
        page = page_of(row["paper"])
        page = page if page in app.env.found_docs else "book/ledger"
        short = claims.paper(row["paper"]).short
        verdict = claims.WORDS[outcome(row)]
        said = readable(subject.statement)
        label = label_of(subject)
        place = subject.place if subject.place.startswith(label) else f"{label}, {subject.place}"
        title = f"{short}: {place}"
        yield ["claim", title, f"{page}.html#{row_anchor(subject)}", line(f"{verdict}. {said}")]


def names_in(app: Sphinx) -> Known:
    """Pages and sections by their titles, theorems by their names."""
    titles = {docname: title.astext() for docname, title in app.env.titles.items()}
    titles |= {label: title for label, (*_, title) in app.env.domains["std"].labels.items()}
    named = (app.env.metadata[docname].get(NAMES, {}) for docname in app.env.found_docs)
    return titles | {label: plain(name) for names in named for label, name in names.items()}


def plain(markup: str) -> str:
    r"""The words of a name that is written in HTML.

    >>> plain(r'Joint spectra at finite <span class="math">\(\lambda\)</span> &amp; more')
    'Joint spectra at finite λ & more'
    """
    words = html.unescape(re.sub(r"<[^>]*>", "", markup))
    return re.sub(r"\\\((.*?)\\\)", lambda formula: readable(formula[1]), words)


def write_index(app: Sphinx, error: Exception | None) -> None:
    """Put the index beside the pages; that of a build that has read no page is there."""
    if error is not None or app.builder.format != "html" or not hasattr(app.env, "ledger"):
        return
    found: list[list[str]] = []
    known = names_in(app)
    for docname in sorted(app.env.found_docs):
        title = app.env.titles[docname].astext() if docname in app.env.titles else docname
        found += [[*one, title] for one in entries(docname, app.env.get_doctree(docname), known)]
    found += [[*one, "The ledger"] for one in claim_entries(app)]
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    file = Path(app.outdir) / "_static" / "answers-index.js"
    file.write_text(f"window.answersIndex={text};\n", encoding="utf-8")


def on_search_page(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Load the index where it is searched, and nowhere else."""
    if page == "search":
        app.add_js_file("answers-index.js")
        app.add_js_file("answers.js", defer="defer")


def note_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Remember the terms that a page defines, with their anchors and what they mean."""
    found: dict[str, list[str]] = {}
    known = names_in(app)
    for terms in doctree.findall(glossary):
        for item in terms.findall(nodes.definition_list_item):
            about = line(" ".join(text_of(part, known) for part in item.findall(nodes.definition)))
            for term in item.findall(nodes.term):
                found[text_of(term, known)] = [term["ids"][0], about]
    app.env.metadata[app.env.docname][TERMS] = found


def link_terms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make the first use of each term on a page a link to the glossary."""
    for home in app.env.found_docs:
        known = app.env.metadata[home].get(TERMS)
        if not known or home == docname or not docname.startswith("book/"):
            continue
        waiting = {t: at for t, at in known.items() if docname.startswith(COMMON.get(t, ("",)))}
        address = app.builder.get_relative_uri(docname, home)
        for text in list(doctree.findall(nodes.Text)):
            if waiting and may_link(text):
                link_in(text, waiting, address)


def may_link(text: nodes.Text) -> bool:
    """Whether a text is prose: in a paragraph, and in no link, heading, code or caption."""
    node: Any = text.parent
    prose = isinstance(node, nodes.paragraph | nodes.emphasis | nodes.strong)
    stop = (nodes.reference, nodes.title, nodes.literal, nodes.caption, pending_xref, nodes.table)
    while prose and node is not None:
        if isinstance(node, stop) or "cell_output" in node.get("classes", []):
            return False
        node = node.parent
    return prose


def link_in(text: nodes.Text, waiting: dict[str, list[str]], address: str) -> None:
    """Replace the first term of a text by a link, and look on behind it."""
    found = _any_of(tuple(waiting)).search(str(text))
    if not found:
        return
    term = next(one for one in waiting if one.lower() == found[1].lower())
    anchor, about = waiting.pop(term)
    link = nodes.reference("", found[0], refuri=f"{address}#{anchor}", internal=True)
    link["classes"] += ["eh-term"]
    link["reftitle"] = about
    rest = nodes.Text(str(text)[found.end() :])
    text.parent.replace(text, [nodes.Text(str(text)[: found.start()]), link, rest])
    if waiting:
        link_in(rest, waiting, address)


@cache
def _any_of(terms: tuple[str, ...]) -> re.Pattern[str]:
    """Matches a term, or its plural, that is no part of a longer word or of a file's name."""
    words = "|".join(sorted(map(re.escape, terms), key=len, reverse=True))
    return re.compile(rf"(?<![\w-])({words})(?:s|es)?(?![\w-]|\.\w)", re.I)


def rewritten_pages(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """A new term may be used on any page, so a changed glossary writes them all."""
    homes = [docname for docname in env.found_docs if env.metadata[docname].get(TERMS)]
    terms = json.dumps([env.metadata[home][TERMS] for home in homes])
    before, env.glossary_terms = getattr(env, "glossary_terms", ""), terms
    return [] if before == terms else sorted(env.found_docs)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.setup_extension("ledger")
    app.connect("doctree-read", note_terms)
    app.connect("env-updated", rewritten_pages)
    app.connect("doctree-resolved", link_terms)
    app.connect("html-page-context", on_search_page)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
