"""Launch, edit and download buttons follow the repository's address, and nothing else."""

import json
import os
import re
import subprocess
import sys

import pytest
from nbformat.v4 import new_code_cell, new_notebook

import build
import launch
from conftest import ROOT
from notebook_text import WHEEL

PAGE = (ROOT / "tests" / "broken_book" / "sound.md").read_text()


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/owner/name", "https://github.com/owner/name"),
        ("https://github.com/owner/name.git", "https://github.com/owner/name"),
        ("https://user:secret@gitlab.com/group/name.git", "https://gitlab.com/group/name"),
        ("git@github.com:owner/name.git", None),
        ("http://github.com/owner/name", None),
        ("https://github.com.evil.example/owner/name", None),
        ("https://git.internal/owner/name", None),
        ("/srv/git/name.git", None),
        ("", None),
    ],
)
def test_only_a_public_forge_counts(remote, address):
    assert launch.public_address(remote) == address


def test_colab_is_offered_for_github_only():
    assert "colab_url" in launch.theme_options("https://github.com/a/b", "main")["launch_buttons"]
    assert (
        "colab_url" not in launch.theme_options("https://gitlab.com/a/b", "main")["launch_buttons"]
    )


def build_page(root, remote):
    git = ["git", "-C", root]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "remote", "add", "origin", remote], check=True)
    clean, log = build.build(root)
    assert clean, log
    return (root / "_build" / "html" / "book" / "sound.html").read_text()


def test_a_public_repository_gives_buttons_that_open_the_notebook(scratch_book):
    root = scratch_book({"sound": PAGE})
    (root / "book" / "sound.ipynb").write_text("{}")
    html = build_page(root, "https://user:secret@github.com/owner/name.git")
    assert "https://mybinder.org/v2/gh/owner/name/main?urlpath=lab/tree/book/sound.ipynb" in html
    assert "https://colab.research.google.com/github/owner/name/blob/main/book/sound.ipynb" in html
    assert "https://github.com/owner/name/edit/main/book/sound.md" in html
    assert "secret" not in html


def test_no_public_repository_gives_no_button_but_the_download(scratch_book):
    root = scratch_book({"sound": PAGE + "\nThe mean is $\\E x$.\n"})
    html = build_page(root, "/srv/git/name.git")
    for host in ("mybinder.org", "colab.research", "github.com", "gitlab.com"):
        assert f"https://{host}" not in html
    assert "_sources/book/sound.ipynb" in html
    downloaded = (root / "_build" / "html" / "_sources" / "book" / "sound.ipynb").read_text()
    assert r"The mean is $\\mathbb{E} x$." in downloaded
    first = json.loads(downloaded)["cells"][0]
    assert f"%pip install './{WHEEL}[torch]'" in "".join(first["source"])


RUN = "# Run\n\n{local-lines}`local lines`\n\n{install-line}`install line`\n\n{online}`online`\n"


def words_of(html):
    return re.sub(r"<[^>]*>", "", html)


def test_the_run_page_of_a_public_repository(scratch_book):
    html = build_page(scratch_book({"sound": RUN}), "https://github.com/owner/name.git")
    assert "git clone https://github.com/owner/name" in words_of(html)
    assert "git+https://github.com/owner/name" in words_of(html)
    assert "opens it on Binder, or on Colab" in words_of(html)


def test_the_run_page_without_one_shows_the_local_way(scratch_book):
    text = words_of(build_page(scratch_book({"sound": RUN}), "/srv/git/name.git"))
    assert "make lab" in text
    assert WHEEL in text
    assert "no button for Binder or Colab" in text
    assert "&lt;address" not in text


def test_a_downloaded_notebook_runs_outside_the_repository(tmp_path):
    launch.write_wheel(tmp_path)
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "-q", "--target"]
    subprocess.run([*pip, tmp_path / "there", tmp_path / WHEEL], check=True)
    cell = new_code_cell(
        "from exacthessian import claims\nprint(claims.__file__, len(claims.PAPERS))"
    )
    notebook = launch.with_install_cell(new_notebook(cells=[cell]), "")
    assert notebook.cells[0].source.splitlines()[-1] == f"%pip install './{WHEEL}[torch]'"
    code = "\n".join(cell.source for cell in notebook.cells[1:])
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=dict(os.environ, PYTHONPATH=str(tmp_path / "there")),
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(str(tmp_path / "there"))
    assert found.stdout.endswith(" 4\n")


def test_the_install_cell_names_what_a_page_imports():
    cell = new_code_cell("from sklearn.datasets import load_digits")
    made = launch.with_install_cell(new_notebook(cells=[cell]), "https://github.com/owner/name")
    line = made.cells[0].source.splitlines()[-1]
    assert line == (
        "%pip install 'exacthessian[torch] @ git+https://github.com/owner/name' scikit-learn"
    )
