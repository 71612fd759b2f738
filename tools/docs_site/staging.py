"""The sources of the site: the pages of docs/ and some beside it, with links that fit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from . import navigation, reference
from .links import Links, pictures

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")
"""The pages at the top of the repository that the site has, too."""
REFERENCE = "api.md"
IMAGES = {".png", ".svg"}


def places() -> dict[Path, str]:
    """Returns the place in the site of every page, and of every folder of pages."""
    found: dict[Path, str] = {}
    for source in sorted(DOCS.rglob("*.md")):
        place = source.relative_to(DOCS).as_posix()
        folder, _, name = place.rpartition("/")
        index = f"{folder}/index.md" if folder else "index.md"
        found[source] = index if name == "README.md" else place
        found[source.parent] = index
    for name in BESIDE:
        if (ROOT / name).exists():
            found[ROOT / name] = name.lower()
    return found


class Stage:
    """A folder with the sources of the site. What has not changed is not written again."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._kept: set[Path] = set()
        self._trees: set[str] = set()
        self._places = places()
        self._links = Links(self._places, self.copy)

    def fill(self) -> bool:
        """Writes every page and every image, and removes what is no longer one of them.

        Returns whether the navigation is another one now, which all pages show.
        """
        below: dict[str, list[str]] = {REFERENCE: []}
        for place, text in reference.pages().items():
            self.write(place, text)
            below[REFERENCE].append(place)
        first = navigation.with_folders((DOCS / "README.md").read_text(), DOCS)
        sections, deeper = navigation.parts(first)
        for top, items in deeper.items():
            below[self._place(top).lstrip("/")] = [self._place(item) for item in items]
        trees = "".join(
            navigation.toctree([self._place(item) for item in items], caption)
            for caption, items in sections.items()
        )
        for source, place in self._places.items():
            if source.suffix == ".md" and place != "index.md":
                self._page(source, place, below.get(place, []))
            elif source.is_dir() and not (source / "README.md").exists():
                self._index(source, place)
        text = self._links.rewrite(first, DOCS / "README.md")
        self.write("index.md", pictures(text) + trees)
        for image in DOCS.rglob("*"):
            if image.suffix in IMAGES:
                self._copy(image, image.relative_to(DOCS).as_posix())
        return self._sweep() or bool(self._trees)

    def write(self, place: str, text: str) -> None:
        path = self._target / place
        self._kept.add(path)
        if not path.exists() or path.read_text() != text:
            if not path.exists() or "{toctree}" in text:
                self._trees.add(place)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def copy(self, source: Path) -> str:
        """Copies a file of the repository, for readers to download, and returns its place."""
        place = source.relative_to(DOCS if source.is_relative_to(DOCS) else ROOT).as_posix()
        if source.suffix not in IMAGES:
            place = f"files/{place}"
        self._copy(source, place)
        return place

    def _copy(self, source: Path, place: str) -> None:
        path = self._target / place
        self._kept.add(path)
        if not path.exists() or path.read_bytes() != source.read_bytes():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, path)

    def _place(self, link: str) -> str:
        """Returns where a link of the first page leads in the site, from its top."""
        place = self._places[Path(os.path.normpath(DOCS / link))]
        return f"/{place}"

    def _page(self, source: Path, place: str, below: list[str]) -> None:
        text = pictures(self._links.rewrite(source.read_text(), source))
        if place.endswith("/index.md"):
            listed = [other.lstrip("/") for other in below]
            below = listed + [other for other in self._siblings(place) if other not in listed]
        self.write(
            place,
            text + (navigation.toctree([f"/{b.lstrip('/')}" for b in below]) if below else ""),
        )

    def _index(self, folder: Path, place: str) -> None:
        """Writes the index of a folder that has none in the repository."""
        pages = self._siblings(place)
        title = navigation.title_of_folder(folder)
        lines = [
            f"- [{navigation.title_of(source.read_text())}]({Path(other).name})"
            for source, other in self._places.items()
            if other in pages and source.suffix == ".md"
        ]
        tree = navigation.toctree([f"/{other}" for other in pages])
        self.write(place, f"# {title}\n\n" + "\n".join(lines) + "\n" + tree)

    def _siblings(self, place: str) -> list[str]:
        folder = os.path.dirname(place)
        found = {other for other in self._places.values() if os.path.dirname(other) == folder}
        return sorted(found - {place})

    def _sweep(self) -> bool:
        old = [
            path for path in self._target.rglob("*") if path.is_file() and path not in self._kept
        ]
        for path in old:
            path.unlink()
        return bool(old)
