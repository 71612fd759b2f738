"""Locks as `inspect` and `list` show them, out of the rows of the procedure `list`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from ...model import Label, LockState, Participant, slot_of
from .connections import Row

SECOND = 1_000_000
"""The databases count in µs."""


class _Listed(NamedTuple):
    """A row of the procedure `list`: a holder or a waiter, and its lock."""

    name: str
    last_token: int
    owner: str
    place: int
    token: int
    left: int
    weight: int
    capacity: int
    kind: str
    since: int
    host: str
    pid: int
    text: str
    ttl: int


def states_of(rows: Iterable[Row]) -> list[LockState]:
    """Returns the locks that `rows`, sorted by lock, describe."""
    listed = [_Listed(*row) for row in rows]
    return [_state(list(group)) for _, group in groupby(listed, key=lambda row: row.name)]


def _state(rows: list[_Listed]) -> LockState:
    lock = rows[0]
    holders = tuple(_participant(row) for row in rows if not row.place)
    waiters = tuple(_participant(row) for row in rows if row.place)
    token = max((holder.token for holder in holders), default=lock.last_token)
    return LockState(lock.name, holders, waiters, token, lock.kind, lock.capacity)


def _participant(row: _Listed) -> Participant:
    return Participant(
        row.owner,
        Label(row.host, row.pid, row.text),
        row.token,
        row.since / SECOND,
        row.left / SECOND,
        row.weight,
        slot_of(row.token, row.kind, row.capacity),
        row.ttl / SECOND,
    )
