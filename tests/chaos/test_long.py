"""A long campaign: it ends when there were enough grants, and goes on where it was ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.chaos import long, table
from holdfast.chaos.setup import Setup
from holdfast.chaos.verdicts import RULES

SETUPS = [
    Setup("sqlite", "pause", 5),
    Setup("redis", "pause", 5),
    Setup("redis", "pause", 5, library="plain", control="exclusion"),
]


def made(setup: Setup, **figures: Any) -> dict[str, Any]:
    """Returns a run as a conductor would."""
    names = ["faults", "writes", "stale_tried", "stale_refused", "stale_accepted", "slept", "told"]
    names += ["stale_accepted_unfenced", "overlaps", "disorder", "told_late", "ghosts"]
    zeros: dict[str, Any] = dict.fromkeys([*names, "overlap_seconds", "slept_seconds"], 0)
    known = {**zeros, "grants": 100, "told_before": None, "recovery_seconds": 0.5, **figures}
    verdict = {"demand": "must hold", "claim": "", "count": 0, "seconds": 0.0, "text": ""}
    return {
        "id": setup.id,
        "library": setup.library,
        "store": setup.store,
        "fault": setup.fault,
        "control": setup.control or None,
        "seed": setup.seed,
        "duration": setup.duration,
        "workers": setup.workers,
        "stopped": False,
        "events": [{"at": 1.0}],
        "verdicts": [{"rule": rule, "held": True, **verdict} for rule in RULES],
        "figures": known,
        "passed": True,
    }


class Recorded:
    """A campaign that makes no runs, and knows which it was asked for."""

    asked: list[tuple[str, int]] = []  # noqa: RUF012

    def __init__(self, setups: Sequence[Setup], tell: object, jobs: int) -> None:
        self._setups = setups

    def run(self) -> Iterator[dict[str, Any]]:
        for setup in self._setups:
            self.asked.append((setup.id, setup.seed))
            yield made(setup)


def tell(*_: object) -> None:
    pass


def test_it_goes_on_with_other_seeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(long, "Campaign", Recorded)
    monkeypatch.setattr(Recorded, "asked", [])
    runs = list(long.LongCampaign(SETUPS, tell, 450, tmp_path / "state").run())
    ids = ["sqlite-pause", "redis-pause"]
    assert Recorded.asked == [
        *[(id, 5) for id in ids],
        ("control-plain-redis-pause", 5),
        *[(id, 6) for id in ids],
    ]
    assert len(runs) == 5
    # Next time it goes on there.
    Recorded.asked.clear()
    runs = list(long.LongCampaign(SETUPS, tell, 600, tmp_path / "state").run())
    assert Recorded.asked == [(id, 7) for id in ids]
    assert len(runs) == 7
    # What happened in the runs that passed would fill the memory.
    assert [run["events"] for run in runs] == [[]] * 7


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"\xff", b'{"id": "sqlite-pause"'])
def test_a_damaged_run_is_made_again(
    text: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(long, "Campaign", Recorded)
    monkeypatch.setattr(Recorded, "asked", [])
    (tmp_path / "5-sqlite-pause.json").write_bytes(text)
    for _ in range(2):
        runs = list(long.LongCampaign(SETUPS[:1], tell, 100, tmp_path).run())
        assert [run["figures"]["grants"] for run in runs] == [100]
    assert Recorded.asked == [("sqlite-pause", 5)]


@pytest.mark.parametrize("other", [{"duration": 60.0}, {"workers": 6}])
def test_a_run_of_other_options_is_made_again(
    other: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(long, "Campaign", Recorded)
    monkeypatch.setattr(Recorded, "asked", [])
    for setup in (SETUPS[0], SETUPS[0]._replace(**other)):
        (run,) = long.LongCampaign([setup], tell, 100, tmp_path).run()
        assert (run["duration"], run["workers"]) == (setup.duration, setup.workers)
    assert Recorded.asked == [("sqlite-pause", 5)] * 2


def test_runs_of_one_kind_are_shown_as_one() -> None:
    ours = SETUPS[0]
    good = made(ours, told_before=0.4, recovery_seconds=1.5, stale_tried=2)
    bad = made(ours, told_before=0.2, stale_tried=3)
    bad["passed"] = bad["verdicts"][0]["held"] = False
    other = made(SETUPS[1])
    one, alone = long.merged([good, other, bad])
    assert alone == other
    assert one["figures"]["grants"] == 200
    assert one["figures"]["stale_tried"] == 5
    assert (one["figures"]["told_before"], one["figures"]["recovery_seconds"]) == (0.2, 1.5)
    assert not one["passed"]
    assert table.row(one)[-1].text == "BROKEN: exclusion"


@pytest.mark.parametrize(
    ("results", "passed"), [((True, None), True), ((None, False), False), ((None, None), None)]
)
def test_a_kind_of_run_is_judged_if_one_of_them_was(
    results: tuple[bool | None, ...], passed: bool | None
) -> None:
    runs = [{**made(SETUPS[0]), "passed": result} for result in results]
    (one,) = long.merged(runs)
    assert one["passed"] is passed


def test_the_tables() -> None:
    broken = made(SETUPS[1])
    broken["verdicts"][0]["held"] = broken["passed"] = False
    lines = list(table.matrix([made(SETUPS[0], stale_tried=2), broken]))
    assert lines == [
        "| | sqlite | redis |",
        "|---|:-:|:-:|",
        "| process pause | ✓, 2 refused | **BROKEN: exclusion** |",
    ]
    assert len(list(table.markdown([broken]))) == 3 + 1 + 3
