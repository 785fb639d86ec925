"""Write a slide deck of the built site as PDF: `deck_pdf.py seminar_3`, or all of them."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
SLIDES = ROOT / "_build" / "html" / "slides"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
IS_TYPESET = "document.documentElement.dataset.typeset === 'yes'"


def find_browser() -> str:
    """The program that prints."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit("A PDF needs Chromium or Chrome, and none was found.")
    return browser


def main(names: list[str]) -> int:
    """Print each deck with the browser that is there; the exit code says whether it worked."""
    known = sorted(deck.stem for deck in SLIDES.glob("*.html"))
    if not known or set(names) - set(known):
        print(
            f"DECK must be one of {', '.join(known) or 'those of `make course`'}", file=sys.stderr
        )
        return 1
    browser = find_browser()
    target = ROOT / "_build" / "pdf"
    target.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name in names or known:
            page = running.new_page(color_scheme="light")
            page.goto(f"{(SLIDES / f'{name}.html').as_uri()}?print-pdf")
            page.wait_for_function(IS_TYPESET)
            page.pdf(path=target / f"{name}.pdf", prefer_css_page_size=True, print_background=True)
            page.close()
            print(target / f"{name}.pdf")
        running.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
