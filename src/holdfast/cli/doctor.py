"""`holdfast doctor`: is the store configured so that its guarantees hold?"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from textwrap import wrap

from .. import Finding, doctor
from ..findings import LEVELS, NOTE, OK, WARNING, WRONG, worst
from ..stores import urls
from . import encoding, statuses
from .arguments import STORE_OPTIONS, read
from .drawing import BLUE, BOLD, DIM, GREEN, RED, YELLOW, Pen, visible
from .durations import seconds
from .store import place_of

OPTIONS = {**STORE_OPTIONS, "--timeout": "10s", "--json": ""}
COLOURS = {OK: GREEN, NOTE: BLUE, WARNING: YELLOW, WRONG: RED}
MARGIN = max(map(len, LEVELS)) + 2
"""The columns before the text of a finding."""
WIDTH, LEAST = 80, 40
"""The columns of a line in a pipe, and the fewest that are used on a narrow terminal."""


def main(words: Sequence[str]) -> int:
    """Examines the store, and returns the exit status."""
    given = read(words, OPTIONS)
    limit = seconds("--timeout", given.options.get("--timeout", "10s"))
    url, namespace = place_of(given.options)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which store it is stands in the first line
        findings = doctor(
            url, namespace="holdfast" if namespace is None else namespace, timeout=limit
        )
    pen = Pen(sys.stdout)
    if "--json" in given.options:
        pen.write(encoding.dumps([finding._asdict() for finding in findings]) + "\n")
    else:
        pen.write("\n".join(describe(pen, _shown(url), findings)) + "\n")
    return statuses.SOMETHING_WRONG if worst(findings) == WRONG else 0


def _shown(url: str | None) -> str:
    """Returns the store's URL without credentials."""
    url = url or os.environ.get("HOLDFAST_URL")
    if not url:
        from ..stores.sqlite.location import default_path

        return f"sqlite://{default_path()} (no store was named)"
    return str(urls.parse(url))


def describe(pen: Pen, url: str, findings: Sequence[Finding]) -> Iterator[str]:
    """Yields the lines that show the findings."""
    width = max(min(pen.columns, 100), LEAST) if pen.columns else WIDTH
    yield from (pen.paint(line, BOLD) for line in _wrapped(visible(url), width, 0))
    yield ""
    for finding in _grouped(findings):
        what = f"{finding.server}: {finding.what}" if finding.server else finding.what
        first, *rest = _wrapped(visible(what), width, MARGIN)
        level = pen.paint(finding.level.ljust(MARGIN), COLOURS[finding.level])
        yield level + first[MARGIN:]
        yield from rest
        if finding.why:
            for line in _wrapped(f"Why: {visible(finding.why)}", width, MARGIN):
                yield pen.paint(line, DIM)
        if finding.mend:
            yield from _wrapped(f"Mend: {visible(finding.mend)}", width, MARGIN)
    yield ""
    yield _summary(pen, findings)


def _grouped(findings: Sequence[Finding]) -> list[Finding]:
    """Returns the findings with those as one that were made on several servers."""
    servers: dict[Finding, list[str]] = {}
    for finding in findings:
        servers.setdefault(finding._replace(server=""), []).append(finding.server)
    return [
        finding._replace(server=_listed(names, brief=finding.level == OK))
        for finding, names in servers.items()
    ]


def _listed(names: Sequence[str], *, brief: bool) -> str:
    """Returns the names of servers; where all is well, not all of them need be named."""
    if brief and len(names) > 2:
        return f"{names[0]} and {len(names) - 1} others"
    return ", ".join(filter(None, names))


def _wrapped(text: str, width: int, margin: int) -> list[str]:
    indent = " " * margin
    lines = wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return lines or [indent]


def _summary(pen: Pen, findings: Sequence[Finding]) -> str:
    """Returns the last line: how many findings there are of each level that is not good."""
    counts = {level: sum(one.level == level for one in findings) for level in LEVELS}
    if not counts[WRONG] and not counts[WARNING]:
        return pen.paint("Nothing is wrong.", GREEN)
    words = [f"{counts[WRONG]} wrong"] if counts[WRONG] else ["Nothing is wrong"]
    if counts[WARNING]:
        words.append(f"{counts[WARNING]} warning{'s' if counts[WARNING] > 1 else ''}")
    return pen.paint(", ".join(words) + ".", RED if counts[WRONG] else YELLOW)
