"""The refusals that every store has in common, in the same words."""

from __future__ import annotations

import errno
from os import strerror

from .errors import BackendUnavailable, ConfigError, GuaranteeError, LeaseLost, LockNotOwned
from .interrupts import let_through

DISTRIBUTION = "holdfast-locks"
"""Our name on the package index, where `holdfast` is another project."""


class GivenUp(BackendUnavailable):
    """Raised when a request reached the store after its attempt had been given up."""


def as_public(error: BackendUnavailable | ConfigError) -> BackendUnavailable | ConfigError:
    """Returns the error in the class that users know: a store has others, for itself."""
    kind = ConfigError if isinstance(error, ConfigError) else BackendUnavailable
    if type(error) is kind:
        return error
    return kind(str(error), name=error.name, owner=error.owner, token=error.token)


def in_use_as(
    name: str, owner: str, present: tuple[str, int], wanted: tuple[str, int]
) -> ConfigError:
    """Returns the refusal of a lock that is in use as another kind, or with another capacity.

    `present` and `wanted` are each a kind and a capacity.
    """
    return ConfigError(
        f"{name!r} is in use as {_in_words(*present)}, so it cannot be asked for as "
        f"{_in_words(*wanted)} until it is free; use another name, or the same kind and size "
        "everywhere",
        name=name,
        owner=owner,
    )


def owner_used_again(owner: str, name: str | None = None) -> ConfigError:
    """Returns the refusal of an owner id that was used by an earlier attempt, at `name` if known."""
    where = "has been used before"
    if name is not None:
        where = f"is already used by another request for {name!r}"
    return ConfigError(
        f"the owner id {owner!r} {where}; every attempt needs an owner id of its own",
        name=name,
        owner=owner,
    )


def given_up(name: str, owner: str) -> GivenUp:
    """Returns the refusal of a request that reached the store after its attempt had been given up."""
    return GivenUp(
        f"the request for {name!r} came after it had been given up", name=name, owner=owner
    )


def token_not_raised(
    name: str, above: int, present: int, source: str, remedy: str = "reset the fence"
) -> GuaranteeError:
    """Returns the refusal of a forced release after which tokens should be higher than they can be."""
    return GuaranteeError(
        f"{name!r} was left as it is: its tokens are {source}, now {present}, which cannot be raised "
        f"above {above}; {remedy}",
        name=name,
    )


def lease_lost(
    name: str, owner: str, token: int, lost_at: float | None, reason: str | None
) -> LeaseLost:
    """Returns the error for the use of a lease that has ended."""
    return LeaseLost(
        f"the lease on {name!r} (token {token}) is no longer held: {reason}; stop the work it "
        "protected, and acquire the lock again before going on",
        name=name,
        owner=owner,
        token=token,
        lost_at=lost_at,
        reason=reason,
    )


def of_the_parent(name: str, owner: str, token: int) -> LockNotOwned:
    """Returns the refusal of a lease that a forked child has inherited."""
    return LockNotOwned(
        f"the lease on {name!r} belongs to the parent of this forked process, which goes on holding "
        "it; acquire the lock anew in the child",
        name=name,
        owner=owner,
        token=token,
    )


def unavailable(
    what: str,
    error: BackendUnavailable,
    name: str | None = None,
    owner: str | None = None,
    token: int | None = None,
) -> BackendUnavailable:
    """Returns a backend's error, which knows of servers, as users see it: with what was wanted."""
    return BackendUnavailable(f"{what}: {error}", name=name, owner=owner, token=token)


def may_open_nothing(error: OSError) -> BackendUnavailable | None:
    """Returns the error for a process that may open nothing more; None for any other error.

    That may strike anywhere, also where a module is imported when it is first needed.
    """
    if error.errno not in (errno.EMFILE, errno.ENFILE):
        return None  # and raises nothing here, whose frame would keep what a handler has raised
    let_through(error)
    return BackendUnavailable(f"this process may open nothing more: {error.strerror}")


def reason(error: BaseException) -> str:
    """Returns why a server could not be reached, or a connection broke, in words without a number."""
    if not isinstance(error, OSError) or not isinstance(error.errno, int):
        return str(error)
    if type(error).__module__ == "ssl":
        return getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    if error.errno <= 0 or type(error).__name__ == "gaierror":  # a resolver has numbers of its own
        return error.strerror or str(error)
    return strerror(error.errno)  # asyncio has words of its own


def lacks(what: str, needed: str, extra: str) -> str:
    """Returns the sentence for what is not installed: `what` has need of it, and an extra brings it."""
    return f"{what} needs {needed}: {installing(extra)}"


def installing(extra: str) -> str:
    """Returns the command that installs Holdfast with an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def _in_words(kind: str, capacity: int) -> str:
    if kind == "semaphore":
        return f"a semaphore of {capacity} permit{'s' if capacity > 1 else ''}"
    return "an election" if kind == "election" else f"a {kind}"
