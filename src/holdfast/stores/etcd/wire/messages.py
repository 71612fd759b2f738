"""The requests that we make of etcd, and its replies. Numbers of fields are those of its rpc.proto."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ....entries import HIGHEST_CHANGE
from .codec import as_bytes, as_number, data, fields, number

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
    """Returns the first key behind all that start with `prefix`, which ends in a byte below 255."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


# Parts of a transaction.

_CREATE, _MOD = number(2, 1), number(2, 2)


def absent(key: bytes, end: bytes = b"") -> bytes:
    """Returns a condition: there is no such key, or none from `key` up to `end`."""
    return data(1, _CREATE + data(3, key) + (data(64, end) if end else b""))


def created_at(key: bytes, revision: int) -> bytes:
    """Returns a condition: the key is the one that `revision` created."""
    return data(1, _CREATE + data(3, key) + number(5, revision))


def changed_at(key: bytes, revision: int) -> bytes:
    """Returns a condition: the key is as `revision` left it."""
    return data(1, _MOD + data(3, key) + number(6, revision))


STAY = number(6, 1)
"""The part of a put that leaves a key on the lease that it is on."""


def on_lease(lease: int) -> bytes:
    """Returns the part of a put that puts the key on a lease."""
    return number(3, lease)


def put(key: bytes, value: bytes, on: bytes = STAY) -> bytes:
    """Returns a write of one key, on the lease that `on` says."""
    return data(2, data(1, key) + data(2, value) + on)


def put_for_ever(key: bytes, value: bytes) -> bytes:
    """Returns a write of one key, on no lease."""
    return data(2, data(1, key) + data(2, value))


def delete(key: bytes, *, tell: bool = False) -> bytes:
    """Returns the deletion of a key; with `tell`, the reply says what it was."""
    return data(3, data(1, key) + (number(3, 1) if tell else b""))


def read(key: bytes, end: bytes = b"", limit: int = 0, *, stale: bool = False) -> bytes:
    """Returns a read of one key, or of those up to `end`, for a transaction."""
    return data(1, range_of(key, end, limit, stale=stale))


def read_latest(key: bytes, end: bytes) -> bytes:
    """Returns a read of the key up to `end` that was created last, for a transaction."""
    return data(1, data(1, key) + data(2, end) + number(3, 1) + _LATEST_FIRST)


def read_newer(key: bytes, end: bytes, revision: int) -> bytes:
    """Returns a read of those keys up to `end` that were created after `revision`, in that order."""
    first = min(revision + 1, HIGHEST_CHANGE)
    return data(1, data(1, key) + data(2, end) + _IN_ORDER + number(12, first))


def then(*operations: bytes) -> bytes:
    """Returns the part of a transaction that is carried out if its conditions hold."""
    return b"".join(data(2, operation) for operation in operations)


def otherwise(*operations: bytes) -> bytes:
    """Returns the part of a transaction that is carried out if they do not."""
    return b"".join(data(3, operation) for operation in operations)


def nested(*parts: bytes) -> bytes:
    """Returns a transaction as an operation of another."""
    return data(4, b"".join(parts))


# Other requests.

_IN_ORDER = number(5, 1) + number(6, 2)
"""The order of a read: ascending, by the revision that created the key."""
_LATEST_FIRST = number(5, 2) + number(6, 2)


def range_of(key: bytes, end: bytes = b"", limit: int = 0, *, stale: bool = False) -> bytes:
    """Returns a read of one key, or of all up to `end` in the order of their creation.

    `stale`: one member says what it knows, and asks no other.
    """
    if not end:
        return data(1, key) + number(7, stale)
    return data(1, key) + data(2, end) + number(3, limit) + _IN_ORDER + number(7, stale)


def delete_one(key: bytes) -> bytes:
    """Returns the deletion of a key, outside of a transaction."""
    return data(1, key)


def lease_grant(lease: int, ttl: int) -> bytes:
    """Returns the request for a new lease."""
    return number(1, ttl) + number(2, lease)


def lease_id(lease: int) -> bytes:
    """Returns the request to revoke a lease, to keep it alive or to say how long it lives."""
    return number(1, lease)


def authenticate(user: str, password: str) -> bytes:
    """Returns the request for a token."""
    return data(1, user.encode()) + data(2, password.encode())


def watch(watch_id: int, key: bytes, end: bytes, start: int, *, deletions_only: bool) -> bytes:
    """Returns the request to watch one key, or all up to `end`, from the revision `start` on."""
    what = data(1, key) + (data(2, end) if end else b"") + number(3, start)
    if deletions_only:
        what += data(5, b"\0")
    return data(1, what + number(7, watch_id))


def unwatch(watch_id: int) -> bytes:
    """Returns the request to end a watch."""
    return data(2, number(1, watch_id))


# Replies.


class KeyValue(NamedTuple):
    """A key as the store has it; `created` and `changed` are revisions."""

    key: bytes
    value: bytes
    created: int
    changed: int
    lease: int


class Transaction(NamedTuple):
    """The reply to a transaction. `results`: for each operation that was carried out, its keys (read,
    or as they were before they were deleted) or the reply to a nested transaction."""

    revision: int
    succeeded: bool
    results: tuple[Result, ...]


Result = list[KeyValue] | Transaction


class Range(NamedTuple):
    """The reply to a read."""

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
        as_bytes(get(1, b"")),
        as_bytes(get(5, b"")),
        as_number(get(2, 0)),
        as_number(get(3, 0)),
        as_number(get(6, 0)),
    )


def _revision(header: bytes) -> int:
    return as_number(dict(fields(header)).get(3, 0))


def _term(header: bytes) -> int:
    return as_number(dict(fields(header)).get(4, 0))


def parse_range(message: bytes) -> Range:
    """Returns the reply to a read."""
    revision = 0
    keys: list[KeyValue] = []
    for field, value in fields(message):
        if field == 2:
            keys.append(_key_value(as_bytes(value)))
        elif field == 1:
            revision = _revision(as_bytes(value))
    return Range(revision, keys)


def parse_txn(message: bytes) -> Transaction:
    """Returns the reply to a transaction."""
    revision = 0
    succeeded = False
    results: list[Result] = []
    for field, value in fields(message):
        if field == 1:
            revision = _revision(as_bytes(value))
        elif field == 2:
            succeeded = bool(value)
        elif field == 3:
            results.append(_result(as_bytes(value)))
    return Transaction(revision, succeeded, tuple(results))


def _result(message: bytes) -> Result:
    for field, value in fields(message):
        inner = as_bytes(value)
        if field == 4:
            return parse_txn(inner)
        if field in (1, 3):  # the keys of a range stand in field 2, deleted ones in 3
            which = 2 if field == 1 else 3
            return [_key_value(as_bytes(v)) for f, v in fields(inner) if f == which]
    return []


def parse_deleted(message: bytes) -> int:
    """Returns the number of keys that were deleted."""
    for field, value in fields(message):
        if field == 2:
            return as_number(value)
    return 0


def parse_lease(message: bytes) -> tuple[int, int]:
    """Returns a lease's id and its TTL, which is 0 or less if there is no such lease."""
    parts: dict[int, int | bytes] = dict(fields(message))
    return as_number(parts.get(2, 0)), as_number(parts.get(3, 0))


def parse_term(message: bytes) -> int:
    """Returns the term in which a reply was given: the last that the member knew to be agreed on."""
    for field, value in fields(message):
        if field == 1:
            return _term(as_bytes(value))
    return 0


def parse_token(message: bytes) -> str:
    """Returns the token that a user was given."""
    parts: dict[int, int | bytes] = dict(fields(message))
    return as_bytes(parts.get(2, b"")).decode(errors="replace")


def parse_watched(message: bytes) -> Watched:
    """Returns what a watch stream says."""
    parts: dict[int, int | bytes] = {}
    events: list[Event] = []
    for field, value in fields(message):
        if field == 11:
            events.append(_event(as_bytes(value)))
        else:
            parts[field] = value
    get = parts.get
    return Watched(
        as_number(get(2, 0)),
        _revision(as_bytes(get(1, b""))),
        bool(get(3)),
        bool(get(4)),
        as_number(get(5, 0)),
        as_bytes(get(6, b"")).decode(errors="replace"),
        events,
    )


def _event(message: bytes) -> Event:
    parts: dict[int, int | bytes] = dict(fields(message))
    return Event(bool(parts.get(1, 0)), _key_value(as_bytes(parts.get(2, b""))))


def held_keys(results: Iterable[Result]) -> list[KeyValue]:
    """Returns all keys in the results of a transaction, nested ones too."""
    keys: list[KeyValue] = []
    for result in results:
        keys.extend(held_keys(result.results) if isinstance(result, Transaction) else result)
    return keys


class TimeToLive(NamedTuple):
    """The seconds that a lease has left, and those that it was granted."""

    remaining: int
    granted: int


def parse_time_to_live(message: bytes) -> TimeToLive:
    """Returns how long a lease lives."""
    parts: dict[int, int | bytes] = dict(fields(message))
    return TimeToLive(as_number(parts.get(3, 0)), as_number(parts.get(4, 0)))
