"""Commands of a simulated Redis on keys, and on those that are strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .redis_data import OK, Data, Refusal, integer


def get(data: Data, key: bytes) -> Any:
    value = data.values.get(key)
    if value is None or (type(value) is bytes and key not in data.ends):
        return value  # no TTL to look at: by far the most common
    return data.find(key, bytes)


def set_(data: Data, key: bytes, value: bytes, *options: bytes) -> Any:
    end = None
    if not options:
        data.values[key] = value
        data.ends.pop(key, None)
        return OK
    if len(options) == 2 and options[0] == b"PX":  # by far the most common
        data.ends[key] = data.now + integer(options[1])
        data.values[key] = value
        return OK
    keep = only_new = only_old = give_old = False
    words = iter(options)
    for word in words:
        match word.upper():
            case b"PX":
                end = data.now + integer(next(words))
            case b"EX":
                end = data.now + integer(next(words)) * 1000
            case b"NX":
                only_new = True
            case b"XX":
                only_old = True
            case b"GET":
                give_old = True
            case b"KEEPTTL":
                keep = True
            case _:
                raise Refusal("ERR syntax error")
    old = data.find(key, bytes) if give_old else None
    exists = data.has(key)
    if (only_new and exists) or (only_old and not exists):
        return old if give_old else None
    if not keep:
        data.ends.pop(key, None)
    data.values[key] = value
    if end is not None:
        data.ends[key] = end
    return old if give_old else OK


def mget(data: Data, *keys: bytes) -> list[Any]:
    values, ends = data.values, data.ends
    found: list[Any] = []
    for key in keys:
        value = values.get(key)
        if (key in ends and not data.has(key)) or type(value) is not bytes:
            value = None
        found.append(value)
    return found


def getdel(data: Data, key: bytes) -> Any:
    value = data.find(key, bytes)
    if value is not None:
        data.drop(key)
    return value


def setrange(data: Data, key: bytes, offset: bytes, text: bytes) -> int:
    value = data.find(key, bytes) or b""
    start = integer(offset)
    if text:
        value = value.ljust(start, b"\0")
        value = data.values[key] = value[:start] + text + value[start + len(text) :]
    return len(value)


def del_(data: Data, *keys: bytes) -> int:
    gone = 0
    for key in keys:
        if data.has(key):
            data.drop(key)
            gone += 1
    return gone


def exists(data: Data, *keys: bytes) -> int:
    return sum(data.has(key) for key in keys)


def incrby(data: Data, key: bytes, by: bytes) -> int:
    value = integer(data.find(key, bytes) or b"0") + integer(by)
    data.values[key] = b"%d" % value
    return value


def incr(data: Data, key: bytes) -> int:
    return incrby(data, key, b"1")


def pttl(data: Data, key: bytes) -> int:
    end = data.ends.get(key)
    if end is not None and end > data.now:
        return end - data.now
    return -1 if data.has(key) else -2


def pexpire(data: Data, key: bytes, ms: bytes) -> int:
    return _expire(data, key, data.now + int(float(ms)))


def pexpireat(data: Data, key: bytes, at: bytes) -> int:
    return _expire(data, key, int(float(at)))


def _expire(data: Data, key: bytes, end: int) -> int:
    if not data.has(key):
        return 0
    data.ends[key] = end
    if end <= data.now:
        data.drop(key)
    return 1


def scan(data: Data, cursor: bytes, *options: bytes) -> Any:
    from fnmatch import fnmatchcase

    pattern = b"*"
    words = iter(options)
    for word in words:
        if word.upper() == b"MATCH":
            pattern = next(words)
        else:
            next(words)
    text = pattern.decode("latin-1")
    while "\\" in text:  # the only escapes that we send are single characters
        i = text.index("\\")
        text = text[:i] + "[" + text[i + 1] + "]" + text[i + 2 :]
    keys = [key for key in list(data.values) if data.has(key)]
    return [b"0", [key for key in keys if fnmatchcase(key.decode("latin-1"), text)]]


COMMANDS: dict[bytes, Callable[..., Any]] = {
    b"GET": get,
    b"SET": set_,
    b"MGET": mget,
    b"GETDEL": getdel,
    b"SETRANGE": setrange,
    b"DEL": del_,
    b"EXISTS": exists,
    b"INCRBY": incrby,
    b"INCR": incr,
    b"PTTL": pttl,
    b"PEXPIRE": pexpire,
    b"PEXPIREAT": pexpireat,
    b"SCAN": scan,
}
