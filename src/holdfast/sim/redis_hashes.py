"""Commands of a simulated Redis on hashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .redis_data import Data, integer


def hget(data: Data, key: bytes, field: bytes) -> Any:
    return (data.find(key, dict) or {}).get(field)


def hmget(data: Data, key: bytes, *names: bytes) -> list[Any]:
    fields = data.find(key, dict) or {}
    return [fields.get(name) for name in names]


def hset(data: Data, key: bytes, *pairs: bytes) -> int:
    fields = data.make(key, dict)
    before = len(fields)
    fields.update(zip(pairs[::2], pairs[1::2], strict=True))
    return len(fields) - before


def hdel(data: Data, key: bytes, *names: bytes) -> int:
    fields = data.find(key, dict)
    if fields is None:
        return 0
    gone = sum(fields.pop(name, None) is not None for name in names)
    data.tidy(key, fields)
    return gone


def hincrby(data: Data, key: bytes, field: bytes, by: bytes) -> int:
    fields = data.make(key, dict)
    value = integer(fields.get(field, b"0")) + integer(by)
    fields[field] = b"%d" % value
    return value


def hexists(data: Data, key: bytes, field: bytes) -> int:
    return int(field in (data.find(key, dict) or {}))


def hlen(data: Data, key: bytes) -> int:
    return len(data.find(key, dict) or {})


def hgetall(data: Data, key: bytes) -> list[bytes]:
    return [part for pair in (data.find(key, dict) or {}).items() for part in pair]


def hvals(data: Data, key: bytes) -> list[bytes]:
    return list((data.find(key, dict) or {}).values())


COMMANDS: dict[bytes, Callable[..., Any]] = {
    b"HGET": hget,
    b"HMGET": hmget,
    b"HSET": hset,
    b"HDEL": hdel,
    b"HINCRBY": hincrby,
    b"HEXISTS": hexists,
    b"HLEN": hlen,
    b"HGETALL": hgetall,
    b"HVALS": hvals,
}
