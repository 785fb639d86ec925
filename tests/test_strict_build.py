"""The build is strict: every kind of fault makes it fail, and the report names the place."""

import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

import build
import execution
from conftest import ROOT

PAGES = {page.stem: page.read_text() for page in (ROOT / "tests" / "broken_book").glob("*.md")}
PAGES.pop("README")
SOUND = {"sound": PAGES["sound"]}
FAULTS = {
    "raising_cell": r"raising_cell\.md: WARNING: cell 3 raised ZeroDivisionError",
    "bare_assert": r"bare_assert\.md: WARNING: cell 3 raised AssertionError: .*starts: assert one",
    "wordless_error": r"wordless_error\.md: WARNING: cell 3 raised Wordless: .*starts: raise Word",
    "dead_kernel": r"dead_kernel\.md: WARNING: cell 3 raised DeadKernelError: Kernel died",
    "stderr_output": r"stderr_output\.md:\d+.*stderr was found in the cell outputs of cell 2",
    "dead_reference": r"dead_reference\.md:3: WARNING: undefined label: 'nowhere'",
    "missing_citation": r"missing_citation\.md:3: WARNING: could not find bibtex key",
    "silent_picture": r"silent_picture\.md: WARNING: cell 2: image without alt text",
    "foreign_script": r"foreign_script\.md: WARNING: loads https://cdn\.example/library\.js",
}
REPEATED = r"\w+\.md: WARNING: (Executing notebook failed|Notebook exception traceback)"


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
    clean, log = build.build(root)
    assert clean, f"a build of what has not changed fails:\n{log}"
    assert "Executed notebook" not in log

    kept = next(root.glob("_build/jupyter_cache/*/executed/*/base.ipynb"))
    kept.write_text(kept.read_text()[:100])  # as a build leaves it that is killed while it writes
    (root / "_build" / "clean").unlink()
    clean, log = build.build(root)
    assert clean, log
    assert "Executed notebook" in log

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


@pytest.mark.parametrize(
    "name", ["src/p/registry/a.toml", "src/p/data/a.json", "src/p/data/a.txt", "constraints.txt"]
)
def test_the_digest_sees_every_data_file_and_the_pinned_versions(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("one")
    before = execution.content_digest(tmp_path), build.fingerprint(tmp_path)
    path.write_text("two")
    after = execution.content_digest(tmp_path), build.fingerprint(tmp_path)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_missing_web_file_stops_the_build(scratch_book):
    root = scratch_book(SOUND)
    (root / "vendor").unlink()
    clean, log = build.build(root)
    assert not clean
    assert re.search(r"ERROR: vendor/mathjax/\S+ is missing: `make book` fetches it", log)


BUILD = "import sys, build, pathlib; build.build(pathlib.Path(sys.argv[1]))"


def test_a_build_that_is_killed_or_fails_leaves_what_is_served_and_the_next_one_recovers(
    scratch_book,
):
    root = scratch_book(SOUND)
    page, site = root / "book" / "sound.md", root / "_build" / "html"
    assert build.build(root)[0]
    whole = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}

    page.write_text(PAGES["sound"] + "\nA new sentence.\n")
    stale = (root / "_build" / "work" / "_build" / "html" / "book" / "sound.html").stat().st_mtime
    killed = subprocess.Popen(
        [sys.executable, "-c", BUILD, root],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        start_new_session=True,
    )
    written = root / "_build" / "work" / "_build" / "html" / "book" / "sound.html"
    while killed.poll() is None and written.stat().st_mtime == stale:
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    with (root / "_build" / "lock").open("w") as lock:  # until its children have died, too
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == whole

    page.write_text(PAGES["sound"] + "\nA new sentence, {ref}`nowhere`.\n")
    assert not build.build(root)[0]
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == whole

    page.write_text(PAGES["sound"] + "\nA new sentence.\n")
    clean, log = build.build(root)
    assert clean, log
    assert "A new sentence." in (site / "book" / "sound.html").read_text()
    assert "Content-Security-Policy" in (site / "index.html").read_text()


def test_a_full_disk_is_said_in_a_sentence_and_leaves_what_is_served(tmp_path, monkeypatch):
    made, served = tmp_path / "made", tmp_path / "html"
    for folder, text in ((made, "new"), (served, "old")):
        folder.mkdir()
        (folder / "index.html").write_text(text)

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copytree", full)
        patched.setattr(build, "build_alone", lambda root, lock: build.publish(made, served))
        patched.setattr(build.environment, "web_fault", lambda vendor: "")
        clean, log = build.build(tmp_path)
    assert not clean
    assert build.advice(log).startswith("The disk is full. Free some space")
    assert (served / "index.html").read_text() == "old"
    build.publish(made, served)
    assert (served / "index.html").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_build", "html", "made"]


def test_a_build_whose_parent_was_killed_still_holds_the_folder(tmp_path):
    with build.alone(tmp_path) as lock:
        child = subprocess.Popen(["sleep", "60"], pass_fds=[lock])
    with pytest.raises(SystemExit, match="Another build is at work"), build.alone(tmp_path):
        pass
    child.kill()
    child.wait()
    with build.alone(tmp_path):
        pass


def test_two_builds_at_once_are_refused(scratch_book):
    root = scratch_book(SOUND)
    with build.alone(root), pytest.raises(SystemExit, match="Another build is at work"):
        build.build(root)


def test_a_folder_that_cannot_be_written_is_said_in_a_sentence(scratch_book):
    root = scratch_book(SOUND)
    (root / "_build").write_text("in the way")
    with pytest.raises(SystemExit, match=r"The build can't write to .*_build: "):
        build.build(root)
