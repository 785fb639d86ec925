"""Write the built site as one PDF: contents, every page in the order of the book, page numbers,
bookmarks, and links that stay inside the file.

A browser prints each page in light ink, with its proofs unfolded (see `book/web/print.css`); the
parts are joined here. Links between pages become links inside the PDF, links to other files of the
site (notebooks, tables) are dropped, and links to the world stay.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import yaml
from playwright.sync_api import Page, sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, FloatObject, NameObject, NullObject

from deck_pdf import find_browser

HREF = re.compile(r'<a [^>]*?href="([^"]+)"')
ROOT = Path(__file__).resolve().parent.parent
TARGET = "the-exact-hessian.pdf"
FOOT = (
    '<div style="width:100%;font:9px sans-serif;text-align:center;padding-bottom:4mm">'
    '<span class="pageNumber"></span></div>'
)
READY = """async (targets) => {
  const wait = (image) => { image.loading = "eager"; return image.decode().catch(() => {}); };
  await Promise.all([...document.images].filter((i) => !i.matches(".eh-dark")).map(wait));
  // The printer names the places that a link on the same page leads to; these get one each.
  const places = document.createElement("div");
  for (const id of targets) {
    if (!document.getElementById(id)) continue;
    const link = document.createElement("a");
    link.href = "#" + id;
    link.style = "display:inline-block;width:1px;height:1px";
    places.append(link);
  }
  document.querySelector("article, body").append(places);
}"""


@dataclass
class Part:
    """A page of the book: its file, its title, how deep it lies in the contents, and its place."""

    path: Path
    level: int
    title: str = ""
    first: int = 0
    length: int = 0
    places: dict[str, tuple[int, float]] = field(default_factory=dict)


def contents(root: Path) -> list[Part]:
    """The pages in the order of the table of contents."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    site = root / "_build" / "html"

    def walk(entries: list[dict[str, Any]], level: int) -> Iterator[Part]:
        for entry in entries:
            yield Part(site / f"{entry['file']}.html", level)
            yield from walk(entry.get("sections", []), level + 1)

    parts = toc.get("parts", [toc])
    chapters = [entry for part in parts for entry in part.get("chapters", [])]
    return [Part(site / f"{toc['root']}.html", 0), *walk(chapters, 0)]


def cover(title: str, parts: list[Part]) -> str:
    """The first pages: the title, and the contents with the numbers of their pages."""
    lines = "".join(
        f'<p style="margin:2px 0 2px {1.5 * part.level}em;display:flex">'
        f'<a href="{part.path.as_uri()}">{escape(part.title)}</a>'
        f'<span style="margin-left:auto">{part.first + 1}</span></p>'
        for part in parts
    )
    style = "body{font:11pt sans-serif}h1{font-size:30pt}a{color:#003a80;text-decoration:none}"
    return (
        f"<!DOCTYPE html><html><head><title>{escape(title)}</title><style>@page{{size:A4;margin:"
        f"25mm}}{style}</style></head><body><h1>{escape(title)}</h1>{lines}</body></html>"
    )


def printed(page: Page, address: str, targets: list[str], file: Path) -> PdfReader:
    """One page as PDF."""
    page.goto(address, wait_until="load")
    page.emulate_media(media="print", color_scheme="light")
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    page.evaluate(READY, targets)
    page.pdf(path=file, prefer_css_page_size=True, print_background=True)
    return PdfReader(file)


def ids_linked(parts: list[Part]) -> dict[Path, list[str]]:
    """Which ids of each page other pages link to."""
    found: dict[Path, dict[str, None]] = {part.path.resolve(): {} for part in parts}

    for part in parts:
        for href in HREF.findall(part.path.read_text(encoding="utf-8")):
            address, anchor = urldefrag(unescape(href))
            target = (part.path.parent / unquote(address)).resolve()
            if anchor and address and target in found:
                found[target][unquote(anchor)] = None
    return {path: list(ids) for path, ids in found.items()}


def aim(note: Any, writer: PdfWriter, page: int, top: float | None) -> None:
    """Let a link lead to a place of the same file."""
    height = NullObject() if top is None else FloatObject(top)
    place = [writer.pages[page].indirect_reference, NameObject("/XYZ"), NullObject(), height]
    note[NameObject("/Dest")] = ArrayObject([*place, NullObject()])
    note.pop("/A", None)
    note.pop("/PA", None)


def relink(writer: PdfWriter, parts: list[Part], starts: dict[Path, Part]) -> None:
    """Lead every link to its place in the joined file, and drop those to other files."""
    for part in parts:
        for number in range(part.first, part.first + part.length):
            page, kept = writer.pages[number], ArrayObject()
            for entry in page.get("/Annots", ArrayObject()):
                note = entry.get_object()
                address = str(note.get("/A", {}).get("/URI", ""))
                name = note.get("/Dest")
                path, anchor = urldefrag(address)
                target = starts.get(Path(unquote(urlsplit(path).path)))
                if isinstance(name, str):
                    target, anchor = part, name.removeprefix("/")
                if target is not None:
                    aim(note, writer, *target.places.get(unquote(anchor), (target.first, None)))
                elif not address.startswith(("http:", "https:", "mailto:")):
                    continue
                kept.append(entry)
            page[NameObject("/Annots")] = kept


def number(writer: PdfWriter, page: Page, folder: Path) -> None:
    """Put its number on each page."""
    blank = "<div style='break-after:page'>&nbsp;</div>" * (len(writer.pages) - 1)
    page.set_content(f"<body>{blank}<div>&nbsp;</div></body>")
    look = {"display_header_footer": True, "header_template": "<i></i>", "footer_template": FOOT}
    page.pdf(path=folder / "numbers.pdf", format="A4", margin={"bottom": "20mm"}, **look)
    for sheet, numbers in zip(writer.pages, PdfReader(folder / "numbers.pdf").pages, strict=True):
        sheet.merge_page(numbers)
        sheet.compress_content_streams()


def join(root: Path, page: Page, folder: Path) -> PdfWriter:
    """The whole book."""
    parts = contents(root)
    title = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["title"]
    targets = ids_linked(parts)
    readers = []
    for count, part in enumerate(parts):
        name = part.path.resolve()
        readers.append(printed(page, name.as_uri(), targets[name], folder / f"{count}.pdf"))
        part.title = page.locator("h1").first.inner_text().strip().rstrip("#").strip()
        part.length = len(readers[-1].pages)
        print(f"  {part.title}: {part.length} pages", flush=True)
    front = Part(folder / "cover.html", 0, title)
    for _ in range(2):  # the numbers depend on how long the contents are
        total = front.length
        for part in parts:
            part.first, total = total, total + part.length
        front.path.write_text(cover(title, parts), encoding="utf-8")
        opening = printed(page, front.path.as_uri(), [], folder / "cover.pdf")
        front.length = len(opening.pages)
    writer = PdfWriter()
    for part, reader in zip([front, *parts], [opening, *readers], strict=True):
        for sheet in reader.pages:
            writer.add_page(sheet)
        for name, place in reader.named_destinations.items():
            where = reader.get_destination_page_number(place)
            part.places[name.removeprefix("/")] = part.first + where, float(place.top or 0)
    relink(writer, [front, *parts], {part.path.resolve(): part for part in parts})
    number(writer, page, folder)
    parents: list[Any] = []
    for part in parts:
        parent = (parents[: part.level] or [None])[-1]
        item = writer.add_outline_item(title=part.title, page_number=part.first, parent=parent)
        parents = [*parents[: part.level], item]
    writer.add_metadata({"/Title": title})
    writer.compress_identical_objects()
    return writer


def main() -> int:
    """Print the book of this repository and say where it is."""
    browser = find_browser()
    if not (ROOT / "_build" / "html" / "index.html").exists():
        print("The site is not built: run `make book` first.", file=sys.stderr)
        return 1
    target = ROOT / "_build" / "pdf" / TARGET
    target.parent.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        running = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        writer = join(ROOT, running.new_page(color_scheme="light"), Path(folder))
        writer.write(target)
        running.close()
    print(f"{len(writer.pages)} pages: {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
