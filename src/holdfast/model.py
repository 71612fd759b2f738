"""The values that pass between the engine, the stores and the user. No I/O, no state."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from typing import Any, NamedTuple

quick_new: Callable[..., Any] = tuple.__new__
"""Makes a named tuple without its own constructor, which is written in Python."""


class Label(NamedTuple):
    """A holder or waiter for people to read. `text` is the user's own word, or an election's value."""

    host: str
    pid: int
    text: str = ""

    def __str__(self) -> str:
        place = f"{self.host}:{self.pid}"
        return f"{self.text} ({place})" if self.text else place


class Participant(NamedTuple):
    """A holder of a lock (`token` > 0) or a waiter for it (`token` is 0)."""

    owner: str
    label: Label
    token: int
    since: float
    """The time of its grant, or of its enqueueing: seconds since the epoch, by the store's clock."""
    remaining: float
    """Seconds until its lease, or its place in the queue, ends unless it is renewed."""
    weight: int = 1
    slot: int | None = None
    """The slot of a semaphore that it holds, on a store that gives slots."""
    ttl: float | None = None
    """The TTL of its lease, with the `lock_delay`; a waiter's is that of the lease it waits for. An
    exported lease may have more left. None where it is not known, as of a client that is not
    Holdfast."""


class LockState(NamedTuple):
    """A lock as the store sees it at one moment."""

    name: str
    holders: tuple[Participant, ...]
    waiters: tuple[Participant, ...]
    token: int
    """The highest token among the holders. With no holder, a number that no past grant exceeds and
    every later grant will; 0 where the store has never granted anything."""
    kind: str = "lock"
    capacity: int = 1
    out: tuple[str, ...] = ()
    """The nodes that do not vote, why, and for how long, where several nodes are the store."""

    @property
    def held(self) -> bool:
        return bool(self.holders)


# The answers of a store to a request. What each one means is said in the backend contract. `since` is
# when, on the backend's clock, that request was sent which renewed what the store will expire; 0: this.


class Granted(NamedTuple):
    """The owner holds the lock, as `token`; if `handed`, for the claim window only."""

    token: int
    ttl: float
    handed: bool = False
    since: float = 0.0
    slot: int | None = None
    """The slot of a semaphore's holder, where the remainder of its token does not say it."""


class Queued(NamedTuple):
    """Others are first; the owner is in the queue on the store."""

    remaining: float
    since: float = 0.0


class Busy(NamedTuple):
    """Others are first, and nothing of the owner was left on the store."""

    remaining: float


class Renewed(NamedTuple):
    """The owner holds the lock for another `ttl`, as `token`."""

    token: int
    ttl: float
    since: float = 0.0
    slot: int | None = None
    """As in `Granted`."""


class Waiting(NamedTuple):
    """The owner is still in the queue; the holders have `remaining` seconds at the most."""

    remaining: float
    since: float = 0.0


class Gone(NamedTuple):
    """The owner is unknown to the store: it neither holds nor waits."""


class Unknown(NamedTuple):
    """No answer of the store for this owner."""


GONE = Gone()
UNKNOWN = Unknown()

Outcome = Renewed | Waiting | Gone | Unknown


class Change(NamedTuple):
    """One change of an election: a leader, or another value of the same one, or nobody."""

    number: int
    """A number above 1 that rises from each change of the election to the next, whatever fails."""
    token: int
    """The leader's token; if nobody leads, that of the last one."""
    owner: str
    """The leader's owner id; empty if nobody leads."""
    label: Label
    since: float
    """When it came about: seconds since the epoch, by the store's clock."""


class Observation(NamedTuple):
    """The changes of an election since one that was known, the oldest first."""

    changes: tuple[Change, ...]
    remaining: float
    """Seconds until the present leader's lease ends unless it is renewed; 0 if nobody leads."""


NOBODY = Label("", 0)
"""The label of a change after which nobody leads."""


def lock_realm(store: str, namespace: str) -> str:
    """Returns where a lock's tokens are counted: with its name, this tells it from all other locks."""
    if not (namespace.isascii() and namespace.isalnum()):
        from urllib.parse import quote  # slow to import, and seldom needed

        namespace = quote(namespace, safe="")
    # The same Redis is the same, whether Sentinel led to it, or a lock service, `http (redis)`.
    store = store.rpartition(" (")[2].rstrip(")")
    return f"{store.partition('+')[0]}:{namespace}"


def slot_of(token: int, kind: str, permits: int) -> int | None:
    """Returns the slot of a semaphore's token; None for other locks, and for no token."""
    return token % permits if token and kind == "semaphore" else None


def in_free_slot(token: int, taken: Container[int], permits: int) -> int:
    """Returns the first number from `token` on whose slot is not taken.

    The slot of a semaphore's holder is the remainder of its token: so it is granted in the same step,
    and known wherever the token is.
    """
    while token % permits in taken:
        token += 1
    return token


OWNER_ID = 24
"""The number of characters of an owner id that we make."""
SESSION_ID = 10
"""The number of characters at the beginning of an owner id that are those of its session."""
MOST_AROUND = 3
"""Sessions of the commands around a program that an owner id names, behind its own, nearest first."""
AROUND = "HOLDFAST_INSIDE"
"""The variable by which `holdfast run` tells a program the sessions around it, with commas."""


def sessions_around() -> str:
    """Returns the ids of the sessions that wait for this program's end, one behind the other."""
    told = os.environ.get(AROUND, "")
    found = [one for one in told.split(",", MOST_AROUND)[:MOST_AROUND] if _is_hex(one, SESSION_ID)]
    return "".join(found)


def new_session_id() -> str:
    """Returns what all owner ids of a session begin with."""
    return os.urandom(SESSION_ID // 2).hex()


def new_owner(session_id: str | None = None) -> str:
    """Returns an owner id, of a session: unique for ever, and used for one attempt only.

    Behind the id of the session, those of the sessions around it may stand.
    """
    # Not drawn in advance: a machine that is cloned while it runs would have the same ones twice.
    return (session_id or new_session_id()) + os.urandom((OWNER_ID - SESSION_ID) // 2).hex()


def new_owners(session_id: str, count: int) -> list[str]:
    """Returns owner ids of a session for as many attempts, which begin now."""
    length = OWNER_ID - SESSION_ID
    drawn = os.urandom(count * length // 2).hex()  # one call to the system for all
    return [session_id + drawn[at : at + length] for at in range(0, len(drawn), length)]


def party_of(one: Participant) -> tuple[str, str]:
    """Returns the party behind a holder or waiter: the id of its session, and the text of its label.

    Of an owner id that is not of our making only the label is known.
    """
    if _is_ours(one.owner):
        return one.owner[:SESSION_ID], one.label.text
    return "", str(one.label)


def around(owner: str) -> list[str]:
    """Returns the ids of the sessions around the program of `owner`, the nearest first."""
    if len(owner) < OWNER_ID + SESSION_ID or not _is_ours(owner):
        return []
    end = len(owner.partition("~")[0]) - (OWNER_ID - SESSION_ID)
    return [owner[at : at + SESSION_ID] for at in range(SESSION_ID, end, SESSION_ID)]


def _is_ours(owner: str) -> bool:
    """Tells whether an owner id is of our making."""
    made, _, _ = owner.partition("~")  # behind which a store may number its own attempts
    number, rest = divmod(len(made) - OWNER_ID, SESSION_ID)
    return rest == 0 and 0 <= number <= MOST_AROUND and _is_hex(made, len(made))


def _is_hex(text: str, length: int) -> bool:
    return len(text) == length and not text.strip("0123456789abcdef")
