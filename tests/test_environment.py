"""Set-up: pins that agree with each other, web files that are checked, failures that advise."""

import doctest
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections import namedtuple

import pytest
import yaml
from packaging.requirements import Requirement

import archive
import environment
import lab
from conftest import ROOT
from environment import canonical

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    Requirement(line)
    for extra, lines in [("", PROJECT["dependencies"]), *PROJECT["optional-dependencies"].items()]
    for line in lines
    if extra != "peers"  # optional, and not part of what the book needs
]
CONDA_NAMES = {"pytorch-cpu": "torch"}


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonical(name): version for name, version in pairs}


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=str)
def test_every_requirement_is_met_by_the_constraints(requirement):
    assert constraints()[canonical(requirement.name)] in requirement.specifier


def test_every_pinned_package_but_torch_has_its_hashes():
    lines = [entry.partition(" ")[0] for entry in environment.pinned_hashes().values()]
    hashed = {canonical(name): version for name, version in (line.split("==") for line in lines)}
    build_tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert [f"setuptools=={hashed.pop('setuptools')}"] == build_tool
    assert {**hashed, "torch": "2.13.0"} == constraints()
    for entry in environment.pinned_hashes().values():
        assert re.fullmatch(r"\S+==\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+", entry)


def test_the_examples_of_the_set_up_are_true():
    assert doctest.testmod(environment).failed == 0


def test_a_package_with_another_hash_is_refused(tmp_path, monkeypatch):
    wheel = archive.write_wheel(ROOT, tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    environment.create_venv(tmp_path / "venv")
    entry = f"exacthessian=={PROJECT['version']} \\\n    --hash=sha256:"
    with pytest.raises(environment.SetupError, match="Something changed a package on the way"):
        environment.hashed_install(tmp_path / "venv", [entry + "0" * 64])
    right = hashlib.sha256((tmp_path / wheel).read_bytes()).hexdigest()
    environment.hashed_install(tmp_path / "venv", [entry + right])
    assert next((tmp_path / "venv").rglob("site-packages/exacthessian"))


def test_an_interpreter_without_hashes_is_told_so(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(environment, "PYTHONS", ())
    monkeypatch.setattr(environment, "pip_install", lambda venv, wanted: asked.append(wanted))
    environment.install(ROOT / ".venv", ["numpy"])
    assert asked == [["numpy"]]
    assert "no hashes are pinned for this version of Python" in capsys.readouterr().out


def test_torch_is_pinned_exactly():
    assert PROJECT["optional-dependencies"]["torch"] == ["torch==2.13.0"]


def test_the_conda_environment_agrees_with_the_pins():
    recipe = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert "conda-forge" in recipe["channels"]
    named = [line for line in recipe["dependencies"] if isinstance(line, str) and "=" in line]
    versions = dict(line.split("=") for line in named)
    assert versions.pop("python") in PROJECT["requires-python"].removeprefix(">=")
    assert set(versions) == {"numpy", "scipy", "pytorch-cpu"}
    for name, version in versions.items():
        assert constraints()[CONDA_NAMES.get(name, name)] == version
    by_pip = next(line["pip"] for line in recipe["dependencies"] if isinstance(line, dict))
    assert by_pip == ["-c constraints.txt", "-e .[lab]"]


def test_pip_is_asked_for_no_torch_where_conda_brings_it():
    """Nothing that environment.yml gives to pip names torch, so pip can't fetch a CUDA build."""
    by_pip = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["lab"]]
    assert "torch" not in {Requirement(line).name for line in by_pip}
    assert "torch.version.cuda is None" in (ROOT / "postBuild").read_text()


def test_the_live_pages_use_the_same_versions_as_the_book():
    live, book = (
        {Requirement(line).name: line for line in PROJECT["optional-dependencies"][extra]}
        for extra in ("lab", "book")
    )
    shared = live.keys() & book.keys()
    assert shared == {"jupytext", "ipykernel", "scikit-learn"}
    assert {name: live[name] for name in shared} == {name: book[name] for name in shared}


def test_what_is_installed_is_what_is_pinned():
    done = subprocess.run(
        [sys.executable, "-m", "pip", "list", "--format", "json"], capture_output=True, text=True
    )
    pinned = constraints()
    for package in json.loads(done.stdout):
        name = canonical(package["name"])
        if name in pinned:
            assert package["version"].split("+")[0] == pinned[name], name


def test_the_settings_of_jupyterlab_are_added_to_what_is_there(tmp_path):
    settings = tmp_path / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"another:plugin": {}}')
    lab.write_settings(tmp_path)
    known = json.loads(settings.read_text())
    assert known == {"another:plugin": {}} | lab.SETTINGS


@pytest.mark.parametrize(
    ("user", "arguments", "started"),
    [
        (0, [], None),
        (0, ["--allow-root"], ["--allow-root"]),
        (1000, ["--port=9"], ["--port=9"]),
    ],
)
def test_jupyterlab_gets_the_arguments_and_root_is_told_what_to_do(
    monkeypatch, user, arguments, started
):
    became = []
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "execv", lambda program, command: became.append(command))
    monkeypatch.setattr(lab, "write_settings", lambda prefix: None)
    if started is None:
        with pytest.raises(SystemExit, match="make lab ARGS=--allow-root"):
            lab.main(arguments)
        assert became == []
    else:
        lab.main(arguments)
        assert became[0][1:] == ["-m", "jupyterlab", str(ROOT / "book"), *started]


def test_make_lab_passes_its_arguments_on():
    done = subprocess.run(
        ["make", "--dry-run", "lab", "ARGS=--allow-root --port=9"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert "tools/lab.py --allow-root --port=9\n" in done.stdout


def test_binder_runs_with_one_thread():
    for name in ("postBuild", "start"):
        assert (ROOT / name).stat().st_mode & stat.S_IXUSR
    shown = subprocess.run(
        [ROOT / "start", "sh", "-c", "echo $OMP_NUM_THREADS"], capture_output=True, text=True
    )
    assert shown.stdout == "1\n"


def test_the_vendored_files_are_the_pinned_ones():
    assert environment.web_fault(ROOT / "vendor") == ""
    tracked = subprocess.run(
        ["git", "ls-files", "vendor"], cwd=ROOT, capture_output=True, text=True
    )
    assert tracked.stdout == ""


def test_a_web_package_with_another_hash_is_refused(tmp_path):
    pin = environment.web_pins()[0]
    with pytest.raises(environment.SetupError, match="has the hash sha512-"):
        environment.unpack_web_package(b"not the package", pin, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_changed_or_missing_web_file_is_noticed(tmp_path):
    vendor = tmp_path / "vendor"
    shutil.copytree(ROOT / "vendor", vendor)
    (vendor / "reveal" / "reveal.css").write_text("changed")
    assert "a file in vendor/reveal was changed" in environment.web_fault(vendor)
    (vendor / "reveal" / "reveal.css").unlink()
    assert "vendor/reveal/reveal.css is missing" in environment.web_fault(vendor)


def test_an_environment_that_was_moved_or_half_made_is_made_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(environment, "install", lambda venv, wanted: None)
    first, second = tmp_path / "first", tmp_path / "second"
    environment.set_up(first, ROOT / "vendor", "test")
    assert environment.usable(first)
    environment.set_up(first, ROOT / "vendor", "test")
    assert "making it anew" not in capsys.readouterr().out

    first.rename(second)
    assert not environment.usable(second)
    shutil.rmtree(next(second.rglob("site-packages/pip")))
    (second / "HOME").write_text(str(second))
    assert not environment.usable(second)
    environment.set_up(second, ROOT / "vendor", "test")
    assert environment.usable(second)
    assert "half-made, moved or copied: making it anew" in capsys.readouterr().out


def test_npm_comes_from_a_wheel_where_the_machine_has_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(
        shutil, "which", lambda name, _which=shutil.which: None if name == "npm" else _which(name)
    )
    environment.create_venv(tmp_path / "venv")
    npm = environment.npm_command(tmp_path / "venv")
    assert npm == [str(tmp_path / "venv" / "bin" / "npm")]
    environment.fetch_web_files(tmp_path / "vendor", npm)
    assert environment.web_fault(tmp_path / "vendor") == ""


def test_no_space_is_said_before_anything_is_made(tmp_path, monkeypatch):
    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(10, 9, 10**9))
    with pytest.raises(environment.SetupError, match=r"has 1\.0 GB\. Free some space"):
        environment.set_up(tmp_path / "venv", tmp_path / "vendor", "torch,book,test")
    assert list(tmp_path.iterdir()) == []


def test_no_network_is_said_in_a_sentence(tmp_path):
    """A real pip that finds nobody at the address of its index."""
    nowhere = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "0",
    }
    done = subprocess.run(
        [sys.executable, "tools/environment.py", "--venv", tmp_path / "venv"],
        cwd=ROOT,
        env={**os.environ, **nowhere},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "The package index can't be reached. Check the network connection" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_python_is_said_in_a_sentence():
    done = subprocess.run(
        ["make", "pins", "PYTHON=/bin/false"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "The book needs Python 3.11 or newer" in done.stderr
    assert "make book PYTHON=" in done.stderr


def test_make_alone_prints_the_commands():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True)
    listed = re.findall(r"^  make ([a-z-]+)", done.stdout, flags=re.MULTILINE)
    promised = {"book", "test", "test-machines", "serve", "lab", "accept", "clean"}
    assert promised <= set(listed)
