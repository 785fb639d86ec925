"""A browser, the built site on localhost, and a visit to one of its pages in one of the looks."""

import os
import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page, sync_playwright
from site_pages import LOOKS, ROOT, SITE

__all__ = ["ROOT"]  # for tests beside this folder, which import it from their own conftest


def wait_for_function(page: Page, expression: str, timeout: float = 30_000) -> None:
    """Wait until an expression is true on a page, asking from outside of it.

    Playwright's own way evaluates a text in the page, which the page's policy forbids.
    """
    end = time.monotonic() + timeout / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"not true within {timeout / 1000:g} s: {expression}"
        page.wait_for_timeout(50)


Page.wait_for_function = wait_for_function


@dataclass
class Visit:
    """An open page and everything that went wrong on it."""

    page: Page
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@contextmanager
def serving(folder):
    """The address at which a folder is served on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def address():
    assert (SITE / "index.html").exists(), "the site is not built: run `make book`"
    with serving(SITE) as where:
        yield where


@pytest.fixture(scope="session")
def web(browser):
    """A blank page that can import the scripts of book/web."""
    with serving(ROOT / "book" / "web") as where:
        page = browser.new_page()
        page.goto(f"{where}/favicon.svg")
        yield page


@pytest.fixture(scope="session")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        advice = "Chromium is missing; on Debian or Ubuntu: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(advice)
        pytest.skip(advice)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield running
        running.close()


@pytest.fixture
def visit(browser, address):
    """A function that opens a page of the site in one of the looks."""
    contexts = []

    def open_page(path: str, look: str = "light", base: str = address) -> Visit:
        context = browser.new_context(**LOOKS[look])
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        seen = Visit(context.new_page())

        def gate(route):
            if route.request.url.startswith((base, "data:", "blob:", "file:")):
                route.continue_()
            else:
                seen.outside.append(route.request.url)
                route.abort()

        context.route("**/*", gate)
        seen.page.on(
            "console",
            lambda message: message.type == "error" and seen.errors.append(message.text),
        )
        seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
        seen.page.goto(f"{base}/{path}", wait_until="load")
        seen.page.wait_for_load_state("networkidle")
        return seen

    yield open_page
    for context in contexts:
        context.close()
