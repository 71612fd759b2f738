"""Commands of a simulated Redis on lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .redis_data import OK, Data, integer, span


def rpush(data: Data, key: bytes, *items: bytes) -> int:
    line = data.make(key, list)
    line.extend(items)
    return len(line)


def lpush(data: Data, key: bytes, *items: bytes) -> int:
    line = data.make(key, list)
    line[:0] = items[::-1]
    return len(line)


def lpop(data: Data, key: bytes) -> Any:
    line = data.find(key, list)
    if line is None:
        return None
    item = line.pop(0)
    data.tidy(key, line)
    return item


def lindex(data: Data, key: bytes, index: bytes) -> Any:
    line = data.find(key, list) or []
    i = integer(index)
    return line[i] if -len(line) <= i < len(line) else None


def llen(data: Data, key: bytes) -> int:
    return len(data.find(key, list) or [])


def lrange(data: Data, key: bytes, start: bytes, stop: bytes) -> list[bytes]:
    line = data.find(key, list) or []
    return list(line[span(start, stop, len(line))])


def ltrim(data: Data, key: bytes, start: bytes, stop: bytes) -> Any:
    line = data.find(key, list)
    if line is not None:
        line[:] = line[span(start, stop, len(line))]
        data.tidy(key, line)
    return OK


def lrem(data: Data, key: bytes, count: bytes, item: bytes) -> int:
    line = data.find(key, list)
    if line is None:
        return 0
    left = abs(integer(count)) or len(line)
    kept: list[bytes] = []
    gone = 0
    for one in reversed(line) if integer(count) < 0 else list(line):
        if one == item and gone < left:
            gone += 1
        else:
            kept.append(one)
    line[:] = kept[::-1] if integer(count) < 0 else kept
    data.tidy(key, line)
    return gone


def lpos(data: Data, key: bytes, item: bytes) -> Any:
    line = data.find(key, list) or []
    return line.index(item) if item in line else None


COMMANDS: dict[bytes, Callable[..., Any]] = {
    b"RPUSH": rpush,
    b"LPUSH": lpush,
    b"LPOP": lpop,
    b"LINDEX": lindex,
    b"LLEN": llen,
    b"LRANGE": lrange,
    b"LTRIM": ltrim,
    b"LREM": lrem,
    b"LPOS": lpos,
}
