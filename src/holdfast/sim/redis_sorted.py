"""Commands of a simulated Redis on sorted sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .redis_data import Data, span


class ZSet(dict[bytes, float]):
    def copy(self) -> ZSet:
        return ZSet(self)


def _score(number: float) -> bytes:
    return b"%d" % number if number == int(number) else repr(number).encode()


def zadd(data: Data, key: bytes, *pairs: bytes) -> int:
    members = data.make(key, ZSet)
    before = len(members)
    for score, member in zip(pairs[::2], pairs[1::2], strict=True):
        members[member] = float(score)
    return len(members) - before


def zrem(data: Data, key: bytes, *names: bytes) -> int:
    members = data.find(key, ZSet)
    if members is None:
        return 0
    gone = sum(members.pop(name, None) is not None for name in names)
    data.tidy(key, members)
    return gone


def zscore(data: Data, key: bytes, member: bytes) -> Any:
    score = (data.find(key, ZSet) or {}).get(member)
    return None if score is None else _score(score)


def zcard(data: Data, key: bytes) -> int:
    return len(data.find(key, ZSet) or {})


def _ordered(data: Data, key: bytes) -> list[tuple[float, bytes]]:
    return sorted((score, member) for member, score in (data.find(key, ZSet) or {}).items())


def _shown(rows: list[tuple[float, bytes]], options: tuple[bytes, ...]) -> list[bytes]:
    if any(option.upper() == b"WITHSCORES" for option in options):
        return [part for score, member in rows for part in (member, _score(score))]
    return [member for _, member in rows]


def zrange(data: Data, key: bytes, start: bytes, stop: bytes, *options: bytes) -> list[bytes]:
    rows = _ordered(data, key)
    return _shown(rows[span(start, stop, len(rows))], options)


def zrevrange(data: Data, key: bytes, start: bytes, stop: bytes, *options: bytes) -> list[bytes]:
    rows = _ordered(data, key)[::-1]
    return _shown(rows[span(start, stop, len(rows))], options)


def zrangebyscore(data: Data, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[bytes]:
    def bound(text: bytes) -> tuple[float, bool]:
        return (float(text[1:]), True) if text.startswith(b"(") else (float(text), False)

    (least, over), (most, under) = bound(low), bound(high)
    rows = [
        (score, member)
        for score, member in _ordered(data, key)
        if (score > least if over else score >= least)
        and (score < most if under else score <= most)
    ]
    return _shown(rows, options)


COMMANDS: dict[bytes, Callable[..., Any]] = {
    b"ZADD": zadd,
    b"ZREM": zrem,
    b"ZSCORE": zscore,
    b"ZCARD": zcard,
    b"ZRANGE": zrange,
    b"ZREVRANGE": zrevrange,
    b"ZRANGEBYSCORE": zrangebyscore,
}
