"""Launch, edit and download buttons follow the repository's address, and nothing else."""

import subprocess

import pytest

import build
import launch
from conftest import ROOT

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
