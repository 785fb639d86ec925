"""The project's own files: two commands, one version, nobody else's code, no machine's paths."""

import doctest
import re
import subprocess
import tomllib

import pytest
import yaml

import reference
from conftest import ROOT

TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.splitlines()
CARD = {"book", "_config.yml", "_toc.yml", "src", "tests", "environment.yml", "README.md"}
SCREEN = 30


def test_the_top_level_is_the_promised_one():
    assert {path.split("/")[0] for path in TRACKED} >= CARD


def test_the_readme_names_the_two_commands_on_its_first_screen():
    first = "\n".join((ROOT / "README.md").read_text().splitlines()[:SCREEN])
    assert "make book" in first
    assert "make test" in first


def test_the_readme_example_is_true():
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert tried > 0
    assert failed == 0


def test_ci_calls_the_test_command_and_nothing_else():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["exec make test"]


def test_one_version_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    assert re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_no_built_or_foreign_file_is_tracked():
    foreign = re.compile(r"^(vendor|_build|\.venv|node_modules)/|\.(min\.js|woff2?|whl|tgz)$")
    assert [path for path in TRACKED if foreign.search(path)] == []


def test_no_tracked_text_names_a_machine_path_or_a_package_registry():
    registry = "|".join(["pypi" + r"\.org", "npmjs" + r"\.(?:org|com)", "deb" + r"\.debian"])
    path = r"(?<![\w.])/(?:" + "|".join(["work", "root", "home"]) + r")/\w"
    for name in TRACKED:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(f"{registry}|{path}", text), name


def test_no_code_runs_what_a_file_says():
    """No pickles, which run code when they are read, and no code or command made from a text."""
    unsafe = re.compile(
        r"\b(?:import|from) (?:pickle|shelve|marshal|dill|joblib|cloudpickle)\b|allow_pickle=True"
        r"|(?<![\w.])(?:eval|exec)\(|os\.system\(|shell=True"
        r"|torch\.load\((?![^\n]*weights_only=True)"
    )
    for bad in ("import pickle", "torch.load(f)", "np.load(f, allow_pickle=True)", "eval(x)"):
        assert unsafe.search(bad)
    folders = ("src/", "tools/", "book/", "benchmarks/")
    code = [name for name in TRACKED if name.startswith(folders) and name.endswith((".py", ".md"))]
    assert len(code) > 100
    for name in code:
        assert not unsafe.search((ROOT / name).read_text(encoding="utf-8")), name


@pytest.mark.parametrize("page", reference.notebooks(), ids=reference.name_of)
def test_the_code_on_a_page_is_no_wider_than_that_of_the_package(page):
    """About 86 characters fit the column; the rest of a line is wrapped, as in closed forms."""
    cells = [c.source for c in reference.source_notebook(page).cells if c.cell_type == "code"]
    wide = [line for source in cells for line in source.splitlines() if len(line) > 99]
    assert wide == []


@pytest.mark.parametrize("page", reference.notebooks(), ids=reference.name_of)
def test_randomness_is_seeded_and_local(page):
    for cell in reference.source_notebook(page).cells:
        if cell.cell_type == "code":
            assert not re.search(r"np\.random\.(?!default_rng\([\w\[])", cell.source)
            assert not re.search(r"torch\.(manual_seed|rand|randn)\b", cell.source)


def test_the_contributing_guide_knows_every_derived_file():
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    for derived in ("constraints.txt", "hashes.txt", "book/**/*.ipynb", "vendor/", "_build/html"):
        assert f"`{derived}`" in guide
