"""Every Python example in the README and the docs runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


@pytest.mark.parametrize("code", list(snippets()))
def test_the_example_runs(code: str, tmp_path: Path) -> None:
    # The examples name a folder that a test may not write to.
    code = code.replace("sqlite:///var/lib/app/", f"sqlite://{tmp_path}/")
    if "port=6379" in code:
        code = code.replace("port=6379", f"port={redis_server().port}")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
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
