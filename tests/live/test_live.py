"""What a student sees: a page in a real JupyterLab, in a real browser, run from top to bottom."""

import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import reference
from conftest import ROOT
from live_frames import FIGURES
from notebook_text import directives
from tidy import tidy

# Pages that are quick to run; all markup that they don't use is in SAMPLE.
QUICK = ("intro", "notation", "depth_not_data/proofs")
PATIENCE = 90_000  # milliseconds
# The whole notebook in the document, not only the part on the screen, so that it can be read.
WHOLE = {"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}}
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"
# The application is in the browser's window because the server is told to expose it.
NOTEBOOK = "window.jupyterapp.shell.currentWidget"
AT_REST = f"""() => {{
    const panel = {NOTEBOOK};
    const code = panel.content.model.sharedModel.toJSON().cells
        .filter(cell => cell.cell_type === 'code' && cell.source.length > 0);
    return panel.sessionContext.session?.kernel?.status === 'idle' &&
        (code.every(cell => cell.execution_count !== null) ||
         code.some(cell => cell.outputs.some(output => output.output_type === 'error')));
}}"""
RENDERED = """() => [...document.querySelectorAll('.jp-MarkdownCell')]
    .every(cell => cell.innerText.trim() !== '' || cell.querySelector('aside'))"""
SAMPLE = (ROOT / "tests" / "live" / "sample.md").read_text() + "".join(
    f"\n```{{{name}}} claims.source_hash\n```\n" for name in directives()
)


@dataclass(frozen=True)
class Server:
    """A JupyterLab on the pages in `book`, reached at `address` with `token`."""

    book: Path
    address: str
    token: str

    def url(self, path: str) -> str:
        """Where a path of the application is, for a browser that comes for the first time."""
        return f"{self.address}/{path}?token={self.token}&reset"


def need(thing: object, advice: str) -> None:
    """Skip visibly what can't be tested here; on CI that is a failure."""
    if not thing:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(advice)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """`make lab`, on a copy of the pages, as somebody who has never used it."""
    need(importlib.util.find_spec("jupyterlab"), "JupyterLab is missing: run `make lab` once")
    root = tmp_path_factory.mktemp("live")
    (root / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "lab.py", root / "tools")
    (root / "book").mkdir()
    shutil.copy(ROOT / "book" / "jupytext.toml", root / "book")
    for name in QUICK:
        text = (ROOT / "book" / f"{name}.md").read_text(encoding="utf-8")
        (root / "book" / name).parent.mkdir(exist_ok=True)
        (root / "book" / f"{name}.md").write_text(tidy(text), encoding="utf-8")
    (root / "book" / "raw.md").write_text(SAMPLE)
    (root / "book" / "a folder").mkdir()
    (root / "book" / "a folder" / "tidy.md").write_text(tidy(SAMPLE))
    generated = reference.source_notebook(root / "book" / "raw.md")
    reference.write(generated, root / "book" / "generated.ipynb")
    settings = root / "home" / ".jupyter" / "lab" / "user-settings"
    for plugin, values in WHOLE.items():
        path = settings / f"{plugin.replace(':', '/')}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    port, token = free_port(), secrets.token_hex()
    address = f"http://127.0.0.1:{port}"
    command = [
        *(sys.executable, "tools/lab.py", "--allow-root", "--no-browser"),
        *(f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"),
        "--LabApp.expose_app_in_browser=True",
    ]
    log = root / "server.log"
    alone = {"HOME": str(root / "home"), "PYTHONPATH": str(ROOT / "src")}
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")
    } | alone
    with log.open("w") as output:
        running = subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        for _ in range(240):
            assert running.poll() is None, log.read_text()
            try:
                urllib.request.urlopen(f"{address}/api?token={token}").close()
                break
            except urllib.error.URLError:
                time.sleep(0.25)
        yield Server(root / "book", address, token)
    finally:
        running.terminate()
        running.wait(30)


@pytest.fixture(scope="session")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    need(program, "Chromium is missing; on Debian or Ubuntu: apt-get install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield running
        running.close()


@dataclass
class Visit:
    """An open JupyterLab and what its console said was wrong."""

    page: Page
    errors: list[str]


@pytest.fixture
def visit(server: Server, browser: Browser):
    """A function that opens a path of JupyterLab in a fresh browser profile."""
    contexts = []

    def open_path(path: str) -> Visit:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        contexts.append(context)
        seen = Visit(context.new_page(), [])
        seen.page.on(
            "console", lambda message: message.type == "error" and seen.errors.append(message.text)
        )
        seen.page.goto(server.url(path))
        return seen

    yield open_path
    for context in contexts:
        context.close()


def cells(page: Page) -> list[dict]:
    """The cells of the open notebook, as JupyterLab holds them."""
    return page.evaluate(f"() => {NOTEBOOK}.content.model.sharedModel.toJSON().cells")


def run_all(page: Page) -> None:
    """Run every cell from the menu, and wait until the kernel rests."""
    page.wait_for_function(
        f"() => {NOTEBOOK}?.sessionContext?.session?.kernel?.status === 'idle'", timeout=PATIENCE
    )
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(AT_REST, timeout=PATIENCE)


def save(page: Page) -> None:
    """Save, and wait until it is done."""
    assert page.evaluate(f"() => {NOTEBOOK}.context.model.dirty")
    page.keyboard.press("Control+s")
    page.wait_for_function(f"() => !{NOTEBOOK}.context.model.dirty", timeout=PATIENCE)


def test_a_double_click_opens_a_page_as_a_notebook(visit):
    page = visit("lab").page
    page.locator(".jp-DirListing-item", has_text="notation.md").dblclick()
    page.wait_for_selector(f"{PANEL} .jp-Cell", timeout=PATIENCE)
    assert page.locator(".jp-FileEditor").count() == 0
    assert page.locator(".jp-toast, .Toastify__toast").count() == 0  # nobody is asked for news


@pytest.mark.parametrize("name", QUICK)
def test_a_page_runs_renders_and_is_saved_as_it_was(visit, server, name):
    source = server.book / f"{name}.md"
    before = source.read_bytes()
    seen = visit(f"lab/tree/{name}.md")
    seen.page.wait_for_selector(f"{PANEL} .jp-Cell", timeout=PATIENCE)
    run_all(seen.page)
    outputs = [output for cell in cells(seen.page) for output in cell.get("outputs", [])]
    assert outputs
    assert "no longer passes" not in json.dumps(outputs)  # the box of a claim that fails
    assert [output for output in outputs if output["output_type"] == "error"] == []
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert unknown(seen) == set()
    save(seen.page)
    assert source.read_bytes() == before
    assert "checkpoint" not in "".join(map(str, reference.pages(server.book.parent)))


STATE = """(root) => Object.fromEntries([...root.querySelectorAll('input')]
    .map((input) => [input.name, Number(input.value)]))"""


# Where the kernel thinks that the knobs of the notebook's figures are.
KNOBS = f"""async () => {{
    let said = "";
    const code = "from ipywidgets.widgets.widget import _instances as all\\n"
        + "import json; print(json.dumps([w.knobs for w in all.values() if hasattr(w, 'knobs')]))";
    const running = {NOTEBOOK}.sessionContext.session.kernel.requestExecute({{ code }});
    running.onIOPub = (message) => {{ said += message.content.text ?? ""; }};
    await running.done;
    return JSON.parse(said);
}}"""


def test_a_live_figure_computes_in_jupyterlab(visit):
    """The same state says the same numbers as in the package, so as in the page; the keys of its
    knobs are its own, not JupyterLab's.
    """
    seen = visit("lab/tree/intro.md")
    seen.page.wait_for_selector(f"{PANEL} .jp-Cell", timeout=PATIENCE)
    run_all(seen.page)
    figure = seen.page.locator(f"{PANEL} .eh-live[data-figure=hero]")
    said = figure.locator(".eh-live-text")
    for name, keys in (("Step size", ["End"]), ("Training", ["Home", *["ArrowRight"] * 3])):
        knob = figure.get_by_role("slider", name=name)
        for key in keys:
            knob.press(key)
        state = figure.evaluate(STATE)
        assert said.inner_text() == FIGURES["hero"].frame(**state)["text"]
    assert state == {"eta": 0.85, "step": 3}
    assert figure.locator("svg .eh-dominant").first.is_visible()
    assert seen.page.evaluate(KNOBS)[-1] == state  # earlier ones are of an earlier visit
    figure.get_by_role("button", name="Play").click()
    seen.page.wait_for_function("() => +document.querySelector('.eh-live [name=step]').value > 5")
    assert [error for error in seen.errors if "eh-" in error or "live" in error.lower()] == []


def unknown(seen: Visit) -> set[str]:
    """What JupyterLab says about the open page that it does not know."""
    seen.page.wait_for_selector(f"{PANEL} .jp-MarkdownCell .katex", timeout=PATIENCE)
    seen.page.wait_for_function(RENDERED, timeout=PATIENCE)
    said = "\n".join([seen.page.locator(PANEL).inner_text(), *seen.errors])
    return {words for words in ("Unknown Directive", "Undefined control sequence") if words in said}


@pytest.mark.parametrize("path", ["a folder/tidy.md", "generated.ipynb"])
def test_all_our_markup_renders(visit, path):
    seen = visit(f"lab/tree/{path}")
    assert unknown(seen) == set()
    for text in ("Theorem 1", "Exercise 1"):
        assert text in seen.page.locator(PANEL).inner_text()


def test_an_untidy_page_does_not_render(visit):
    """The control: what the tests above look for is there when it should be."""
    assert unknown(visit("lab/tree/raw.md")) == {"Unknown Directive", "Undefined control sequence"}


def test_an_edit_changes_its_cell_alone(visit, server):
    source = server.book / "notation.md"
    before = source.read_text()
    page = visit("lab/tree/notation.md").page
    page.wait_for_selector(f"{PANEL} .jp-CodeCell", timeout=PATIENCE)
    line = "widths = (3, 5, 2)"
    assert before.count(line) == 1
    page.locator(f"{PANEL} .jp-CodeCell .cm-line", has_text=line).click()
    page.keyboard.press("End")
    page.keyboard.type("  # edited")
    save(page)
    assert source.read_text() == before.replace(line, f"{line}  # edited")
