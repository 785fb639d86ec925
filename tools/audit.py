"""Look up the pinned packages among the known vulnerabilities, with pip-audit.

It lives in an environment of its own, so that it changes nothing. The answers that the package
index gave are kept in `_build/audit`, and used again for a day; the first time needs a network.
"""

import json
import subprocess
import sys

import environment

FOLDER = environment.ROOT / "_build" / "audit"


def main() -> int:
    """Install the tool if it is missing, and ask; the exit code says whether nothing is known."""
    venv = FOLDER / "venv"
    try:
        if not environment.usable(venv):
            environment.create_venv(venv)
        environment.pip_install(venv, ["pip-audit"])
    except environment.SetupError as error:
        print(f"\nThe audit stopped: {error}", file=sys.stderr)
        return 1
    asked = ["--requirement", str(environment.CONSTRAINTS), "--no-deps", "--disable-pip"]
    kept = ["--cache-dir", str(FOLDER / "cache"), "--progress-spinner", "off", "--format", "json"]
    command = [str(environment.python_of(venv)), "-m", "pip_audit", *asked, *kept]
    done = subprocess.run(command, capture_output=True, text=True)
    text, failed = verdict(done.stdout)
    print(text if done.stdout else f"{done.stderr}\n{text}")
    return failed


def verdict(answer: str) -> tuple[str, bool]:
    """What pip-audit's answer says, and whether it is anything but a clean one.

    A package that could not be looked up is not a clean one, though pip-audit takes it for one.

    >>> verdict('{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}')
    ('Nothing is known against 1 packages.', False)
    >>> verdict('{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "X-1"}]}]}')
    ('a 1: X-1', True)
    """
    packages = json.loads(answer)["dependencies"] if answer else []
    if not packages or any("skip_reason" in package for package in packages):
        return (
            "The audit needs a network and a package index that answers what is known of a "
            "package; this one did not, so nothing is proved.",
            True,
        )
    bad = [
        f"{package['name']} {package['version']}: {vulnerability['id']}"
        for package in packages
        for vulnerability in package["vulns"]
    ]
    return "\n".join(bad) or f"Nothing is known against {len(packages)} packages.", bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
