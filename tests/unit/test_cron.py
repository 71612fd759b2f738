"""Cron expressions: when a job is due next."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from holdfast import ConfigError
from holdfast.cron import Cron


def after(expression: str, moment: str, timezone: str = "UTC") -> str:
    zone = UTC if timezone == "UTC" else ZoneInfo(timezone)
    start = datetime.fromisoformat(moment).replace(tzinfo=zone)
    due = Cron(expression, timezone).after(start.timestamp())
    return datetime.fromtimestamp(due, zone).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("expression", "moment", "due"),
    [
        ("* * * * *", "2026-03-01 12:00:30", "2026-03-01 12:01"),
        ("0 3 * * *", "2026-03-01 02:59:59", "2026-03-01 03:00"),
        ("0 3 * * *", "2026-03-01 03:00:00", "2026-03-02 03:00"),
        ("*/15 * * * *", "2026-03-01 03:16", "2026-03-01 03:30"),
        ("5/20 * * * *", "2026-03-01 03:26", "2026-03-01 03:45"),
        ("0 9-17/4 * * mon-fri", "2026-02-27 17:00", "2026-03-02 09:00"),
        ("0 0 * * 7", "2026-03-02 00:00", "2026-03-08 00:00"),
        ("0 0 13 * fri", "2026-03-01 00:00", "2026-03-06 00:00"),  # the 13th, and each Friday
        ("0 0 */2 * mon", "2026-03-01 00:00", "2026-03-09 00:00"),  # odd days that are Mondays
        ("0 0 29 feb *", "2026-03-01 00:00", "2028-02-29 00:00"),
        ("0 0 31 * *", "2026-04-01 00:00", "2026-05-31 00:00"),
        ("1,31 5 * JAN,dec *", "2026-02-01 00:00", "2026-12-01 05:01"),
        ("@daily", "2026-12-31 23:59:59", "2027-01-01 00:00"),
        ("@weekly", "2026-03-01 00:00", "2026-03-08 00:00"),
    ],
)
def test_the_next_time(expression: str, moment: str, due: str) -> None:
    assert after(expression, moment) == due


def test_clocks_that_are_put_forward_and_back() -> None:
    berlin = "Europe/Berlin"
    assert after("30 2 * * *", "2026-03-28 12:00", berlin) == "2026-03-29 03:00"  # skipped
    assert after("30 2 * * *", "2026-03-29 12:00", berlin) == "2026-03-30 02:30"
    assert after("30 2 * * *", "2026-10-24 12:00", berlin) == "2026-10-25 02:30"
    once = Cron("30 2 * * *", berlin)
    first = once.after(datetime(2026, 10, 24, 12, tzinfo=UTC).timestamp())
    assert once.after(first) - first == 25 * 3600.0  # shown twice, due once


@pytest.mark.parametrize(
    "expression",
    [
        *("", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *"),
        *("* * * * 8", "a * * * *", "5-1 * * * *", "*/0 * * * *", "0 0 30 feb *", "1-2-3 * * * *"),
        *("@sometimes", "1, * * * *", "- * * * *", "/5 * * * *"),
    ],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError):
        Cron(expression)


@pytest.mark.parametrize("timezone", ["Mars/Olympus", "", "../etc/passwd", 5])
def test_a_timezone_that_is_not_there_is_refused(timezone: object) -> None:
    with pytest.raises(ConfigError, match="timezone"):
        Cron("@daily", timezone)  # type: ignore[arg-type]
