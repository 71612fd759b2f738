"""Every Python example in the README and the docs runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from docs.users import NOBODY, as_somebody
from stores import redis_server

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def snippets() -> Iterator[object]:
    for page in PAGES:
        found = re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for number, match in enumerate(found, 1):
            name = f"{page.relative_to(ROOT)}-{number}"
            yield pytest.param(match.group(1), id=name)


@pytest.fixture
def place() -> Iterator[Path]:
    """Returns an empty folder of the user that the examples run as."""
    with TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


def run(code: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Runs an example in a folder; not as root, who may write everywhere."""
    return subprocess.run(
        [*as_somebody(), sys.executable, "-W", "error", "-c", code],
        cwd=place,
        env={**os.environ, "HOME": str(place)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_examples_run_as_a_user_who_may_write_in_his_folder_only(place: Path) -> None:
    if as_somebody() or os.geteuid():
        done = run("open('/var/lib/not-allowed', 'w').close()", place)
        assert "PermissionError" in done.stderr


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
