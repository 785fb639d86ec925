"""Write a slide deck of the built site as PDF: `deck_pdf.py seminar_3`, or all of them."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SLIDES = ROOT / "_build" / "html" / "slides"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
PATIENCE = 60_000  # milliseconds of the page's own clock


def main(names: list[str]) -> int:
    """Print each deck with the browser that is there; the exit code says whether it worked."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    decks = [SLIDES / f"{name}.html" for name in names] or sorted(SLIDES.glob("*.html"))
    if missing := [deck.stem for deck in decks if not deck.exists()]:
        known = ", ".join(sorted(deck.stem for deck in SLIDES.glob("*.html")))
        print(f"DECK must be one of {known or 'none'}, got {missing[0]}", file=sys.stderr)
        return 1
    if browser is None:
        print("A PDF needs Chromium or Chrome. Or open a deck with ?print-pdf", file=sys.stderr)
        return 1
    target = ROOT / "_build" / "pdf"
    target.mkdir(parents=True, exist_ok=True)
    for deck in decks:
        pdf = target / f"{deck.stem}.pdf"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
        options += [f"--virtual-time-budget={PATIENCE}", f"--print-to-pdf={pdf}"]
        address = f"{deck.as_uri()}?print-pdf"
        done = subprocess.run([browser, *options, address], capture_output=True, text=True)
        if done.returncode or not pdf.exists():
            print(done.stderr, file=sys.stderr)
            return 1
        print(pdf)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
