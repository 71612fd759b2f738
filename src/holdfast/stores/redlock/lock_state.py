"""The state of a lock, from the replies of its nodes: the majority is the truth."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...model import Label, LockState, Participant
from ..redis.answers import FOREIGN

_OURS = b"rl1"


def lock_state(
    name: str, replies: Sequence[Any], quorum: int, nodes: int, out: tuple[str, ...]
) -> LockState:
    """Returns the state of the lock `name`, from the replies of nodes to inspect.lua."""
    held: dict[bytes, list[tuple[int, int, bytes]]] = {}
    waiting: dict[bytes, Participant] = {}
    counters: list[int] = []
    for value, left, counter, waiters in replies:
        counters.append(int(counter))
        if value is not None:
            _holder(value, left, held)
        for owner, text, _ in zip(waiters[::3], waiters[1::3], waiters[2::3], strict=True):
            with suppress(ValueError):  # otherwise another program has written over the key
                since, _, rest = text.split(b"\x1f", 2)
                waiting[owner] = _participant(owner, 0, since, rest, 0.0)
    holders: list[Participant] = []
    for owner, found in held.items():
        if len(found) >= quorum:
            # A majority has the grant's own token; a node that replied too late may have another.
            tokens = [one[0] for one in found]
            token = max(tokens, key=lambda value: (tokens.count(value), value))
            left = sorted(one[1] for one in found)[-quorum]
            _, _, text = found[0]
            if text:
                since, _, rest = text.partition(b"\x1f")
                # Users know the owner; its rounds have ids of their own, "owner~2".
                shown = owner.partition(b"~")[0]
                holders.append(_participant(shown, token, since, rest, left / 1000))
            else:
                holders.append(Participant("", FOREIGN, 0, 0.0, left / 1000))
    # A past grant raised a majority to its token; so at least `rank` of the nodes that replied have it.
    rank = max(1, quorum - (nodes - len(counters)))
    highest = sorted(counters)[-rank] if len(counters) >= rank else 0
    token = max((holder.token for holder in holders), default=0) or highest
    waiters = tuple(sorted(waiting.values(), key=lambda one: one.since))
    return LockState(name, tuple(holders), waiters, token, out=out)


def _holder(value: bytes, left: int, held: dict[bytes, list[tuple[int, int, bytes]]]) -> None:
    """Adds to `held` the hold that a node has noted in `value`."""
    try:
        ours, owner, before, token, rest = value.split(b"\x1f", 4)
        if ours != _OURS:
            raise ValueError
        since, _, request = rest.partition(b"\x1f")
        _participant(owner, 0, since, request, 0.0)
        # Where no token was agreed upon, the token is the value at which the hold began.
        known = int(token) if token else int(before) + 1
    except ValueError:
        owner, known, rest = b"", 0, b""  # the key of another program
    held.setdefault(owner, []).append((known, max(0, left), rest))


def _participant(
    owner: bytes, token: int, since: bytes, rest: bytes, remaining: float
) -> Participant:
    _, host, pid, text = rest.decode("utf-8", "replace").split("\x1f", 3)
    label = Label(host, int(pid), text)
    shown = owner.decode("ascii", "replace")
    return Participant(shown, label, token, int(since) / 1_000_000, remaining)
