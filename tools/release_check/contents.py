"""What is in a wheel and in an sdist, beside what ought to be."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
JUNK = (
    "__pycache__",
    ".pyc",
    ".venv",
    ".egg-info",
    "/build/",
    "/dist/",
    ".orig",
    ".rej",
    ".swp",
    ".DS_Store",
)
AT_THE_TOP = ("LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "pyproject.toml", "Makefile")
PACKAGES = ("holdfast/", "pytest_holdfast/")
PAGE = "holdfast/service/page/"
"""The folder of the page that the service shows: it is no Python, and easily left out."""


class PackageError(Exception):
    """Raised when a package is not as it has to be; the message says in what."""


def tracked(folder: str = "") -> set[str]:
    """Returns the files of the repository below a folder."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", folder or "."]
    found = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    return {name for name in found if (ROOT / name).is_file()}


def check_wheel(wheel: Path) -> None:
    """Raises unless the wheel has the package as it is in the repository, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if name.startswith(PACKAGES)}
    wanted = {name.removeprefix("src/") for name in tracked("src")}
    _compare(wheel.name, package, wanted)
    info = f"{wheel.name.split('-py3')[0]}.dist-info/"
    data = info.replace(".dist-info/", ".data/data/share/man/man1/holdfast.1")
    rest = {name for name in names - package if not name.startswith(info)} - {data}
    if rest:
        raise PackageError(f"{wheel.name} has more than the package: {', '.join(sorted(rest))}")
    for needed in ("holdfast/py.typed", f"{info}licenses/LICENSE", data):
        if needed not in names:
            raise PackageError(f"{wheel.name} lacks {needed}")
    if not any(name.startswith(PAGE) for name in names):
        raise PackageError(f"{wheel.name} lacks the page of the service, {PAGE}")


def check_sdist(sdist: Path) -> None:
    """Raises unless all of the sdist is in the repository, and it can be built and tested from it."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        files = {member.name.partition("/")[2] for member in archive if member.isfile()}
    strangers = files - tracked() - {"PKG-INFO"}
    if strangers:
        raise PackageError(f"{sdist.name} has what is not ours: {', '.join(sorted(strangers))}")
    junk = [name for name in names for word in JUNK if word in f"/{name}"]
    if junk:
        raise PackageError(f"{sdist.name} has {junk[0]}")
    for name in AT_THE_TOP:
        if name not in files:
            raise PackageError(f"{sdist.name} lacks {name}")
    for folder in ("src", "tests", "tools", "docs"):
        missing = tracked(folder) - files
        if missing:
            raise PackageError(f"{sdist.name} lacks {', '.join(sorted(missing)[:5])}")


def _compare(package: str, found: set[str], wanted: set[str]) -> None:
    if found - wanted:
        raise PackageError(f"{package} has what is not ours: {', '.join(sorted(found - wanted))}")
    if wanted - found:
        raise PackageError(f"{package} lacks {', '.join(sorted(wanted - found))}")
