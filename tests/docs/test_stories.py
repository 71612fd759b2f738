"""A page that is read from top to bottom: all its examples, shell and Python, one after the other."""

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
FENCES = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "fences").glob("*.md"))
PAGES = ("README.md", "docs/start.md", "docs/operations.md", *FENCES)
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"^(pip|make|curl|holdfast (serve|watch)) ")
"""Commands that other tests run, or that never end."""


def story(*pages: str) -> str:
    """Returns the examples of these pages, one after the other, as one script."""
    parts = ["set -e"]
    for page in pages:
        for kind, code in BLOCK.findall((ROOT / page).read_text()):
            if kind == "python":
                parts.append(f"python -W error - <<'END-OF-EXAMPLE'\n{code}END-OF-EXAMPLE")
            else:
                parts += [line for line in code.splitlines() if not ELSEWHERE.match(line)]
    server = redis_server()
    server("FLUSHALL")  # each story begins with an empty store
    port = str(server.port)
    return "\n".join(parts).replace(":6379", f":{port}").replace("port=6379", f"port={port}")


@pytest.fixture
def place() -> Iterator[Path]:
    """Returns a folder of the user that the examples run as, with the scripts that they name."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for script in ("report.sh", "scheduler"):
            (folder / script).write_text("#!/bin/sh\nexit 0\n")
            (folder / script).chmod(0o755)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_run_in_the_order_of_the_page(page: str, place: Path) -> None:
    tell(story(page), place)


def test_a_reader_goes_on_from_page_to_page(place: Path) -> None:
    tell(story("README.md", "docs/start.md", "docs/fences/README.md"), place)


def tell(script: str, place: Path) -> None:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    url = f"sqlite://{place}/locks.db"
    done = subprocess.run(
        [*as_somebody(), "bash", "-c", script],
        cwd=place,
        env={**os.environ, "HOME": str(place), "PATH": programs, "HOLDFAST_URL": url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
