"""The README as PyPI shows it: a hook of hatchling, which `pyproject.toml` names.

PyPI has the README alone, so a link to a file of the repository leads nowhere there. The site of the
docs has a page for each of them: if `Documentation` in `project.urls` says where that site is, links
and pictures lead to it. As long as it does not, the words of a link stay, and of a picture its
description.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
PICTURE = re.compile(
    r'<picture>.*?<img src="([^"]+)"( width="\d+")? alt="([^"]+)">.*?</picture>', re.DOTALL
)


def place(path: str) -> str:
    """Returns where the site has a file of the repository."""
    if path.endswith((".png", ".svg")):
        return f"_images/{path.rpartition('/')[2]}"
    if not path.startswith("docs/"):
        path = f"docs/{path.lower()}"
    path = path.removeprefix("docs/")
    if path.endswith("/") or not path:
        path += "README.md"
    return path.removesuffix(".md").replace("README", "index") + ".html"


def rewritten(text: str, site: str = "") -> str:
    """Returns the text of a README with links to `site`; without links to files if that is empty."""
    site = site.rstrip("/")

    def link(found: re.Match[str]) -> str:
        words, path, anchor = found[1], found[2], found[3] or ""
        return f"[{words}]({site}/{place(path)}{anchor})" if site else words

    def picture(found: re.Match[str]) -> str:
        path, width, alt = found[1], found[2] or "", found[3]
        return f'<img src="{site}/{place(path)}"{width} alt="{alt}">' if site else f"*{alt}*"

    def prose(part: str) -> str:
        return LINK.sub(link, PICTURE.sub(picture, part))

    parts = []
    at = 0
    for block in FENCE.finditer(text):
        parts += [prose(text[at : block.start()]), block.group()]
        at = block.end()
    return "".join([*parts, prose(text[at:])])


class Readme(MetadataHookInterface):
    """The hook: puts the README into the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        site = metadata.get("urls", {}).get("Documentation", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": rewritten(text, site)}
