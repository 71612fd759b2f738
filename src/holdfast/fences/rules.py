"""The rules of every fence, as pure code: what is remembered of a resource, and who may pass.

- A token lower than the highest seen is refused; an equal one is the same holder's next write and
  passes; a higher one passes and is remembered. A single-use fence refuses an equal one too.
- A resource belongs to the first lock that shows its name (by giving the lease, not the bare
  number); tokens of another lock do not compare with its own and are refused, whatever their size.
- A resource's mark has two numbers, the highest writer and the highest reader. A writer is compared
  with both: what a reader has read must not be changed by a writer from before. A reader is compared
  with the writers only: readers hold at the same time, in no order, and do not shut each other out.
- A reader does not write. It shows its lease by `guard`; every verb that writes refuses it.
- A semaphore's lease stands for its slot, which is a lock of its own here; one that has no slot is
  refused: holder 11 would write and shut out holder 10, who holds as well.
- What was pruned leaves a *floor* behind, see `floors`.
- No clock made a token that is a century ahead. A lease that shows one is refused; a bare number is
  taken at its word, and its mark is not pruned, since its floor would shut out everybody.

Stores that decide by themselves (SQL, Redis) do the same in their own language, and come here to
say why; the one test suite runs on all.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol

from .. import checks
from ..errors import ConfigError, GuaranteeError, StaleToken
from . import refusals

MAX_TOKEN = 2**63 - 1
MICROSECONDS = 10**15
"""From here on a token is a time in µs: those of Redis, SQL and the embedded store, since 2001."""
MONTH = 30 * 86400 * 10**6
CENTURY = 36_525 * 86400 * 10**6
COUNTER_FELL = 16
"""A counter that fell to less than a sixteenth has started anew; a late writer is not that late."""
COUNTER_GAP = 10_000

STALE, USED, OTHER_LOCK, FORGOTTEN = "stale", "used", "other-lock", "store-lost-memory"


class FencedLease(Protocol):
    """The part of a lease that a fence needs: any lease of `holdfast` or `holdfast.aio` will do."""

    @property
    def name(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def shared(self) -> bool: ...
    @property
    def lock_id(self) -> str: ...
    @property
    def token(self) -> int: ...


Token = int | FencedLease
"""Wherever a token is taken, the lease itself may be given, and brings the lock's identity along."""


class Credential(NamedTuple):
    """A token as a writer shows it to a fence, with the lock that it is from."""

    token: int
    lock: str = ""
    """The lock's identity; empty if only the number was given."""
    reader: bool = False
    name: str | None = None
    owner: str | None = None


class Mark(NamedTuple):
    """The memory of one resource; all empty if there is none."""

    highest: int = 0
    """The highest token of a writer."""
    lock: str = ""
    reader: int = 0
    """The highest token of a reader."""


def credential(token: Token) -> Credential:
    """Returns the credential of a token or a lease; raises for one that could never pass."""
    if type(token) is int:
        return Credential(_number(token))
    try:
        lock = token.lock_id  # type: ignore[union-attr]
    except AttributeError:
        given = type(token).__name__
        raise ConfigError(f"a fencing token is an int or a lease, not {given}") from None
    assert not isinstance(token, int)
    reader = False
    if token.kind == "semaphore":
        # Also if there is one slot only: the number of permits may change, and slot 0 stays.
        slot = getattr(token, "slot", None)
        if slot is not None:
            lock = slot_lock(lock, slot)
        elif token.shared:
            raise GuaranteeError(
                f"the lease on {token.name!r} is one of a semaphore's: several hold at once, and a "
                "fence that has seen the higher token would shut out the lower one for ever; give "
                "each slot a lock, and a resource, of its own",
                name=token.name,
                owner=token.owner,
                token=token.token,
            )
    elif token.shared:
        reader = True
    number = _number(token.token)
    if lock and number > latest():
        raise GuaranteeError(
            f"{number} is no token of the lock {token.name!r}: it is a century ahead of this "
            "machine's clock, so no store has granted it; show the lease as it was granted",
            name=token.name,
            owner=token.owner,
            token=number,
        )
    return Credential(number, lock, reader, token.name, token.owner)


def slot_lock(lock: str, slot: int) -> str:
    """Returns the identity of one slot of a semaphore, which is a lock of its own to a fence."""
    # Not behind the name, which may have any ending. So each slot has floors of its own, too.
    place, slash, name = lock.partition("/")
    return f"{place}#{slot}{slash}{name}"


def writer(token: Token) -> Credential:
    """Returns the credential of a writer; raises for a reader's lease."""
    given = credential(token)
    if given.reader:
        raise GuaranteeError(
            f"a reader's lease does not write: take rwlock({given.name!r}).write(); to read behind "
            "this fence, show the lease by guard()",
            name=given.name,
            owner=given.owner,
            token=given.token,
        )
    return given


def latest() -> int:
    """Returns the number above which no token is a time that a store's clock could have shown."""
    return int(time.time() * 10**6) + CENTURY


def _number(token: int) -> int:
    if not 1 <= token <= MAX_TOKEN:
        raise ConfigError(f"a fencing token is from 1 to 2^63 - 1, not {token!r:.40}")
    return token


def resource_name(name: object) -> str:
    return checks.printable("the resource's name", name, checks.MAX_NAME_BYTES)


def refusal(resource: str, mark: Mark, given: Credential, single_use: bool) -> StaleToken | None:
    """Returns the reason why `given` may not pass; None if it may."""
    token = given.token
    highest = mark.highest if given.reader else max(mark.highest, mark.reader)
    if mark.lock and given.lock and mark.lock != given.lock:
        return _stale(
            resource,
            given,
            highest,
            OTHER_LOCK,
            f"this resource belongs to the lock {mark.lock!r}, and the token is of "
            f"{given.lock!r}; tokens of two locks cannot be compared, so protect it by one lock "
            "only, or reset() the fence if it moved",
        )
    if token < highest:
        if far_below(token, highest):
            return _stale(
                resource,
                given,
                highest,
                FORGOTTEN,
                f"it is far below {highest}, which this resource has seen: the lock store has lost "
                "its memory (wiped, restored, replaced, or its clock was set back), or the holder "
                "slept for a very long time; raise the store's tokens above the highest seen, or "
                "reset() the fence",
            )
        if highest > mark.highest:
            read = (
                f"it is older than {highest}, a reader's, which this resource has already seen; what "
                "was read must not change under the reader, so stop and acquire again"
            )
            return _stale(resource, given, highest, STALE, read)
        return _stale(resource, given, highest, STALE, "")
    if single_use and token == mark.highest and not given.reader:
        return _stale(
            resource,
            given,
            highest,
            USED,
            "it has been used, and this fence takes each token once; acquire again for another",
        )
    return None


def _stale(resource: str, given: Credential, highest: int, reason: str, detail: str) -> StaleToken:
    refused = StaleToken(
        resource,
        given.token,
        highest,
        name=given.name,
        owner=given.owner,
        reason=reason,
        detail=detail,
    )
    refusals.tell(refused)
    return refused


def far_below(token: int, highest: int) -> bool:
    """Returns True if `token` is so far below `highest` that no late writer could explain it."""
    if token >= MICROSECONDS:
        return highest - token > MONTH
    return highest - token > COUNTER_GAP and token < highest // COUNTER_FELL


def after(mark: Mark, given: Credential) -> Mark:
    """Returns the mark as it is once `given` has passed."""
    lock = mark.lock or given.lock
    if given.reader:
        return Mark(mark.highest, lock, max(mark.reader, given.token))
    return Mark(max(mark.highest, given.token), lock, mark.reader)


def age(older_than: object) -> float:
    return checks.ttl(older_than, "older_than")


def beginning(by: object, to: object) -> tuple[str, int]:
    """Returns `by` and `to` of a reset, checked."""
    if type(to) is not int or not 0 <= to <= MAX_TOKEN:
        raise ConfigError(f"a reset is to a number from 0 to 2^63 - 1, not {to!r:.40}")
    return checks.printable("by, who resets the fence,", by, checks.MAX_LABEL), to
