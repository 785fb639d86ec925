"""Files to carry away: zips that are the same whenever they are made of the same, and a wheel."""

import hashlib
import tomllib
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

WHEEL = "Wheel-Version: 1.0\nGenerator: exact-hessian\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_zip(
    target: Path, contents: Mapping[str, Path | str], mode: Literal["w", "a"] = "w"
) -> None:
    """A zip of files and texts by their names, without dates, sorted; or more of them for a zip.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     one, two = Path(folder, "1.zip"), Path(folder, "2.zip")
    ...     write_zip(one, {"b": "B", "a": "A"})
    ...     write_zip(two, {"a": "A", "b": "B"})
    ...     one.read_bytes() == two.read_bytes()
    True
    """
    with zipfile.ZipFile(target, mode, zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(contents.items()):
            entry = zipfile.ZipInfo(name)  # of 1 January 1980
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            data = content.encode() if isinstance(content, str) else content.read_bytes()
            archive.writestr(entry, data)


def write_wheel(root: Path, folder: Path) -> str:
    """The package as a wheel, which pip installs without a network; the name of its file."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    info = f"{name}-{version}.dist-info"
    needs = [f"Requires-Dist: {need}" for need in project["dependencies"]]
    for extra, more in project["optional-dependencies"].items():
        if extra == "torch":
            needs.append(f"Provides-Extra: {extra}")
            needs += [f"Requires-Dist: {need}; extra == '{extra}'" for need in more]
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    head.append(f"Requires-Python: {project['requires-python']}")
    source = root / "src"
    contents: dict[str, Path | str] = {
        path.relative_to(source).as_posix(): path
        for path in sorted((source / name).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    contents[f"{info}/METADATA"] = "\n".join([*head, *needs]) + "\n"
    contents[f"{info}/WHEEL"] = WHEEL
    record = "".join(f"{path},{_digest(content)}\n" for path, content in contents.items())
    contents[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    file = f"{name}-{version}-py3-none-any.whl"
    write_zip(folder / file, contents)
    return file


def _digest(content: Path | str) -> str:
    data = content.encode() if isinstance(content, str) else content.read_bytes()
    digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(data)}"
