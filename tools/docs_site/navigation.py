"""What stands beside each page of the site, read out of docs/README.md.

Each section of that page with a list of links is a part of the navigation. An item that is indented
stands below the one before it. A comment `<!-- pages: folder -->` stands for the pages of a folder,
where there are any.
"""

from __future__ import annotations

import re
from pathlib import Path

ITEM = re.compile(r"^( *)- (?:\*\*)?\[[^\]]*\]\(([^)#\s]+)\)")
FOLDER = re.compile(r"^<!-- pages: ([\w-]+) -->$")


def toctree(pages: list[str], caption: str = "") -> str:
    """Returns the directive that puts `pages` into the navigation."""
    more = f":caption: {caption}\n" if caption else ""
    return "\n```{toctree}\n:hidden:\n" + more + "\n" + "\n".join(pages) + "\n```\n"


def title_of(page: str) -> str:
    """Returns the title of a page of Markdown."""
    return page.partition("# ")[2].partition("\n")[0].strip()


def title_of_folder(folder: Path) -> str:
    """Returns the title of a folder of pages: that of its index, or else its name."""
    index = folder / "README.md"
    if index.exists():
        return title_of(index.read_text())
    return folder.name.replace("-", " ").capitalize()


def with_folders(text: str, docs: Path) -> str:
    """Returns the first page with a link in place of each comment that names a folder."""
    lines = []
    for line in text.splitlines():
        if named := FOLDER.match(line):
            folder = docs / named[1]
            if any(folder.glob("*.md")):
                lines.append(f"- [{title_of_folder(folder)}]({named[1]}/)")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def parts(text: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Returns the links of each section, and those that stand below another link."""
    sections: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    section = last = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:].strip()
        elif item := ITEM.match(line):
            indent, target = item.groups()
            if indent:
                below.setdefault(last, []).append(target)
            else:
                sections.setdefault(section, []).append(target)
                last = target
    return sections, below
