"""Empty environments of each Python, into which the package is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from .contents import ROOT, PackageError
from .licences import LIST, objections
from .trials import CORE, OF_EXTRA

FOR_DEVELOPERS = {"bench", "dev", "docs"}
PATIENCE = 600.0
"""Seconds that a command may take."""
PIP = "pip==26.3"
"""The pip that fills the environments: that of an old Python may not know a new one, or the reverse."""


def project() -> dict[str, object]:
    with open(ROOT / "pyproject.toml", "rb") as file:
        found: dict[str, object] = tomllib.load(file)["project"]
    return found


NAME = str(project()["name"])


def extras() -> list[str]:
    """Returns the extras for users."""
    named = project()["optional-dependencies"]
    assert isinstance(named, dict)
    return sorted(set(named) - FOR_DEVELOPERS)


def lowest(extra: str) -> list[str]:
    """Returns the lowest versions that an extra allows of what it names, and those that it includes."""
    named = project()["optional-dependencies"]
    assert isinstance(named, dict)
    found = []
    for requirement in named[extra]:
        included = re.fullmatch(rf"{NAME}\[([\w,-]+)\]", requirement)
        bound = re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)(?:,.*)?", requirement)
        if included:
            found += [pin for other in included[1].split(",") for pin in lowest(other)]
        elif bound:
            found.append(f"{bound[1]}=={bound[2]}")
        else:
            raise PackageError(f"{requirement} of the extra {extra} has no lowest version")
    return found


def pythons() -> dict[str, str | None]:
    """Returns the program of each Python that the project claims; None where there is none."""
    claimed = project()["classifiers"]
    assert isinstance(claimed, list)
    versions = [name.rpartition(":: ")[2] for name in claimed if ":: Python :: 3." in name]
    return {version: _find(version) for version in versions}


def _find(version: str) -> str | None:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    unpacked = ROOT / ".venv" / "pythons" / f"debian-{version}" / "bin"
    candidates = [sys.executable, shutil.which(f"python{version}")]
    candidates += [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    candidates += [str(path) for path in unpacked.glob(f"python{version}")]
    question = "import sys, venv, sqlite3, ssl; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        done = subprocess.run(
            [candidate, "-c", question], capture_output=True, text=True, check=False
        )
        if done.stdout.strip() == version:
            return candidate
    return None


def run(command: list[str], folder: str, **variables: str) -> str:
    """Runs a command in a folder, without the variables of this process that would show through."""
    hidden = ("HOLDFAST_", "PYTHON", "VIRTUAL_ENV")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=clean | {"HOME": folder} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=PATIENCE)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
            raise
    if process.returncode:
        raise PackageError(f"{' '.join(command)[:200]}:\n{said}")
    return said


def pip_folder() -> Path:
    """Returns the folder of the pip that fills the environments; `make test-pythons` uses it, too."""
    folder = ROOT / ".venv" / "pythons" / "pip"
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*command, "--target", str(folder), PIP], check=True)
    return folder


def try_out(
    wheel: Path, python: str, extra: str = "", pins: list[str] | None = None
) -> dict[str, list[str]]:
    """Installs the wheel with an extra into an empty environment, and tries it there.

    `pins` are the versions that it is to have of what the extra names. Returns what the packages that
    came along say of their licences.
    """
    with TemporaryDirectory(prefix="holdfast-package-") as folder:
        place = Path(folder)
        run([python, "-m", "venv", "--without-pip", "v"], folder)
        ours = str(place / "v" / "bin" / "python")
        install = [ours, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        install += ["--no-cache-dir"] if os.environ.get("PIP_NO_CACHE_DIR") else []
        named = f"{wheel}[{extra}]" if extra else str(wheel)
        more = {} if extra else {"PIP_NO_INDEX": "1"}  # the core needs nothing
        run(
            [*install, "--only-binary", ":all:", named, *(pins or [])],
            folder,
            PYTHONPATH=str(pip_folder()),
            **more,
        )
        (place / "empty").mkdir()
        run([ours, "-W", "error", "-c", CORE], str(place / "empty"))
        if extra in OF_EXTRA:
            run(
                [ours, "-c", "import holdfast, holdfast.fences\n" + OF_EXTRA[extra]],
                str(place / "empty"),
            )
        found: dict[str, list[str]] = json.loads(run([ours, "-c", LIST], folder))
    said = objections(found)
    if said:
        raise PackageError("\n".join(said))
    return found
