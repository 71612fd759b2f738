"""The package as others get it: its extras, and what the source distribution holds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from holdfast.refusals import DISTRIBUTION

ROOT = Path(__file__).parents[2]
TEXTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
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
    found = set()
    for page in TEXTS:
        text = page.read_text()
        named = re.findall(rf"\b{DISTRIBUTION}\[([\w,]+)\]", text)
        named += re.findall(r"\blacks\([^\n]*\"(\w+)\"\)", text)
        for extra in ",".join(named).split(",") if named else []:
            assert extra in EXTRAS, f"{page.name} names {extra}"
            found.add(extra)
    assert found > FRAMEWORKS


def test_everybody_is_told_to_install_us_and_no_namesake() -> None:
    assert PROJECT["project"]["name"] == DISTRIBUTION
    for page in TEXTS:
        wrong = re.search(r"pip install '?holdfast(?!-locks)|\bholdfast\[", page.read_text())
        assert not wrong, f"{page.name}: {wrong}"


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
