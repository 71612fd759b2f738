"""The requests that we make of etcd, and its answers. Numbers of fields are those of its rpc.proto."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

from .codec import data, fields, number

# Methods.
TXN = "/etcdserverpb.KV/Txn"
RANGE = "/etcdserverpb.KV/Range"
DELETE = "/etcdserverpb.KV/DeleteRange"
LEASE_GRANT = "/etcdserverpb.Lease/LeaseGrant"
LEASE_REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
LEASE_KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
LEASE_TIME_TO_LIVE = "/etcdserverpb.Lease/LeaseTimeToLive"
WATCH = "/etcdserverpb.Watch/Watch"
AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"


def after(prefix: bytes) -> bytes:
    """The first key behind all that start with `prefix`, which ends in a byte below 255."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


# Parts of a transaction.

_CREATE, _MOD = number(2, 1), number(2, 2)


def absent(key: bytes, end: bytes = b"") -> bytes:
    """If: there is no such key, or none from `key` up to `end`."""
    return data(1, _CREATE + data(3, key) + (data(64, end) if end else b""))


def created_at(key: bytes, revision: int) -> bytes:
    """If: the key is the one that was created by that revision."""
    return data(1, _CREATE + data(3, key) + number(5, revision))


def changed_at(key: bytes, revision: int) -> bytes:
    """If: the key is as that revision left it."""
    return data(1, _MOD + data(3, key) + number(6, revision))


STAY = number(6, 1)


def on_lease(lease: int) -> bytes:
    return number(3, lease)


def put(key: bytes, value: bytes, on: bytes = STAY) -> bytes:
    """On the lease that `on_lease` says; else on the one that it is on already."""
    return data(2, data(1, key) + data(2, value) + on)


def put_for_ever(key: bytes, value: bytes) -> bytes:
    return data(2, data(1, key) + data(2, value))


def delete(key: bytes, *, tell: bool = False) -> bytes:
    """`tell`: answer with what it was."""
    return data(3, data(1, key) + (number(3, 1) if tell else b""))


def read(key: bytes, end: bytes = b"", limit: int = 0) -> bytes:
    return data(1, range_of(key, end, limit))


def then(*operations: bytes) -> bytes:
    return b"".join(data(2, operation) for operation in operations)


def otherwise(*operations: bytes) -> bytes:
    return b"".join(data(3, operation) for operation in operations)


def nested(*parts: bytes) -> bytes:
    """A transaction as an operation of another."""
    return data(4, b"".join(parts))


# Other requests.

_IN_ORDER = number(5, 1) + number(6, 2)
"""Ascending, by the revision that created the key."""


def range_of(key: bytes, end: bytes = b"", limit: int = 0, *, stale: bool = False) -> bytes:
    """One key, or all up to `end` in the order of their creation. `stale`: what one member knows."""
    if not end:
        return data(1, key) + number(7, stale)
    return data(1, key) + data(2, end) + number(3, limit) + _IN_ORDER + number(7, stale)


def delete_one(key: bytes) -> bytes:
    return data(1, key)


def lease_grant(lease: int, ttl: int) -> bytes:
    return number(1, ttl) + number(2, lease)


def lease_id(lease: int) -> bytes:
    """What revoking, keeping alive and asking for the time to live need."""
    return number(1, lease)


def authenticate(user: str, password: str) -> bytes:
    return data(1, user.encode()) + data(2, password.encode())


def watch(watch_id: int, key: bytes, end: bytes, start: int, *, deletions_only: bool) -> bytes:
    """From the revision `start` on."""
    what = data(1, key) + (data(2, end) if end else b"") + number(3, start)
    if deletions_only:
        what += data(5, b"\0")
    return data(1, what + number(7, watch_id))


def unwatch(watch_id: int) -> bytes:
    return data(2, number(1, watch_id))


# Answers.


class KeyValue(NamedTuple):
    key: bytes
    value: bytes
    created: int
    changed: int
    lease: int


class Transaction(NamedTuple):
    """The answer to a transaction. `results`: of each operation that was carried out, its keys (read,
    or as they were before they were deleted) or the answer of a nested transaction."""

    revision: int
    succeeded: bool
    results: tuple[Result, ...]


Result = list[KeyValue] | Transaction


class Range(NamedTuple):
    revision: int
    keys: list[KeyValue]


class Event(NamedTuple):
    """A change of a key that is watched; `key.value` is empty if it was deleted."""

    deleted: bool
    key: KeyValue


class Watched(NamedTuple):
    """One message on a watch stream."""

    watch_id: int
    revision: int
    created: bool
    cancelled: bool
    compacted: int
    reason: str
    events: list[Event]


def _key_value(message: bytes) -> KeyValue:
    parts: dict[int, int | bytes] = dict(fields(message))
    get = parts.get
    return KeyValue(
        cast(bytes, get(1, b"")),
        cast(bytes, get(5, b"")),
        cast(int, get(2, 0)),
        cast(int, get(3, 0)),
        cast(int, get(6, 0)),
    )


_HEADER, _YES = data(1, b"")[:1], number(2, 1)

_known = b"?"
"""How the header of the last answer began: the cluster and the member, which hardly ever change."""


def _revision(header: bytes) -> int:
    global _known
    known = _known
    if header.startswith(known):
        at, revision, shift = len(known), 0, 0
        while True:
            byte = header[at]
            revision |= (byte & 127) << shift
            if byte < 128:
                return revision
            at += 1
            shift += 7
    revision = 0
    for field, value in fields(header):
        if field == 3:
            revision = cast(int, value)
            break
    if revision > 0:
        part = number(3, revision)
        at = header.index(part)
        if at + len(part) == len(header) - len(number(4, _term(header))):
            _known = header[:at] + part[:1]
    return revision


def _term(header: bytes) -> int:
    return cast(int, dict(fields(header)).get(4, 0))


def parse_range(message: bytes) -> Range:
    revision = 0
    keys: list[KeyValue] = []
    for field, value in fields(message):
        if field == 2:
            keys.append(_key_value(cast(bytes, value)))
        elif field == 1:
            revision = _revision(cast(bytes, value))
    return Range(revision, keys)


def parse_txn(message: bytes, *, brief: bool = False) -> Transaction:
    """`brief`: of one that succeeded, the results do not matter."""
    if brief and said_yes(message):
        return Transaction(_revision(message[2 : message[1] + 2]), True, ())
    revision = 0
    succeeded = False
    results: list[Result] = []
    for field, value in fields(message):
        if field == 1:
            revision = _revision(cast(bytes, value))
        elif field == 2:
            succeeded = bool(value)
        elif field == 3:
            results.append(_result(cast(bytes, value)))
    return Transaction(revision, succeeded, tuple(results))


def said_yes(message: bytes) -> bool:
    """Whether 1 is what an answer says right behind its header: it succeeded, or one key was deleted.

    It can be seen at a glance, and is what mostly comes. False: it has to be read.
    """
    if message[:1] != _HEADER:
        return False
    size = message[1]
    return size < 128 and message[size + 2 : size + 4] == _YES


def _result(message: bytes) -> Result:
    for field, value in fields(message):
        inner = cast(bytes, value)
        if field == 4:
            return parse_txn(inner)
        if field in (1, 3):  # the keys of a range stand in field 2, deleted ones in 3
            which = 2 if field == 1 else 3
            return [_key_value(cast(bytes, v)) for f, v in fields(inner) if f == which]
    return []


def parse_deleted(message: bytes) -> int:
    """How many keys there were."""
    for field, value in fields(message):
        if field == 2:
            return cast(int, value)
    return 0


def parse_lease(message: bytes) -> tuple[int, int]:
    """Its id, and its TTL; that is 0 or less if there is no such lease."""
    parts: dict[int, int | bytes] = dict(fields(message))
    return cast(int, parts.get(2, 0)), cast(int, parts.get(3, 0))


def parse_term(message: bytes) -> int:
    """In whose reign it was answered: that of the last that the member knew to be agreed on."""
    for field, value in fields(message):
        if field == 1:
            return _term(cast(bytes, value))
    return 0


def parse_token(message: bytes) -> str:
    parts: dict[int, int | bytes] = dict(fields(message))
    return cast(bytes, parts.get(2, b"")).decode()


def parse_watched(message: bytes) -> Watched:
    parts: dict[int, int | bytes] = {}
    events: list[Event] = []
    for field, value in fields(message):
        if field == 11:
            events.append(_event(cast(bytes, value)))
        else:
            parts[field] = value
    get = parts.get
    return Watched(
        cast(int, get(2, 0)),
        _revision(cast(bytes, get(1, b""))),
        bool(get(3)),
        bool(get(4)),
        cast(int, get(5, 0)),
        cast(bytes, get(6, b"")).decode(errors="replace"),
        events,
    )


def _event(message: bytes) -> Event:
    parts: dict[int, int | bytes] = dict(fields(message))
    return Event(bool(parts.get(1, 0)), _key_value(cast(bytes, parts.get(2, b""))))


def held_keys(results: Iterable[Result]) -> list[KeyValue]:
    """All keys in the answers, nested ones too."""
    keys: list[KeyValue] = []
    for result in results:
        keys.extend(held_keys(result.results) if isinstance(result, Transaction) else result)
    return keys


class TimeToLive(NamedTuple):
    remaining: int
    granted: int


def parse_time_to_live(message: bytes) -> TimeToLive:
    parts: dict[int, int | bytes] = dict(fields(message))
    return TimeToLive(cast(int, parts.get(3, 0)), cast(int, parts.get(4, 0)))
