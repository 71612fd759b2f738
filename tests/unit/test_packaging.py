"""The package as others get it: its extras, and what the source distribution holds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
OURS = {"all", "bench", "dev", "docs", "sim"}
"""Extras for those who work on Holdfast, and the one that brings all others."""
FRAMEWORKS = {"apscheduler", "celery", "django", "fastapi", "pytest"}
"""Extras for programs that have the framework already: nobody wants all of them."""


def test_no_extra_is_empty() -> None:
    assert all(EXTRAS.values())


def test_all_brings_every_store_and_fence() -> None:
    (words,) = EXTRAS["all"]
    assert set(re.findall(r"\w+", words.partition("[")[2])) == EXTRAS.keys() - OURS - FRAMEWORKS


def test_every_extra_that_a_page_or_an_error_names_is_there() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    for page in pages:
        for extra in re.findall(r"pip install '?holdfast\[(\w+)\]", page.read_text()):
            assert extra in EXTRAS, f"{page.name} names {extra}"


def test_the_source_distribution_holds_what_its_tests_read() -> None:
    included = set(PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    read = {
        "bench",
        "deploy",
        "docs",
        "model",
        "src",
        "tests",
        "tools",
        "Makefile",
        "CONTRIBUTING.md",
    }
    assert {f"/{name}" for name in read} <= included
    assert all((ROOT / name.lstrip("/")).exists() for name in included)
