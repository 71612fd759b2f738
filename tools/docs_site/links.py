"""The links of a page, as they have to be in the site.

In the repository a link leads to a file or a folder, as GitHub follows it. In the site a folder is its
index, a README is the index of its folder, and what is not a page is a file to download.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
PICTURE = re.compile(r"<picture>.*?</picture>", re.DOTALL)


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Returns `text` with `change` made to all of it but the code blocks."""
    parts = []
    at = 0
    for block in FENCE.finditer(text):
        parts += [change(text[at : block.start()]), block.group()]
        at = block.end()
    return "".join([*parts, change(text[at:])])


class Links:
    """The places of the site, by the files and folders of the repository."""

    def __init__(self, pages: dict[Path, str], copy: Callable[[Path], str]) -> None:
        self._pages = pages
        self._copy = copy

    def rewrite(self, text: str, source: Path) -> str:
        """Returns the text of the page `source` with links that work in the site."""
        return outside_code(text, lambda part: LINK.sub(lambda m: self._link(m, source), part))

    def _link(self, match: re.Match[str], source: Path) -> str:
        words, (path, hash, anchor) = match[1], match[2].partition("#")
        if not path or ":" in path:
            return match[0]
        target = Path(os.path.normpath(source.parent / path))
        if target.is_dir() and target not in self._pages:
            return words  # a folder of sources: the site does not have it
        place = self._pages.get(target) or self._copy(target)
        here = os.path.dirname(self._pages[source]) or "."
        return f"[{words}]({os.path.relpath(place, here)}{hash}{anchor})"


def pictures(text: str) -> str:
    """Returns `text` with each picture for two colour schemes as two images, one of which is shown.

    A picture by itself follows the system's scheme, and not the button of the site.
    """

    def both(match: re.Match[str]) -> str:
        dark = re.search(r'srcset="([^"]+)"', match[0])
        light = re.search(r'src="([^"]+)"', match[0])
        alt = re.search(r'alt="([^"]+)"', match[0])
        width = re.search(r'width="(\d+)"', match[0])
        if not (dark and light and alt):
            raise ValueError(f"a picture needs two sources and an alt text: {match[0]}")
        more = f":width: {width[1]}px\n" if width else ""
        return "\n".join(
            f"```{{image}} {place[1]}\n:alt: {alt[1]}\n:class: only-{scheme}\n{more}```\n"
            for place, scheme in ((light, "light"), (dark, "dark"))
        )

    return outside_code(text, lambda part: PICTURE.sub(both, part))
