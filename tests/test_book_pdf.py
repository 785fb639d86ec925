"""The book as one PDF: every page, unfolded, with numbers, bookmarks and links that stay inside."""

import os
import shutil

import pytest
from playwright.sync_api import sync_playwright
from pypdf import PdfReader

import book_pdf
import build

FIRST = """(sec-first)=
# The first page

See {ref}`the second <sec-second>`, {prf:ref}`thm`, and [the world](https://example.org/).

```{prf:theorem} The gap
:label: thm

It is $L$.
```

````{prf:proof}
:class: dropdown

A folded argument, word by word.
````

````{dropdown} More
Folded by another means.
````
"""
SECOND = f"""# The second page

(sec-second)=
## A section

Back to {{ref}}`the first <sec-first>` and {{prf:ref}}`thm`. <a href="../index.html">A file.</a>

```python
long_line = "{"x" * 120} the very end"
```

$$
{" + ".join(f"x_{{{i}}}^{{{i}}}" for i in range(40))} = y
$$
"""


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        advice = "Chromium is missing; on Debian or Ubuntu: apt-get install chromium"
        pytest.fail(advice) if os.environ.get("CI") == "true" else pytest.skip(advice)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


def targets(reader):
    """Where the links of each page lead: numbers of pages, or addresses."""
    numbers = {page.indirect_reference.idnum: n for n, page in enumerate(reader.pages)}
    found = []
    for page in reader.pages:
        notes = [note.get_object() for note in page.get("/Annots", [])]
        found.append(
            [
                numbers[note["/Dest"][0].idnum] if "/Dest" in note else note["/A"]["/URI"]
                for note in notes
            ]
        )
    return found


def test_a_book_prints_whole(scratch_book, browser, tmp_path):
    root = scratch_book({"first": FIRST, "second": SECOND})
    clean, log = build.build(root)
    assert clean, log
    folder = tmp_path / "parts"
    folder.mkdir()
    page = browser.new_page(color_scheme="dark")  # the ink is the same from either theme
    book_pdf.join(root, page, folder).write(tmp_path / "book.pdf")
    reader = PdfReader(tmp_path / "book.pdf")
    texts = [sheet.extract_text() for sheet in reader.pages]
    assert len(texts) == 3, "contents and two pages"

    assert [item.title for item in reader.outline] == ["The first page", "The second page"]
    assert [reader.get_destination_page_number(item) for item in reader.outline] == [1, 2]
    assert [text.split()[-1] for text in texts] == ["1", "2", "3"]
    contents = texts[0].split()
    assert contents[contents.index("second") + 2] == "3"

    assert "Theorem" in texts[1]
    assert "A folded argument, word by word." in " ".join(texts[1].split())
    assert "Folded by another means." in texts[1]
    assert "the very end" in " ".join(texts[2].split())

    links = targets(reader)
    assert links[0] == [1, 2]
    assert 2 in links[1]
    assert "https://example.org/" in links[1]
    assert 1 in links[2]
    addresses = [link for page in links for link in page if isinstance(link, str)]
    assert not any(link.startswith("file:") for link in addresses)
