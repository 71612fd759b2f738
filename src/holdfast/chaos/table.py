"""The table of a report: a row for each run, for people on a terminal and as Markdown for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .faults import FAULTS
from .verdicts import EXCLUSION, FENCE, GHOSTS, ORDER, RECOVERY, TOLD, times

GOOD, BAD, NOTABLE, PLAIN = "good", "bad", "notable", "plain"
COLUMNS = (
    "store",
    "fault",
    "faults",
    "grants",
    "two holders",
    "late writes",
    "past the fence",
    "tokens",
    "told before",
    "again after",
    "left",
    "verdict",
)
MEANINGS = {
    "faults": "how many there were; those that hit nothing are told apart",
    "two holders": "who held the lock at once, each sure of it; asleep: a holder that stood still "
    "while a rival was granted the lock, and for how long",
    "late writes": "of holders whose time was over; without a fence all of them are accepted",
    "past the fence": "those that the fence accepted",
    "tokens": "whether each grant had a higher one",
    "told before": "by how much a holder that lost its lease knew before its rival's grant, at least",
    "again after": "the longest time from the end of a fault to the next grant",
    "left": "entries that nobody has any more",
}


class Fact(NamedTuple):
    """A cell of the table, and how it is to be taken."""

    text: str
    level: str = PLAIN


def row(run: dict[str, Any]) -> list[Fact]:
    """Returns the cells of a run."""
    name = run["store"] if run["library"] == "holdfast" else f"{run['library']} on {run['store']}"
    title = FAULTS[run["fault"]].title
    if run.get("error"):
        dashes = [Fact("-")] * (len(COLUMNS) - 3)
        return [Fact(name), Fact(title), *dashes, Fact(f"failed: {run['error']}"[:60], BAD)]
    figures = run["figures"]
    found = {verdict["rule"]: verdict for verdict in run["verdicts"]}
    return [
        Fact(name),
        Fact(title),
        _faults(figures),
        Fact(f"{figures['grants']:,}"),
        _holders(figures, found[EXCLUSION]),
        Fact(str(figures["stale_tried"] or "-")),
        _fence(figures, found[FENCE]),
        _tokens(figures, found[ORDER]),
        _told(figures, found[TOLD]),
        _again(figures, found[RECOVERY]),
        Fact(str(figures["ghosts"] or "-"), _level(found[GHOSTS])),
        _verdict(run),
    ]


def _level(verdict: dict[str, Any]) -> str:
    if verdict["held"]:
        return GOOD
    return BAD if verdict["demand"] == "must hold" or not verdict["claim"] else NOTABLE


def _faults(figures: dict[str, Any]) -> Fact:
    missed = figures.get("missed")
    text = str(figures["faults"])
    return Fact(f"{text}, {missed} hit nothing", NOTABLE) if missed else Fact(text)


def _holders(figures: dict[str, Any], verdict: dict[str, Any]) -> Fact:
    if figures["overlaps"]:
        text = f"{times(figures['overlaps'])}, {figures['overlap_seconds']:.2f} s"
        return Fact(text, _level(verdict))
    if figures["slept"]:
        return Fact(f"asleep {figures['slept_seconds']:.1f} s", GOOD)
    return Fact("never", GOOD)


def _fence(figures: dict[str, Any], verdict: dict[str, Any]) -> Fact:
    if "no tokens" in verdict["text"]:
        accepted = figures["stale_accepted_unfenced"]
        return Fact(f"all {accepted}" if accepted else "no fence", BAD if accepted else NOTABLE)
    return Fact(str(figures["stale_accepted"] or "none"), _level(verdict))


def _tokens(figures: dict[str, Any], verdict: dict[str, Any]) -> Fact:
    if "no tokens" in verdict["text"]:
        return Fact("has none", NOTABLE)
    return Fact(
        f"fell {times(figures['disorder'])}" if figures["disorder"] else "rise", _level(verdict)
    )


def _told(figures: dict[str, Any], verdict: dict[str, Any]) -> Fact:
    if figures["told_late"]:
        return Fact(f"late {times(figures['told_late'])}", _level(verdict))
    if figures["told_before"] is None:
        return Fact("-")
    return Fact(f"{figures['told_before']:.2f} s", GOOD)


def _again(figures: dict[str, Any], verdict: dict[str, Any]) -> Fact:
    if not verdict["held"]:
        return Fact("stuck", _level(verdict))
    seconds = figures["recovery_seconds"]
    return Fact("-" if seconds is None else f"{seconds:.1f} s")


def _verdict(run: dict[str, Any]) -> Fact:
    if run["stopped"]:
        return Fact("stopped", NOTABLE)
    if run["passed"] is None:
        missed = run["figures"].get("missed")
        return Fact(f"NOT JUDGED: {'hit nothing' if missed else 'no fault'}", BAD)
    if run["control"]:
        return Fact("caught", GOOD) if run["passed"] else Fact("NOT CAUGHT", BAD)
    if not run["passed"]:
        broken = [
            verdict["rule"]
            for verdict in run["verdicts"]
            if verdict["demand"] == "must hold" and not verdict["held"]
        ]
        return Fact("BROKEN: " + ", ".join(broken), BAD)
    if run["library"] != "holdfast":
        return _seen(run)
    declared = [v for v in run["verdicts"] if v["rule"] in (EXCLUSION, ORDER, TOLD)]
    if any(not verdict["held"] for verdict in declared):
        return Fact("as declared", NOTABLE)
    return Fact("passed", GOOD)


def _seen(run: dict[str, Any]) -> Fact:
    """Returns what was seen of another library, which has promised us nothing."""
    figures = run["figures"]
    held = {verdict["rule"]: verdict["held"] for verdict in run["verdicts"]}
    words = {
        "two holders": figures["overlaps"],
        "late writes": figures["stale_accepted_unfenced"],
        "closed for nobody": figures["ghosts"],
        "stuck": not held[RECOVERY],
    }
    found = [word for word, seen in words.items() if seen]
    return Fact(", ".join(found), BAD) if found else Fact("nothing was seen", GOOD)


def markdown(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields the lines of both tables as Markdown: the verdicts at a glance, and all figures."""
    yield from matrix([run for run in runs if not run["control"]])
    yield ""
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|" + "---|" * len(COLUMNS)
    for run in runs:
        cells = [_emphasized(fact) for fact in row(run)]
        yield "| " + " | ".join(cells) + " |"


def matrix(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields the lines of a table with a row for each fault and a column for each store."""
    places = list(dict.fromkeys(row(run)[0].text for run in runs))
    cells = {(run["fault"], row(run)[0].text): _glance(run) for run in runs}
    yield "| | " + " | ".join(places) + " |"
    yield "|---|" + ":-:|" * len(places)
    for name, fault in FAULTS.items():
        found = [cells.get((name, place), "·") for place in places]
        if any(cell != "·" for cell in found):
            yield f"| {fault.title} | " + " | ".join(found) + " |"


def _glance(run: dict[str, Any]) -> str:
    """Returns the verdict of a run in a word or two, with how many late writes there were."""
    verdict = row(run)[-1]
    text = {"passed": "✓", "as declared": "declared", "nothing was seen": "✓"}.get(
        verdict.text, verdict.text
    )
    late = run["figures"].get("stale_tried") if run["library"] == "holdfast" else 0
    text += f", {late} refused" if late else ""
    return f"**{text}**" if verdict.level == BAD else text


def _emphasized(fact: Fact) -> str:
    return f"**{fact.text}**" if fact.level == BAD else fact.text
