"""The commands of a simulated Redis, as far as our scripts use them, on plain Python values.

A test takes random steps on these and on a real server, and compares every answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Status(bytes):
    """A simple string, such as OK."""


class Refusal(Exception):
    """An error that the server answers."""


OK = Status(b"OK")
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


class ZSet(dict[bytes, float]):
    def copy(self) -> ZSet:
        return ZSet(self)


def integer(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refusal("ERR value is not an integer or out of range") from None


# Keys and strings.


def get(data: Data, key: bytes) -> Any:
    return data.find(key, bytes)


def set_(data: Data, key: bytes, value: bytes, *options: bytes) -> Any:
    end = None
    if len(options) == 2 and options[0] == b"PX":  # by far the most common
        data.values[key] = value
        data.ends[key] = data.now + integer(options[1])
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
    found = [data.values[key] if data.has(key) else None for key in keys]
    return [value if type(value) is bytes else None for value in found]


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
    return sum(data.has(key) and data.drop(key) for key in keys)


def exists(data: Data, *keys: bytes) -> int:
    return sum(data.has(key) for key in keys)


def incrby(data: Data, key: bytes, by: bytes) -> int:
    value = integer(data.find(key, bytes) or b"0") + integer(by)
    data.values[key] = b"%d" % value
    return value


def pttl(data: Data, key: bytes) -> int:
    if not data.has(key):
        return -2
    end = data.ends.get(key)
    return -1 if end is None else end - data.now


def pexpire(data: Data, key: bytes, ms: bytes) -> int:
    return pexpireat(data, key, b"%d" % (data.now + int(float(ms))))


def pexpireat(data: Data, key: bytes, at: bytes) -> int:
    if not data.has(key):
        return 0
    data.ends[key] = int(float(at))
    if data.ends[key] <= data.now:
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


# Hashes.


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


# Lists.


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


def _span(start: bytes, stop: bytes, length: int) -> slice:
    first, last = integer(start), integer(stop)
    first = max(0, first + length) if first < 0 else first
    last = last + length if last < 0 else last
    return slice(first, max(first, last + 1))


def lrange(data: Data, key: bytes, start: bytes, stop: bytes) -> list[bytes]:
    line = data.find(key, list) or []
    return list(line[_span(start, stop, len(line))])


def ltrim(data: Data, key: bytes, start: bytes, stop: bytes) -> Any:
    line = data.find(key, list)
    if line is not None:
        line[:] = line[_span(start, stop, len(line))]
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


# Sorted sets.


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
    return _shown(rows[_span(start, stop, len(rows))], options)


def zrevrange(data: Data, key: bytes, start: bytes, stop: bytes, *options: bytes) -> list[bytes]:
    rows = _ordered(data, key)[::-1]
    return _shown(rows[_span(start, stop, len(rows))], options)


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
    b"GET": get,
    b"SET": set_,
    b"MGET": mget,
    b"GETDEL": getdel,
    b"SETRANGE": setrange,
    b"DEL": del_,
    b"EXISTS": exists,
    b"INCRBY": incrby,
    b"INCR": lambda data, key: incrby(data, key, b"1"),
    b"PTTL": pttl,
    b"PEXPIRE": pexpire,
    b"PEXPIREAT": pexpireat,
    b"SCAN": scan,
    b"HGET": hget,
    b"HMGET": hmget,
    b"HSET": hset,
    b"HDEL": hdel,
    b"HINCRBY": hincrby,
    b"HEXISTS": hexists,
    b"HLEN": hlen,
    b"HGETALL": hgetall,
    b"HVALS": hvals,
    b"RPUSH": rpush,
    b"LPUSH": lpush,
    b"LPOP": lpop,
    b"LINDEX": lindex,
    b"LLEN": llen,
    b"LRANGE": lrange,
    b"LTRIM": ltrim,
    b"LREM": lrem,
    b"LPOS": lpos,
    b"ZADD": zadd,
    b"ZREM": zrem,
    b"ZSCORE": zscore,
    b"ZCARD": zcard,
    b"ZRANGE": zrange,
    b"ZREVRANGE": zrevrange,
    b"ZRANGEBYSCORE": zrangebyscore,
}
