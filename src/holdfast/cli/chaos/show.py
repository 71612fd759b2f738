"""A campaign of `holdfast chaos` as it is shown: what happens while it does, and what came of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from ...chaos import table
from ...chaos.campaign import Campaign
from ...chaos.conductor import Unreachable
from ...chaos.long import LongCampaign, merged
from ...chaos.report import report_of
from ...chaos.setup import OURS, Setup
from ...chaos.tiers import tiers
from ...errors import BackendUnavailable
from .. import encoding, statuses
from ..drawing import BOLD, DIM, GREEN, RED, YELLOW, Cell, Column, Pen, visible
from ..durations import briefly
from .request import Request
from .signals import Ended, ended_by_signals

COLOURS = {table.GOOD: GREEN, table.BAD: RED, table.NOTABLE: YELLOW, table.PLAIN: ""}
_SPARE = (
    "faults",
    "again after",
    "left",
    "told before",
    "tokens",
    "past the fence",
    "grants",
    "late writes",
    "two holders",
)
"""The columns that are left out where a terminal is narrow, in this order: never the verdict."""


class Show:
    """The campaign that was asked for, shown to people and written for programs."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._pen = Pen(sys.stderr if request.json or request.markdown else sys.stdout)
        self._mutex = threading.Lock()
        self._done = 0
        self._wide = max(len(_place(setup)) for setup in request.setups)

    def run(self) -> int:
        """Makes all runs; returns the exit status."""
        self._introduce()
        campaign = self._campaign()
        runs: list[dict[str, Any]] = []
        interrupted = 0
        with ExitStack() as stack:
            try:
                stack.enter_context(ended_by_signals())  # here, or a signal could come before `try`
                with closing(campaign.run()) as made:
                    for run in made:
                        runs.append(run)
                        self._finish(run)
            except Ended as error:
                interrupted = error.number
                runs += campaign.late
            except Unreachable as error:
                raise BackendUnavailable(str(error)) from None
            report = self._report(runs, bool(interrupted))
            self._conclude(report)
            self._write(report)
        if interrupted:
            return statuses.ended_by(interrupted)
        return 0 if report["passed"] else statuses.SOMETHING_WRONG

    def _campaign(self) -> Campaign | LongCampaign:
        request = self._request
        if not request.grants:
            return Campaign(request.setups, self._tell, request.url, request.jobs)
        folder = None if request.state is None else Path(request.state)
        return LongCampaign(request.setups, self._tell, request.grants, folder, request.jobs)

    def _report(self, runs: Sequence[dict[str, Any]], interrupted: bool) -> dict[str, Any]:
        request = self._request
        return report_of(
            merged(runs) if request.grants else runs,
            request.command,
            request.seed,
            request.duration,
            [one._asdict() for one in request.skipped],
            interrupted,
        )

    def _introduce(self) -> None:
        pen, request = self._pen, self._request
        for tier in tiers():
            mark = pen.paint("yes", GREEN) if tier.available else pen.paint("no ", YELLOW)
            pen.write(f"{mark}  {tier.name:<12}{pen.paint(visible(tier.why), DIM)}\n")
        for one in request.skipped:
            pen.write(f"left out: {visible(one.text)}\n")
        for remark in request.remarks:
            pen.write(pen.paint(f"{visible(remark)}.", YELLOW) + "\n")
        known_bad = sum(bool(setup.control) for setup in request.setups)
        count = len(request.setups) - known_bad
        text = f"{_counted(count)} of {briefly(request.duration)}"
        text += f", and {known_bad} of locks that are known to be bad" if known_bad else ""
        pen.write(f"\n{text}. Seed {request.seed}.\n")
        if not known_bad:
            pen.write(
                pen.paint(
                    "No lock that is known to be bad is run: the checker is not checked.", YELLOW
                )
                + "\n"
            )
        pen.write("\n")

    def _tell(self, setup: Setup, at: float | None, text: str) -> None:
        """Tells what happens in a run, from whichever thread."""
        if at is None:
            return
        place = _place(setup).ljust(self._wide)
        when = f"{at:6.1f} s"
        with self._mutex:
            self._pen.write(f"{self._pen.paint(f'{place}  {when}', DIM)}  {visible(text)}\n")

    def _finish(self, run: dict[str, Any]) -> None:
        self._done += 1
        verdict = table.row(run)[-1]
        place = _place_of(run).ljust(self._wide)
        count = str(self._done)
        if not self._request.grants:
            count += f"/{len(self._request.setups)}"
        with self._mutex:
            self._pen.write(
                f"{self._pen.paint(place, BOLD)}  {count:>8}  "
                f"{self._pen.paint(verdict.text, COLOURS[verdict.level])}\n"
            )

    def _write(self, report: dict[str, Any]) -> None:
        """Writes what programs read."""
        request = self._request
        if request.json:
            Pen(sys.stdout).write(encoding.dumps(report) + "\n")
        elif request.markdown:
            Pen(sys.stdout).write("\n".join(table.markdown(report["runs"])) + "\n")
        if request.html is not None:
            from ...chaos.picture import draw

            with open(request.html, "w", encoding="utf-8") as file:
                file.write(draw(report))

    def _conclude(self, report: dict[str, Any]) -> None:
        pen = self._pen
        runs = report["runs"]
        ours = [run for run in runs if not run["control"]]
        bad = [run for run in runs if run["control"]]
        for title, some in (("", ours), ("Known to be bad", bad)):
            if some:
                pen.write("\n" + (pen.paint(title, BOLD) + "\n" if title else ""))
                pen.write("\n".join(self._rows(some)) + "\n")
        for run in runs:
            for line in complaints(run):
                pen.write(f"\n{pen.paint(_place_of(run), RED)}: {visible(line)}")
        wanted = sum(not setup.control for setup in self._request.setups)
        text = summary(report, wanted)
        colour = YELLOW if report["stopped"] else GREEN if report["passed"] else RED
        pen.write("\n" + pen.paint(text, colour) + "\n")
        pen.write(pen.paint(f"Again: {report['command']}", DIM) + "\n")

    def _rows(self, runs: Sequence[dict[str, Any]]) -> list[str]:
        columns = [
            Column(
                title,
                right=2 <= at < 4,
                least=8 if at == 11 else 0,
                spare=_SPARE.index(title) + 1 if title in _SPARE else 0,
            )
            for at, title in enumerate(table.COLUMNS)
        ]
        rows = [[Cell(fact.text, COLOURS[fact.level]) for fact in table.row(run)] for run in runs]
        return self._pen.table(columns, rows)


def summary(report: Mapping[str, Any], wanted: int) -> str:
    """Returns what came of a campaign, in a sentence; `wanted`: the runs that were asked for."""
    ours = [run for run in report["runs"] if not run["control"]]
    if report["stopped"]:
        seen = sum(not run["stopped"] for run in ours)
        return f"Stopped early: {seen} of {wanted} runs were seen."
    bad = [run for run in report["runs"] if run["control"]]
    caught = sum(bool(run["passed"]) for run in bad)
    controlled = f"{caught} of {len(bad)} known-bad locks were caught"
    if not bad:
        controlled = "no known-bad lock was run"
    if report["passed"]:
        others = {run["library"] for run in ours} - {OURS}
        if others:  # of the locks of others, all is reported and nothing judged
            return f"Done: {', '.join(others)} promises nothing, see what happened; {controlled}."
        return f"Passed: every promise was kept; {controlled}."
    failed = [run for run in ours if run["passed"] is False]
    unmade = sum(bool(run.get("error")) for run in failed)
    idle = [run for run in ours if run["passed"] is None]
    missed = sum(bool(run["figures"].get("missed")) for run in idle)
    undone = len(idle) - missed
    parts = [f"{_counted(len(failed) - unmade)} of {len(ours)} broke a promise"]
    parts += [f"{_counted(unmade)} could not be made"] if unmade else []
    parts += [f"in {_counted(undone)} no fault could be done"] if undone else []
    parts += [f"in {_counted(missed)} no fault hit anything"] if missed else []
    return f"FAILED: {'; '.join([*parts, controlled])}."


def _counted(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


def _place(setup: Setup) -> str:
    where = setup.store if setup.library == OURS else f"{setup.library} on {setup.store}"
    return f"{where}  {setup.fault}"


def _place_of(run: Mapping[str, Any]) -> str:
    where = run["store"] if run["library"] == OURS else f"{run['library']} on {run['store']}"
    return f"{where}  {run['fault']}"


def complaints(run: Mapping[str, Any]) -> Iterator[str]:
    """Yields what was wrong with a run, in words."""
    if run["passed"]:
        return
    if run.get("error"):
        yield run["error"]
    if run.get("not_judged"):
        yield f"not judged: {run['not_judged']}"
    if run["control"]:
        if run["stopped"]:
            return
        yield f"a lock that is known to be bad was not caught: {run['control']} was kept"
        return
    for verdict in run["verdicts"]:
        if verdict["demand"] == "must hold" and not verdict["held"]:
            yield f"{verdict['rule']}: {verdict['text']}"
            if verdict["claim"]:
                yield f"    the store claims: {verdict['claim']}"
