"""A fifth paper, added by following CONTRIBUTING to the letter."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import build
import new_paper
from conftest import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = GUIDE.split("## Adding a paper")[1]
COMMANDS = re.findall(r"^\$ (.+)$", SECTION.split("```console")[1].split("```")[0], re.M)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository as it is, with this one's environment."""
    root = tmp_path_factory.mktemp("fifth") / "copy"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for name in listed:
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    for name in (".venv", "vendor"):
        (root / name).symlink_to(ROOT / name)
    for command in COMMANDS[:2]:
        done = run(root, *shlex.split(command))
        assert done.returncode == 0, done.stdout + done.stderr
    return root


def run(root, *command):
    if command[0] == "make":  # the environment is this one's, and is not set up again
        command = ["make", "-o", ".venv/ready", *command[1:]]
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    checked = str(ROOT / ".mypy_cache")  # what is the same here and there is checked once
    environment = {
        **os.environ,
        "PYTHONPATH": str(root / "src"),
        "PATH": path,
        "MYPY_CACHE_DIR": checked,
    }
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def test_the_guide_says_what_the_test_does():
    assert COMMANDS[0] == "make new-paper NAME=my-paper"
    assert COMMANDS[1].startswith("make accept PAGE=")
    assert COMMANDS[2:] == ["make test"]
    for path in new_paper.targets("my_paper", "my-paper").values():
        assert str(path) in SECTION or path.suffix == ".md", path


def test_what_the_template_writes_is_green(copy):
    for command in (
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "src", "tests"],
        [sys.executable, "-m", "mypy"],
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "tests/test_my_paper.py",
            "tests/test_pages.py",
            "tests/test_package.py",
            "-k",
            "my or labels or numbered or opened or contents or room",
        ],
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--doctest-modules",
            "src/exacthessian/papers/my_paper.py",
        ],
        ["make", "notebooks", "PAGE=my_paper/first_claim"],
        ["make", "mutate-claims", "PAGE=my_paper/first_claim"],
    ):
        done = run(copy, *command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_its_pages_build_and_its_verdicts_are_in_the_ledger(copy, monkeypatch):
    pages = ["my_paper", "my_paper/first_claim", "ledger", "intro", "figures", "package"]
    for page in (copy / "book").rglob("*.md"):
        if page.relative_to(copy / "book").with_suffix("").as_posix() not in pages:
            page.unlink()
    for name in ("intro", "ledger", "figures"):
        text = {"intro": "# Intro\n", "ledger": "# L\n\n```{ledger}\n```\n", "figures": "# F\n"}[
            name
        ]
        (copy / "book" / f"{name}.md").write_text(text)
    chapters = "".join(f"\n  - file: book/{name}" for name in ("ledger", "figures", "package"))
    (copy / "_toc.yml").write_text(
        "format: jb-book\nroot: book/intro\nchapters:\n  - file: book/my_paper\n"
        f"    sections:\n      - file: book/my_paper/first_claim{chapters}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(copy / "src"))
    clean, log = build.build(copy)
    problems = [line for line in log.splitlines() if ".md" in line and "WARNING" in line]
    assert problems == [], log
    ledger = (copy / "_build" / "html" / "ledger.json").read_text()
    assert '"my-paper/theorem-1"' in ledger
    assert re.search(r'"id": "my-paper/theorem-1".*?"verdict": "holds"', ledger, re.S)
    assert clean, log


@pytest.mark.parametrize("name", ["", "Depth", "a_b", "../x", "depth-not-data"])
def test_a_bad_or_taken_name_writes_nothing(name, capsys):
    before = {p: p.stat().st_mtime_ns for p in ROOT.glob("src/exacthessian/registry/*")}
    assert new_paper.main([name]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert before == {p: p.stat().st_mtime_ns for p in ROOT.glob("src/exacthessian/registry/*")}
