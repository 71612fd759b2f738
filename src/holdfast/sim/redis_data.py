"""The database of a simulated Redis: keys with plain Python values, and when they end.

The commands on them are in `redis_keys`, `redis_hashes`, `redis_lists` and `redis_sorted`, as far as
our scripts use them. A test takes random steps on these and on a real server, and compares each answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Refusal(Exception):
    """An error that the server answers."""


OK = True
"""The simple string of that name; we use no other. So Lua can tell it from a value."""
WRONG = "WRONGTYPE Operation against a key holding the wrong kind of value"

Value = Any


class Data:
    """One database: keys, their values, and when they end."""

    def __init__(self, millis: Callable[[], int]) -> None:
        self.values: dict[bytes, Value] = {}
        self.ends: dict[bytes, int] = {}
        self.now = 0
        """In ms. It stands still while a script runs."""
        self._millis = millis

    def tick(self) -> None:
        self.now = self._millis()

    def copy_from(self, other: Data) -> None:
        self.values = {k: v if isinstance(v, bytes) else v.copy() for k, v in other.values.items()}
        self.ends = dict(other.ends)

    def find(self, key: bytes, kind: type) -> Any:
        """Its value, or None; of that kind."""
        value = self.values.get(key)
        if value is None:
            return None
        end = self.ends.get(key)
        if end is not None and end <= self.now:
            self.drop(key)
            return None
        if type(value) is not kind:
            raise Refusal(WRONG)
        return value

    def has(self, key: bytes) -> bool:
        end = self.ends.get(key)
        if end is not None and end <= self.now:
            self.drop(key)
        return key in self.values

    def make(self, key: bytes, kind: type) -> Any:
        value = self.find(key, kind)
        if value is None:
            value = self.values[key] = kind()
        return value

    def drop(self, key: bytes) -> bool:
        self.ends.pop(key, None)
        return self.values.pop(key, None) is not None

    def tidy(self, key: bytes, value: Any) -> None:
        """A collection that is empty does not exist."""
        if not value:
            self.drop(key)


def integer(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refusal("ERR value is not an integer or out of range") from None


def span(start: bytes, stop: bytes, length: int) -> slice:
    """What two indices stand for, which may count from the end."""
    first, last = integer(start), integer(stop)
    first = max(0, first + length) if first < 0 else first
    last = last + length if last < 0 else last
    return slice(first, max(first, last + 1))
