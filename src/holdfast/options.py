"""The options of a lock: one value for every kind of lock, checked before anything is sent."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, TypedDict

from . import checks
from .errors import ConfigError, GuaranteeError
from .guarantees import Guarantees


class FenceMark(Protocol):
    """A fence: one of `holdfast.fences`, or another that bears the mark."""

    __holdfast_fence__: bool


class LockKeywords(TypedDict, total=False):
    """The keyword arguments of `lock`, `rlock`, `semaphore` and `rwlock`, for type checkers."""

    ttl: float
    timeout: float | None
    fair: bool | None
    renew: bool
    purpose: Literal["efficiency", "correctness"]
    protects: FenceMark | None
    max_hold: float | None
    lock_delay: float


class LockOptions(NamedTuple):
    """How a lock is asked for, whatever kind it is."""

    ttl: float = 30.0
    """Seconds for which the store keeps a lease after it was last renewed."""
    timeout: float | None = None
    """Seconds that `with` and `acquire()` wait; None is for ever."""
    fair: bool | None = None
    """True insists on first come, first served; False lets newcomers take a free lock."""
    renew: bool = True
    """False lets a lease end after its TTL."""
    purpose: str = "efficiency"
    """`efficiency`, or `correctness`, which needs a fence and a store that can carry it."""
    protects: object = None
    """The fence at the resource."""
    max_hold: float | None = None
    """Seconds after which a lease ends whatever happens."""
    lock_delay: float = 0.0
    """Seconds for which the lock stays closed after a lease that ended without a release."""


def options_of(name: str, keywords: LockKeywords) -> LockOptions:
    """Returns the options that a user gave for the lock `name`; raises if one makes no sense."""
    try:
        options = LockOptions(**keywords)
    except TypeError:
        unknown = next(word for word in keywords if word not in LockOptions._fields)
        known = ", ".join(LockOptions._fields)
        raise TypeError(f"a lock has no option {unknown!r}; it has: {known}") from None
    ttl, timeout, fair, renew, purpose, protects, max_hold, lock_delay = options
    checks.flag("fair", fair, (True, False, None))
    checks.flag("renew", renew, (True, False))
    checks.flag("purpose", purpose, ("efficiency", "correctness"))
    if protects is not None and not is_fence(protects):
        raise ConfigError(f"protects must be a fence, not {type(protects).__name__}", name=name)
    return LockOptions(
        checks.ttl(ttl),
        checks.timeout(timeout),
        fair,
        renew,
        purpose,
        protects,
        None if max_hold is None else checks.ttl(max_hold, "max_hold"),
        checks.delay(lock_delay),
    )


def is_fence(thing: object) -> bool:
    """Tells whether `thing` is a fence: one of ours, or one that says so."""
    return bool(getattr(thing, "__holdfast_fence__", False)) and not isinstance(thing, type)


def refuse_unfair(name: str, options: LockOptions, guarantees: Guarantees) -> None:
    """Raises `GuaranteeError` if `options` insist on an order that the store cannot promise."""
    if options.fair is True and not guarantees.fair:
        raise GuaranteeError(
            f"{name!r} was asked to be fair, which {guarantees.store} cannot promise", name=name
        )


def refuse_incorrect(
    name: str, options: LockOptions, guarantees: Guarantees, unnamed: bool, semaphore: bool
) -> None:
    """Raises `GuaranteeError` if a lock for correctness cannot be one, and says what is missing.

    `unnamed`: the user did not name the store, and the embedded one was taken.
    """
    if options.purpose == "efficiency":
        return
    missing = []
    if "correctness" not in guarantees.safe_for:
        missing.append(f"a store that can carry it ({guarantees.store} cannot)")
    if unnamed:
        missing.append("the URL of the store, said to connect() or in $HOLDFAST_URL")
    if options.protects is None:
        missing.append("protects=, the fence that rejects stale tokens at the resource")
    elif hasattr(options.protects, "shortcoming") and (lacks := options.protects.shortcoming()):
        missing.append(lacks)
    if semaphore and not guarantees.slots:
        missing.append(
            "one holder at a time (a semaphore has several, and a fence that has seen the higher "
            f"token would shut out the lower one; {guarantees.store} does not say which slot a "
            "holder has, so make a lock for each slot)"
        )
    if missing:
        raise GuaranteeError(
            f"{name!r} cannot be a lock for correctness: it needs {'; and '.join(missing)}",
            name=name,
        )
