"""Pages: within their budget, in the table of contents, runnable in any order, and nothing lost."""

import ast
import json
import re
import symtable

import pytest
import yaml

import reference
from conftest import ROOT
from exacthessian import claims
from page_budget import fronts, load_of

PAGES = {reference.name_of(page): page.read_text(encoding="utf-8") for page in reference.pages()}
NOTEBOOKS = [reference.name_of(page) for page in reference.notebooks()]
FIRST = json.loads((ROOT / "tests" / "first_edition.json").read_text(encoding="utf-8"))
# Chapters of the first edition that wait for their move, and what they ask of a reader until then:
# words, code cells, inline formulas. The list only shrinks, and so do its numbers.
TO_BE_MOVED: dict[str, tuple[int, int, int]] = {}
MOVED = [name for name in PAGES if name not in TO_BE_MOVED]
# Named for cutting by a referee's note, with the reason in the changelog.
CUT_LABELS: set[str] = set()


def contents() -> list[str]:
    """The pages of the table of contents."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))

    def files(entry):
        yield entry["file"].removeprefix("book/")
        for inner in entry.get("sections", []):
            yield from files(inner)

    chapters = (chapter for part in toc["parts"] for chapter in part["chapters"])
    return [toc["root"].removeprefix("book/"), *(f for chapter in chapters for f in files(chapter))]


def test_every_page_is_in_the_table_of_contents_below_its_chapter():
    listed = contents()
    assert sorted(listed) == sorted(PAGES)
    for name in listed:
        if "/" in name:
            assert name.split("/")[0] in listed[: listed.index(name)]


@pytest.mark.parametrize("name", MOVED)
def test_a_page_stays_within_its_budget(name):
    assert load_of(PAGES[name]).overdrafts(front=name in fronts()) == []


@pytest.mark.parametrize("name", TO_BE_MOVED)
def test_what_waits_to_be_moved_only_shrinks(name):
    load = load_of(PAGES[name])
    assert load.overdrafts(front=name in fronts()), f"{name} fits: take it off the list"
    found = (load.words, len(load.cells), load.formulas)
    assert all(now <= then for now, then in zip(found, TO_BE_MOVED[name], strict=True)), found


def cells_of(name: str) -> list[str]:
    page = ROOT / "book" / f"{name}.md"
    notebook = reference.source_notebook(page)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def names_in(source: str) -> tuple[set[str], set[str]]:
    """The names that a cell binds, and those that it reads without having bound them before.

    Arguments of functions and lambdas, and variables of comprehensions, are not the cell's.
    """
    bound: set[str] = set()
    free: set[str] = set()
    for statement in ast.parse(source).body:
        table = symtable.symtable(ast.unparse(statement), "cell", "exec")
        stores = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
        free |= globals_read(table) - bound - stores
        bound |= stores
    return bound, free


def globals_read(table: symtable.SymbolTable) -> set[str]:
    inside = table.get_type() != "module"
    symbols = [s for s in table.get_symbols() if (s.is_global() if inside else s.is_referenced())]
    own = {symbol.get_name() for symbol in symbols}
    return own.union(*(globals_read(inner) for inner in table.get_children()))


@pytest.mark.parametrize("name", [name for name in MOVED if name in NOTEBOOKS])
def test_no_name_means_two_things_on_a_page(name):
    """Else a cell that is run again after the others computes something else."""
    owners: dict[str, list[int]] = {}
    free: dict[str, set[int]] = {}
    for number, source in enumerate(cells_of(name), start=1):
        bound, reads = names_in(source)
        for one in bound:
            owners.setdefault(one, []).append(number)
        for one in reads:
            free.setdefault(one, set()).add(number)
    twice = {one: cells for one, cells in owners.items() if len(cells) > 1 and one in free}
    assert twice == {}


@pytest.mark.parametrize("name", MOVED)
def test_a_page_does_without_our_own_tex_macros(name):
    """A reader's JupyterLab does not know them."""
    macros = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]
    names = macros.get("mathjax3_config", {}).get("tex", {}).get("macros", {})
    for macro in names:
        assert not re.search(rf"\\{macro}(?![A-Za-z])", PAGES[name]), macro


@pytest.mark.parametrize("name", sorted(fronts() - set(TO_BE_MOVED)))
def test_no_code_stands_above_the_first_picture(name):
    """Visible code, that is; the first screen has the question, the answer and the picture."""
    load = load_of(PAGES[name])
    pictured = re.search(r"figures\.|picture|figure\(", "\n".join(load.cells[0].lines))
    assert load.cells[0].folded, "the first cell of a front page is folded"
    assert pictured or load.cells[1].folded


# Claims: registry, function and page, by name


def opened() -> dict[str, list[str]]:
    """The ids that pages open literally, each with its pages."""
    found: dict[str, list[str]] = {}
    for name, text in PAGES.items():
        for id in re.findall(r'\b(?:claim|not_attempted|figure)\(\s*"([^"]+)"', text):
            found.setdefault(id, []).append(name)
    return found


@pytest.mark.parametrize("registry", claims.REGISTRIES)
def test_every_claim_and_figure_is_opened_literally_on_one_page(registry):
    paper, pages = claims.paper(registry), opened()
    wanted = [*(subject.id for subject in paper.leaves), *paper.figures]
    assert {id: pages.get(id, []) for id in wanted if len(pages.get(id, [])) != 1} == {}
    mine = {id for id in pages if id.startswith(f"{registry}/")}
    assert mine == set(wanted)


@pytest.mark.parametrize("name", claims.PAPERS)
def test_every_numbered_function_is_the_form_of_a_claim(name):
    """A function of a paper's module that no registry row names decides no verdict."""
    paper = claims.paper(name)
    forms = {subject.form for subject in paper.claims.values() if subject.form}
    module = claims.PACKAGE / "papers" / f"{paper.chapter}.py"
    body = ast.parse(module.read_text(encoding="utf-8")).body
    functions = {
        f"papers.{paper.chapter}.{node.name}"
        for node in body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    assert functions == {form for form in forms if form.startswith("papers.")}


@pytest.mark.parametrize("registry", claims.REGISTRIES)
def test_every_form_is_printed_on_a_page(registry):
    """`{closed-form}` shows it below its theorem."""
    shown = {p for text in PAGES.values() for p in re.findall(r"\{closed-form\}[ `]([\w.]+)", text)}
    waiting = {claims.paper(registry).chapter} & set(TO_BE_MOVED)
    forms = {s.form for s in claims.paper(registry).claims.values() if s.form}
    assert waiting or forms <= shown, forms - shown


# Nothing of the first edition is lost


def test_no_claim_and_no_figure_of_the_first_edition_is_lost():
    known = {id for name in claims.PAPERS for id in claims.paper(name).claims}
    figures = {id for name in claims.PAPERS for id in claims.paper(name).figures}
    assert set(FIRST["claims"]) - known == set()
    assert set(FIRST["figures"]) - figures == set()


@pytest.mark.parametrize("chapter", FIRST["labels"])
def test_every_label_of_the_first_edition_has_a_place_in_its_chapter(chapter):
    mine = [t for name, t in PAGES.items() if name == chapter or name.startswith(f"{chapter}/")]
    text = "\n".join(mine)
    lost = [
        label
        for label in FIRST["labels"][chapter]
        if not re.search(rf"(?<![\w-]){re.escape(label)}(?![\w-])", text)
    ]
    assert sorted(set(lost) - CUT_LABELS) == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_an_equation_of_a_paper_is_not_printed_like_ours(name):
    """In prose (P17) is the paper's equation 17; formulas, code and quotations are their own."""
    notebook = reference.source_notebook(ROOT / "book" / f"{name}.md")
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|\"[^\"]*\"", "", cell.source, flags=re.S)
            assert re.findall(r"(?<![\w)\]}])\(\d{1,3}\)", prose) == []
