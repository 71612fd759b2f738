"""Cron expressions: when a job is due next. Values only; no clock is asked here."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from .errors import ConfigError

_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    ("day of the week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_YEARS = 9
"""Years within which a day that exists at all comes: from one 29 February to the next, over 2100."""


class Cron:
    """The times of a cron expression with five fields, or a nickname such as `@daily`.

    As in cron, a job with both a day of the month and a day of the week is due on either. A time that
    the clock skips in spring is due at the end of the gap; one that it shows twice in autumn, once.
    """

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self.expression = expression
        text = _NICKNAMES.get(expression.strip().lower(), expression)
        fields = text.split()
        if len(fields) != 5:
            raise ConfigError(
                f"the cron expression {expression!r} must have five fields (minute, hour, day of the "
                "month, month, day of the week), or be one of " + ", ".join(_NICKNAMES)
            )
        values = [self._values(*one) for one in zip(fields, _FIELDS, strict=True)]
        self._minutes, self._hours = sorted(values[0]), sorted(values[1])
        _, _, self._days, self._months, weekdays = values
        self._weekdays = {day % 7 for day in weekdays}  # 7 is Sunday, too
        self._any_day, self._any_weekday = (fields[2].startswith("*"), fields[4].startswith("*"))
        self._zone = _zone(timezone)
        self.after(0.0)  # raises if there is no such day

    def _values(self, text: str, field: tuple[str, int, int, dict[str, int]]) -> set[int]:
        what, lowest, highest, names = field
        values: set[int] = set()
        for part in text.lower().split(","):
            span, slash, step_text = part.partition("/")
            low_text, dash, high_text = span.partition("-")
            try:
                step = int(step_text) if slash else 1
                if span == "*":
                    low, high = lowest, highest
                else:
                    low = names[low_text] if low_text in names else int(low_text)
                    high = low
                    if dash:
                        high = names[high_text] if high_text in names else int(high_text)
                    elif slash:
                        high = highest
                if not (lowest <= low <= high <= highest and step >= 1):
                    raise ValueError
            except ValueError:
                raise ConfigError(
                    f"{part!r} is no {what} of a cron expression ({lowest} to {highest}), in "
                    f"{self.expression!r}"
                ) from None
            values.update(range(low, high + 1, step))
        return values

    def after(self, moment: float) -> float:
        """Returns the first time after `moment` at which it is due; both in seconds since the epoch."""
        start = datetime.fromtimestamp(moment, self._zone)
        day = start.date()
        last = date(min(start.year + _YEARS, date.max.year), 12, 31)
        # Two hours more than a clock is ever put back.
        first_hour = start.hour - 5
        while day <= last:
            if self._is_day(day):
                for hour in self._hours:
                    if hour < first_hour:
                        continue
                    for minute in self._minutes:
                        due = self._epoch(day, hour, minute)
                        if due > moment:
                            return due
            day = self._next_day(day)
            first_hour = 0
        raise ConfigError(f"the cron expression {self.expression!r} is never due: no such day")

    def _is_day(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        in_month, in_week = day.day in self._days, (day.weekday() + 1) % 7 in self._weekdays
        if self._any_day or self._any_weekday:
            return in_month and in_week
        return in_month or in_week

    def _next_day(self, day: date) -> date:
        if day.month not in self._months:
            return date(day.year, day.month, monthrange(day.year, day.month)[1]) + timedelta(days=1)
        return day + timedelta(days=1)

    def _epoch(self, day: date, hour: int, minute: int) -> float:
        local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self._zone)
        back = local.astimezone(UTC).astimezone(self._zone)
        if back.replace(tzinfo=None) == local.replace(tzinfo=None):
            return local.timestamp()
        return _end_of_gap(local).timestamp()


def _end_of_gap(local: datetime) -> datetime:
    """Returns the first time after one that the clock skips."""
    minute = local.replace(second=0)
    for _ in range(24 * 60):
        minute += timedelta(minutes=1)
        if minute.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) == minute.replace(
            tzinfo=None
        ):
            return minute
    return local  # no clock skips a day


def _zone(name: object) -> tzinfo:
    if not isinstance(name, str):
        raise ConfigError(f"timezone must be a str, such as Europe/Berlin, not {name!r:.40}")
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(
            f"there is no timezone {name!r} on this machine; write it as in Europe/Berlin"
        ) from None
