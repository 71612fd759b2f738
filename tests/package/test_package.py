"""The package: what is in it, what is refused, and that it works where nothing else is installed."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from release_check.__main__ import made
from release_check.contents import PackageError, check_sdist, check_wheel
from release_check.environments import extras, lowest, try_out
from release_check.licences import licence_of, objections
from release_check.trials import OF_EXTRA


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns a wheel and an sdist, which have been looked into."""
    return made(tmp_path_factory.mktemp("dist"))


def test_the_wheel_works_in_an_empty_environment(built: tuple[Path, Path]) -> None:
    packages = try_out(built[0], sys.executable)
    assert set(packages) == {"holdfast-locks"}, "the core needs nothing but the standard library"


@pytest.mark.parametrize(
    "junk", ["holdfast/__pycache__/x.pyc", "tests/test_x.py", "holdfast/notes.txt"]
)
def test_a_stranger_in_the_wheel_is_noticed(
    built: tuple[Path, Path], tmp_path: Path, junk: str
) -> None:
    wheel = tmp_path / built[0].name
    wheel.write_bytes(built[0].read_bytes())
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(junk, "")
    with pytest.raises(PackageError, match=junk):
        check_wheel(wheel)


@pytest.mark.parametrize("gone", ["holdfast/py.typed", "holdfast/service/page/"])
def test_what_is_missing_in_the_wheel_is_noticed(
    built: tuple[Path, Path], tmp_path: Path, gone: str
) -> None:
    wheel = tmp_path / built[0].name
    with zipfile.ZipFile(built[0]) as old, zipfile.ZipFile(wheel, "w") as new:
        for name in old.namelist():
            if not name.startswith(gone):
                new.writestr(name, old.read(name))
    with pytest.raises(PackageError, match=gone):
        check_wheel(wheel)


def rewritten(sdist: Path, target: Path, keep: Callable[[str], bool], more: str = "") -> Path:
    with tarfile.open(sdist) as old, tarfile.open(target / sdist.name, "w:gz") as new:
        top = old.getnames()[0].partition("/")[0]
        for member in old:
            if keep(member.name):
                new.addfile(member, old.extractfile(member) if member.isfile() else None)
        if more:
            new.addfile(tarfile.TarInfo(f"{top}/{more}"), BytesIO())
    return target / sdist.name


def test_strangers_and_gaps_in_the_sdist_are_noticed(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(PackageError, match="local-notes"):
        check_sdist(rewritten(built[1], tmp_path, lambda name: True, "local-notes.txt"))
    with pytest.raises(PackageError, match=r"lacks SECURITY\.md"):
        check_sdist(rewritten(built[1], tmp_path, lambda name: "SECURITY" not in name))


def test_the_readme_of_the_package_links_to_nothing_that_pypi_lacks(
    built: tuple[Path, Path],
) -> None:
    with zipfile.ZipFile(built[0]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        shown = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown" in shown
    assert "Locks that say when they are lost" in shown
    for link in re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)", shown):
        assert "".join(link).startswith("https://"), link


def test_every_extra_has_lowest_versions() -> None:
    assert lowest("redis") == ["hiredis==3.2", "redis==5.0"]
    assert set(lowest("redis")) < set(lowest("all"))
    for extra in extras():
        assert lowest(extra)


def test_every_trial_is_of_an_extra() -> None:
    assert set(OF_EXTRA) <= set(extras())


@pytest.mark.parametrize(
    ("words", "licence"),
    [
        (["MIT"], "MIT"),
        (["Apache-2.0 OR BSD-2-Clause"], "Apache-2.0"),
        (["GPL-3.0-only OR MIT"], "MIT"),
        (["MIT AND GPL-2.0-only"], "GPL"),
        (["MIT AND Apache-2.0"], "MIT AND Apache-2.0"),
        (["License :: OSI Approved :: BSD License", "BSD"], "BSD"),
        (["LGPL-3.0-only"], "LGPL-3.0"),
        (["License :: OSI Approved :: GNU General Public License v3 (GPLv3)"], "GPL"),
        (["License :: OSI Approved", "The MIT License\nmore"], "MIT"),
        (["ask me"], ""),
    ],
)
def test_a_licence_is_read(words: list[str], licence: str) -> None:
    assert licence_of(words) == licence


def test_a_licence_that_is_not_allowed_is_told() -> None:
    said = objections({"good": ["MIT"], "bad": ["AGPL-3.0-only"], "mute": []})
    assert [line.split()[0] for line in said] == ["bad", "mute"]
