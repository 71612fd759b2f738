"""One cron job of many machines: it is done once, also when its worker dies or stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recipes.players import TTL, Cast, cast, free


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Cast]:
    with cast(tmp_path, "cron_job") as made:
        yield made


def test_one_of_many_does_it(jobs: Cast) -> None:
    machines = [jobs.player() for _ in range(4)]
    said = [line for machine in machines for line in machine.succeeded()]
    assert sorted(said) == ["made the report", *["nothing to do"] * 3]


def test_the_next_one_makes_up_for_one_that_was_killed(jobs: Cast) -> None:
    first = jobs.player(stop_at="make_report")
    first.stopped()
    assert jobs.player().succeeded() == ["nothing to do"]
    first.kill()
    assert jobs.player().succeeded() == ["made the report"]
    assert jobs.player().succeeded() == ["nothing to do"]


def test_one_that_was_paused_does_not_write_over_the_report_of_the_next(jobs: Cast) -> None:
    first = jobs.player("--ttl", str(TTL), stop_at="make_report")
    first.stopped()
    first.freeze()
    free(jobs.url, "nightly-report")
    second = jobs.player()
    assert second.succeeded() == ["made the report"]
    report = (jobs.folder / "report.txt").read_text()
    assert f"process {second.pid}" in report
    first.thaw()
    first.go()
    status, _ = first.ended()
    assert status == 1
    assert "another machine made up for us" in first.complaints()
    assert (jobs.folder / "report.txt").read_text() == report
    assert jobs.player().succeeded() == ["nothing to do"]
