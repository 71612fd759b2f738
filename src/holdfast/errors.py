"""Every error that Holdfast raises.

    LockError
    ├── LockTimeout          (also TimeoutError)     it was not granted in time
    ├── LeaseLost                                    it was held, and may now be somebody else's
    ├── LockNotOwned         (also RuntimeError)     this is not, or not any more, yours to use
    ├── BackendUnavailable   (also ConnectionError)  the store did not answer, or could not do it
    ├── GuaranteeError                               the store cannot promise what was asked of it
    ├── StaleToken                                   the fence at the resource refused an old token
    └── ConfigError          (also ValueError)       bad input; nothing was sent

Each carries `name`, `owner` and `token` where they are known, and can be pickled. No message holds
a credential: a URL is shown without its user and password.
"""

from __future__ import annotations

from typing import Any


class LockError(Exception):
    """Raised when something goes wrong with a lock; the base of all errors here."""

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        owner: str | None = None,
        token: int | None = None,
    ) -> None:
        super().__init__(message)
        self.name = name
        self.owner = owner
        self.token = token

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only attributes travel in the state; the constructor needs only the message.
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(kind: type[LockError], args: tuple[Any, ...], state: dict[str, Any]) -> LockError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class LockTimeout(LockError, TimeoutError):
    """Raised when a lock was not granted within the time that the caller gave it."""


class LeaseLost(LockError):
    """Raised when a lease ended while its holder still counted on it.

    `lost_at` is when, in seconds since the epoch; `reason` says how it was noticed.
    """

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        owner: str | None = None,
        token: int | None = None,
        lost_at: float | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message, name=name, owner=owner, token=token)
        self.lost_at = lost_at
        self.reason = reason


class LockNotOwned(LockError, RuntimeError):
    """Raised when a lease is used by somebody who does not hold it, such as a forked child."""


class BackendUnavailable(LockError, ConnectionError):
    """Raised when the store cannot be reached, does not answer in time, or cannot write."""


class GuaranteeError(LockError):
    """Raised when more is asked of a lock than its store, or its lack of a fence, can promise."""


class StaleToken(LockError):
    """Raised when a fence refuses a token; nothing was written.

    `reason` is `stale` (older than one it has seen), `used` (seen before, by a single-use fence),
    `other-lock` (the resource belongs to another lock, whose tokens do not compare with this one's)
    or `store-lost-memory` (so far below that it is not a late writer: the lock store counts anew).
    """

    def __init__(
        self,
        resource: str,
        token: int,
        highest: int,
        *,
        name: str | None = None,
        owner: str | None = None,
        reason: str = "stale",
        detail: str = "",
    ) -> None:
        detail = detail or (
            f"it is older than {highest}, which this resource has already seen; the lock has moved "
            "on, so stop and acquire again"
        )
        super().__init__(
            f"write to {resource!r} with fencing token {token} refused: {detail}",
            name=name,
            owner=owner,
            token=token,
        )
        self.resource = resource
        self.highest = highest
        self.reason = reason
        self.detail = detail


class ConfigError(LockError, ValueError):
    """Raised when a URL, a name, a TTL or an option is not usable; nothing has been sent."""
