"""The state of a lock, from the replies of its nodes: the majority is the truth."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from ...model import Label, LockState, Participant
from ..redis.answers import FOREIGN
from .commands import LETTERS
from .shared_commands import READ_WRITE, READER, SEMAPHORE, SLOT, WRITER

_OURS = b"rl1"
_SHARED = b"rls1\x1f"
_KINDS = {letter: kind for kind, letter in LETTERS.items()}
_KINDS |= {SLOT: SEMAPHORE, READER: READ_WRITE, WRITER: READ_WRITE}


REMEMBERED = 128
"""Requests that are read once for all nodes: those of the locks in one command, and a few more."""


class Hold(NamedTuple):
    """A hold, as one node has noted it."""

    owner: bytes
    token: int
    left: int
    """Milliseconds until it ends."""
    since: bytes
    """The time at which it began: microseconds since the epoch."""
    request: Request | None
    """None if the key is another program's."""


class Request(NamedTuple):
    """The part of a hold, or of a waiter, that says who it is."""

    label: Label
    letter: str
    """The letter of its kind, or of its mode; empty: a plain lock."""
    version: int
    """The number of times that its text was changed."""
    ttl: float


class Reading(NamedTuple):
    """A lock, as it was read from its nodes."""

    state: LockState
    version: int
    """The number of times that the text of a holder was changed."""
    read_at: float
    """When, by the clock of one of the nodes: seconds since the epoch."""


def read_lock(
    name: str, replies: Sequence[Any], quorum: int, nodes: int, out: tuple[str, ...]
) -> Reading:
    """Returns the lock `name`, from the replies of nodes to inspect.lua."""
    held: dict[tuple[bytes, bytes], list[Hold]] = {}
    waiting: dict[bytes, Participant] = {}
    counters: list[int] = []
    kinds: list[tuple[str, int]] = []
    version, read_at = 0, 0
    for value, left, counter, waiters, holds, micros in replies:
        read_at = max(read_at, micros)
        counters.append(int(counter))
        if value is not None and value.startswith(_SHARED):
            kind, _, capacity = value[len(_SHARED) :].decode().partition("\x1f")
            kinds.append((kind, int(capacity)))
            for field, text, ms in zip(holds[::3], holds[1::3], holds[2::3], strict=True):
                hold = _hold(text, ms)
                if hold.request is not None:
                    held.setdefault((field, hold.owner), []).append(hold)
        elif value is not None:
            hold = _hold(value, left)
            held.setdefault((b"", hold.owner), []).append(hold)
        for owner, text, _ in zip(waiters[::3], waiters[1::3], waiters[2::3], strict=True):
            with suppress(ValueError):  # otherwise another program has written over the key
                since, _, rest = text.split(b"\x1f", 2)
                waiting[owner] = _participant(owner, 0, since, read_request(rest), 0.0)
    kind, capacity = max(kinds, key=kinds.count, default=("lock", 1))
    holders: list[Participant] = []
    for (field, owner), found in held.items():
        if len(found) >= quorum:
            # A majority has the grant's own token; a node that replied too late may have another.
            tokens = [one.token for one in found]
            token = max(tokens, key=lambda value: (tokens.count(value), value))
            left = sorted(one.left for one in found)[-quorum] / 1000
            requests = [one.request for one in found if one.request is not None]
            if not requests:
                holders.append(Participant("", FOREIGN, 0, 0.0, left))
                continue
            # The text may have been changed on the nodes that are enough for it.
            request = max(requests, key=lambda request: request.version)
            version = request.version
            # Users know the owner; its rounds have ids of their own, "owner~2".
            participant = _participant(
                owner.partition(b"~")[0], token, found[0].since, request, left
            )
            if field == WRITER.encode():
                participant = participant._replace(weight=capacity)
            elif field.isdigit():
                participant = participant._replace(slot=int(field))
            elif not field:
                kind = _KINDS.get(request.letter, "lock")
            holders.append(participant)
    # A past grant raised a majority to its token; so at least `rank` of the nodes that replied have it.
    rank = max(1, quorum - (nodes - len(counters)))
    highest = sorted(counters)[-rank] if len(counters) >= rank else 0
    token = max((holder.token for holder in holders), default=0) or highest
    waiters = tuple(sorted(waiting.values(), key=lambda one: one.since))
    state = LockState(name, tuple(holders), waiters, token, kind, capacity, out)
    return Reading(state, version, read_at / 1_000_000)


def _hold(value: bytes, left: int) -> Hold:
    """Returns the hold that a node has noted in `value`."""
    request: Request | None
    try:
        ours, owner, before, token, since, text = value.split(b"\x1f", 5)
        if ours != _OURS:
            raise ValueError
        request = read_request(text)
        int(since)
        # Where no token was agreed upon, the token is the value at which the hold began.
        known = int(token) if token else int(before) + 1
    except ValueError:
        owner, known, since, request = b"", 0, b"", None  # the key of another program
    return Hold(owner, known, max(0, left), since, request)


@lru_cache(REMEMBERED)
def read_request(text: bytes) -> Request:
    """Returns the request in `text`, which nodes have alike; raises ValueError if it is not one."""
    ttl, host, who, label_text = text.decode("utf-8", "replace").split("\x1f", 3)
    letter = next((char for char in who if char.isalpha()), "")
    pid, _, version = who.partition(letter) if letter else (who, "", "")
    return Request(Label(host, int(pid), label_text), letter, int(version or 0), int(ttl) / 1000)


def _participant(
    owner: bytes, token: int, since: bytes, request: Request, remaining: float
) -> Participant:
    shown = owner.decode("ascii", "replace")
    began = int(since) / 1_000_000
    return Participant(shown, request.label, token, began, remaining, ttl=request.ttl)
