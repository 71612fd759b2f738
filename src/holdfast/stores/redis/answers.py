"""The texts that the scripts store and return: requests are written here, and states are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

from ...model import Change, Label, LockState, Observation, Participant, slot_of

SEPARATOR = "\x1f"
_OURS = (b"hf0\x1f", b"hf1\x1f", b"hf2\x1f", b"hf3\x1f")
_SHARED = b"hf0\x1f\x1f"
FOREIGN = Label("", 0, "not a holdfast client")
"""The label of a holder that is not ours, or whose text begins like ours and cannot be read."""


def millis(seconds: float) -> int:
    """Returns `seconds` in milliseconds, rounded up, and at least one."""
    return max(1, ceil(seconds * 1000))


def request(
    ttl: float,
    claim: float,
    patience: float,
    barge: bool,
    weight: int,
    capacity: int,
    kind: str,
    label: Label,
) -> bytes:
    """Returns the part of an entry that does not change, as `scripts/queue.lua` describes it."""
    fields = (
        weight,
        capacity,
        kind,
        int(barge),
        millis(ttl),
        millis(min(claim, ttl)),
        millis(patience),
        label.host.replace(SEPARATOR, ""),
        label.pid,
        label.text,
    )
    return SEPARATOR.join(map(str, fields)).encode()


def lock_state(name: str, reply: Sequence[Any]) -> LockState:
    """Returns the state that `scripts/look.lua` replied."""
    value, left, counter, shared, waiting, now = reply
    holders: list[Participant] = []
    kind, capacity = "lock", 1
    if value is not None:
        if not value.startswith(_OURS):
            shared = [b"", value, left]
        elif not value.startswith(_SHARED):
            owner, _, rest = value[4:].partition(b"\x1f")
            shared = [owner, rest, left]
    for owner, text, ms in _triples(shared):
        try:
            token, since, rest = text.split(b"\x1f", 2)
            participant, kind, capacity = _participant(owner, int(token), since or token, rest, ms)
        except (ValueError, IndexError):
            participant = Participant("", FOREIGN, 0, 0.0, max(0, ms) / 1000)
        holders.append(participant)
    waiters: list[Participant] = []
    for owner, text, ms in _triples(waiting):
        try:
            since, _, rest = text.split(b"\x1f", 2)
            if not since:
                patience = int(rest.split(b"\x1f", 7)[6])
                since = b"%d" % (1000 * (now - max(0, patience - ms)))
            participant, kind, capacity = _participant(owner, 0, since, rest, ms)
        except (ValueError, IndexError):
            continue  # the scripts cannot read this waiter either, and will pass over it
        waiters.append(participant)
    highest = max((holder.token for holder in holders), default=0)
    if not highest and counter and counter.isdigit():  # another client may have written it
        highest = int(counter)
    return LockState(name, tuple(holders), tuple(waiters), highest, kind, capacity)


def observation(reply: Sequence[Any]) -> Observation:
    """Returns the changes that `scripts/observe.lua` replied."""
    left, *changes = reply
    return Observation(tuple(map(_change, changes)), left / 1000)


def _change(text: bytes) -> Change:
    fields = text.decode("utf-8", "replace").split(SEPARATOR, 6)
    number, token, owner, since, host, pid, words = fields
    label = Label(host, int(pid), words)
    return Change(int(number), int(token), owner, label, int(since) / 1_000_000)


def _triples(flat: Sequence[Any]) -> Iterator[tuple[bytes, bytes, int]]:
    return zip(flat[::3], flat[1::3], flat[2::3], strict=True)


def _participant(
    owner: bytes, token: int, since: bytes, rest: bytes, ms: int
) -> tuple[Participant, str, int]:
    fields = rest.decode("utf-8", "replace").split(SEPARATOR, 9)
    label = Label(fields[7], int(fields[8]), fields[9])
    participant = Participant(
        owner.decode("ascii", "replace"),
        label,
        token,
        int(since) / 1_000_000,
        max(0, ms) / 1000,
        int(fields[0]),
        slot_of(token, fields[2], int(fields[1])),
        int(fields[4]) / 1000,
    )
    return participant, fields[2], int(fields[1])
