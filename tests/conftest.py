import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# On CI the same examples every time; elsewhere new ones, which is how they find something.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI") == "true":
    settings.load_profile("ci")


@pytest.fixture
def scratch_book(tmp_path):
    """A function that lays out a small book, with this book's own configuration, from pages."""

    def lay_out(pages: dict[str, str]) -> Path:
        for name in ("_config.yml", "constraints.txt"):
            shutil.copy(ROOT / name, tmp_path / name)
        for name in ("book/_ext", "book/web"):
            shutil.copytree(ROOT / name, tmp_path / name, dirs_exist_ok=True)
        if not (tmp_path / "vendor").exists():
            (tmp_path / "vendor").symlink_to(ROOT / "vendor")
            (tmp_path / "src").mkdir()
        (tmp_path / "book" / "references.bib").write_text("")
        for name, text in pages.items():
            (tmp_path / "book" / name).parent.mkdir(exist_ok=True)
            (tmp_path / "book" / f"{name}.md").write_text(text)
        first, *rest = pages
        chapters = "".join(f"\n  - file: book/{name}" for name in rest)
        toc = f"format: jb-book\nroot: book/{first}\n"
        (tmp_path / "_toc.yml").write_text(toc + (f"chapters:{chapters}\n" if rest else ""))
        return tmp_path

    return lay_out
