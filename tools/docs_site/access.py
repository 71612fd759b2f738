"""What the pages of the theme lack for people who use a screen reader or no mouse."""

from __future__ import annotations

import re
from pathlib import Path

CHANGES = (
    # A heading has a level.
    (r'<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    # Of two parts of one kind, each has a name.
    (r'<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="All pages">'),
    (r'<aside class="toc-drawer( [\w-]+)?">', r'<aside class="toc-drawer\1" aria-label="This page">'),
    # A cell without words is the heading of nothing.
    (r'<th class="head">(?:<p></p>)?</th>', "<td></td>"),
    # The parameters of a signature are no list of definitions.
    (r"<dl>\n((?:<dd><em class=\"sig-param\">.*</dd>\n)+)</dl>", r'<div class="sig-params">\n\1</div>'),
    (r"<dd>(<em class=\"sig-param\">.*)</dd>", r"<div>\1</div>"),
    # The page of the search has a heading.
    (r'(<article role="main" id="furo-main-content">\s*)(<noscript>)', r"\1<h1>Search</h1>\n\2"),
)  # fmt: skip
"""What is changed in each page, as expressions and what takes the place of what they find."""


def mend(page: str) -> str:
    """Returns a page with what the theme left out. A page that was mended is returned as it is."""
    for pattern, replacement in CHANGES:
        page = re.sub(pattern, replacement, page)
    return page


def mend_all(folder: Path) -> None:
    """Mends every page of the site in `folder`."""
    for path in folder.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        mended = mend(text)
        if mended != text:
            path.write_text(mended, encoding="utf-8")
