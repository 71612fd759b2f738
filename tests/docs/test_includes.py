"""The recipes show the examples as they are, and the failure modes what the stores promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import includes
from holdfast.chaos.faults import FAULTS

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
PICTURES = ROOT / "docs" / "pictures"


@pytest.mark.parametrize("page", includes.pages(), ids=lambda page: page.name)
def test_a_page_has_what_it_includes(page: Path) -> None:
    """If not: run tools/includes.py."""
    text = page.read_text()
    assert includes.included(text) == text


def test_every_example_is_in_a_recipe_and_has_a_test() -> None:
    pages = "".join(page.read_text() for page in includes.pages())
    for name in EXAMPLES:
        assert f"<!-- begin example {name} -->" in pages
        assert (ROOT / "tests" / "recipes" / f"test_{name}.py").exists()


HELP = """
import runpy, sys
for path in sys.argv[1:]:
    sys.argv = [path, "--help"]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        assert not end.code, path
"""


def test_every_example_says_what_it_does() -> None:
    paths = [str(ROOT / "examples" / f"{name}.py") for name in EXAMPLES]
    command = [sys.executable, "-W", "error", "-c", HELP, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for name in EXAMPLES:
        assert f"usage: {name}.py" in done.stdout
    assert done.stdout.count("--ttl TTL") >= len(EXAMPLES)


@pytest.mark.parametrize(
    "folder",
    sorted(index.parent for index in (ROOT / "docs").glob("*/README.md")),
    ids=lambda folder: folder.name,
)
def test_the_index_has_every_page_of_its_folder(folder: Path) -> None:
    index = (folder / "README.md").read_text()
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {page.name for page in folder.glob("*.md")} - {"README.md"}


def test_a_failure_mode_has_its_stores_its_command_and_its_picture() -> None:
    seen = set()
    for page in includes.FOLDERS[1].glob("*.md"):
        if page.name == "README.md":
            continue
        text = page.read_text()
        (fault,) = re.findall(r"<!-- begin stores ([\w-]+) -->", text)
        assert re.search(rf"holdfast chaos .*--faults {fault}\b", text), page.name
        assert fault in FAULTS
        pictures = re.findall(r"pictures/([\w-]+\.png)", text)
        assert len(pictures) == 2, page.name
        for picture in pictures:
            assert (PICTURES / picture).stat().st_size < 100_000
        seen.add(fault)
    assert seen == set(includes.FIELDS)
