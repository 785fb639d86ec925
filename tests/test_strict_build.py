"""The build is strict: every kind of fault makes it fail, and the report names the place."""

import re

import pytest

import build
import execution
from conftest import ROOT

PAGES = {page.stem: page.read_text() for page in (ROOT / "tests" / "broken_book").glob("*.md")}
PAGES.pop("README")
SOUND = {"sound": PAGES["sound"]}
FAULTS = {
    "raising_cell": r"raising_cell\.md: WARNING: cell 3 raised ZeroDivisionError",
    "stderr_output": r"stderr_output\.md:\d+.*stderr was found in the cell outputs of cell 2",
    "dead_reference": r"dead_reference\.md:3: WARNING: undefined label: 'nowhere'",
    "missing_citation": r"missing_citation\.md:3: WARNING: could not find bibtex key",
    "silent_picture": r"silent_picture\.md: WARNING: cell 2: image without alt text",
    "foreign_script": r"foreign_script\.md: WARNING: loads https://cdn\.example/library\.js",
}
REPEATED = r"raising_cell\.md: WARNING: (Executing notebook failed|Notebook exception traceback)"


def problems(log: str) -> list[str]:
    return [line for line in log.splitlines() if re.search(r"(WARNING|ERROR): ", line)]


def test_every_fault_is_reported_with_its_place_and_nothing_else_is(scratch_book):
    root = scratch_book({**SOUND, **PAGES})
    clean, log = build.build(root)
    assert not clean
    unexplained = problems(log)
    for pattern in [*FAULTS.values(), REPEATED]:
        found = [line for line in unexplained if re.search(pattern, line)]
        assert found, f"no line matches {pattern!r} in\n{log}"
        unexplained = [line for line in unexplained if line not in found]
    assert unexplained == []

    clean, _ = build.build(root)
    assert not clean, "the second build of the same broken book must fail as well"


def test_one_fault_is_enough_even_one_that_is_found_last(scratch_book):
    fault = "foreign_script"  # found when the pages are written; the one below, when they are read
    clean, log = build.build(scratch_book({**SOUND, fault: PAGES[fault]}))
    assert not clean
    assert len(problems(log)) == 1
    assert re.search(FAULTS[fault], log)


def test_a_page_forgotten_in_the_table_of_contents_is_a_fault(scratch_book):
    root = scratch_book(SOUND)
    (root / "book" / "forgotten.md").write_text("# Forgotten\n")
    clean, log = build.build(root)
    assert not clean
    assert re.search(r"forgotten\.md: WARNING: document isn't included in any toctree", log)


def test_a_sound_book_builds_and_its_cache_notices_an_edit_in_the_package(scratch_book):
    page = PAGES["sound"].replace(
        "print(1 + 1)",
        "import sys\nsys.path.insert(0, '../src')\nimport answer\nprint(answer.VALUE)",
    )
    root = scratch_book({"sound": page})
    module = root / "src" / "answer.py"
    shown = root / "_build" / "html" / "book" / "sound.html"

    module.write_text("VALUE = 'forty-one'\n")
    clean, log = build.build(root)
    assert clean, log
    assert problems(log) == []
    assert "forty-one" in shown.read_text()
    _, log = build.build(root)
    assert "Executed notebook" not in log

    module.write_text("VALUE = 'forty-two'\n")
    _, log = build.build(root)
    assert "Executed notebook" in log
    assert "forty-two" in shown.read_text()


def test_the_digest_sees_names_and_contents_but_not_dates(tmp_path):
    (tmp_path / "src").mkdir()
    module = tmp_path / "src" / "a.py"
    module.write_text("x = 1\n")
    before = execution.content_digest(tmp_path)
    module.write_text("x = 1\n")
    assert execution.content_digest(tmp_path) == before
    module.write_text("x = 2\n")
    changed = execution.content_digest(tmp_path)
    assert changed != before
    module.rename(tmp_path / "src" / "b.py")
    assert execution.content_digest(tmp_path) != changed


def test_a_missing_web_file_stops_the_build(scratch_book):
    root = scratch_book(SOUND)
    (root / "vendor").unlink()
    clean, log = build.build(root)
    assert not clean
    assert re.search(r"ERROR: vendor/mathjax/\S+ is missing: `make book` fetches it", log)


def test_two_builds_at_once_are_refused(scratch_book):
    root = scratch_book(SOUND)
    with build.alone(root), pytest.raises(SystemExit, match="Another build is at work"):
        build.build(root)


def test_a_folder_that_cannot_be_written_is_said_in_a_sentence(scratch_book):
    root = scratch_book(SOUND)
    (root / "_build").write_text("in the way")
    with pytest.raises(SystemExit, match=r"The build can't write to .*_build: "):
        build.build(root)
