"""tools/includes.py [--check]: write into pages what comes from elsewhere, so that both never differ.

A page says what it includes between two comments:

    <!-- begin example cron_job -->     the code of examples/cron_job.py
    <!-- begin stores clock -->         what each store does under a fault of `holdfast chaos`
    <!-- end -->

With --check nothing is written, and the pages that differ are named.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.chaos.promises import promised
from holdfast.cli.stores import promises, title

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "docs" / "recipes", ROOT / "docs" / "failure-modes")
BEGIN = re.compile(r"(<!-- begin (example|stores) ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FIELDS = {
    "clock": ("clock_dependence",),
    "delay": ("token_source",),
    "failover": ("consistency", "survives"),
    "holder-crash": ("auto_release",),
    "partition": ("consistency",),
    "pause": ("auto_release",),
    "store-crash": ("survives",),
}
"""The fields of `Guarantees` that say what becomes of a lock, by the fault."""
LEFT_OUT = {"http", "memory"}
"""Stores that have no words of their own here: a service has those of the store behind it."""


def example(name: str) -> str:
    """Returns the code of an example, as a page shows it."""
    code = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    return f"```python\n{code}```\n"


def stores(fault: str) -> str:
    """Returns the table of what each store promises under a fault, and of its own words for it."""
    return "".join(f"| {' | '.join(row)} |\n" for row in _rows(fault))


def _rows(fault: str) -> Iterator[list[str]]:
    fields = FIELDS[fault]
    heads = ["store", "two holders that are awake", *map(title, fields)]
    yield heads
    yield ["---"] * len(heads)
    for one in promises():
        if one.store not in LEFT_OUT:
            kept = "never" if promised(one, fault).exclusion else "possible, and declared"
            yield [f"`{one.store}`", kept, *(getattr(one, field) for field in fields)]


def included(page: str) -> str:
    """Returns the text of a page with everything that it includes."""
    makers = {"example": example, "stores": stores}
    return BEGIN.sub(lambda found: found[1] + makers[found[2]](found[3]) + found[4], page)


def pages() -> list[Path]:
    """Returns the pages that may include something."""
    return sorted(page for folder in FOLDERS for page in folder.glob("*.md"))


def main(words: list[str]) -> int:
    differ = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if included(text) != text:
            differ.append(page)
            if words != ["--check"]:
                page.write_text(included(text), encoding="utf-8")
    for page in differ:
        print(page.relative_to(ROOT))
    return 1 if differ and words == ["--check"] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
