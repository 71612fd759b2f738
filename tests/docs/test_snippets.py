"""Every Python example in the README and the docs runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from stores import redis_server

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def snippets() -> Iterator[object]:
    for page in PAGES:
        found = re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for number, match in enumerate(found, 1):
            name = f"{page.relative_to(ROOT)}-{number}"
            yield pytest.param(match.group(1), id=name)


NOBODY = 65534
"""A user who owns nothing: what runs for him runs for everybody."""


@pytest.fixture
def place() -> Iterator[Path]:
    """Returns an empty folder of the user that the examples run as."""
    with TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


def run(code: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Runs an example in a folder; not as root, who may write everywhere."""
    user: dict[str, Any] = {}
    if os.geteuid() == 0 and _may_run_python():
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=place,
        env={**os.environ, "HOME": str(place)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **user,
    )


@cache
def _may_run_python() -> bool:
    """Returns False where Python, or we ourselves, are in a folder that is root's alone."""
    command = [sys.executable, "-c", "import holdfast.cli.__main__"]
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    try:
        done = subprocess.run(
            command, cwd="/", capture_output=True, timeout=60, check=False, **user
        )
    except PermissionError:
        return False
    return done.returncode == 0


@pytest.mark.parametrize("code", list(snippets()))
def test_the_example_runs(code: str, place: Path) -> None:
    for name in ("port=6379", "localhost:6379"):
        if name in code:
            code = code.replace(name, name.replace("6379", str(redis_server().port)))
    done = run(code, place)
    assert done.returncode == 0, done.stderr


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_decisions_are_numbered_without_a_gap_and_dated() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    for number, page in enumerate(pages, 1):
        assert page.name.startswith(f"{number:04}-")
        title, _, date, *_ = page.read_text().splitlines()
        assert title.startswith(f"# {number}. ")
        assert re.fullmatch(r"\*\d{4}-\d\d-\d\d\*", date), page.name


def test_every_file_that_a_page_names_is_there() -> None:
    known = [ROOT, ROOT / "src", ROOT / "src" / "holdfast"]
    named = r"`((?:holdfast|src|stores|fences|sim|tests|tools|docs|bench|model)/[\w./-]+)`"
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for name in re.findall(named, page.read_text()):
            if "yourstore" in name.lower():
                continue
            assert any((top / name).exists() for top in known), f"{page.name} names {name}"
