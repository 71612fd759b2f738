"""The errors with which ZooKeeper refuses a request, in words for the user."""

from __future__ import annotations

from ...errors import BackendUnavailable, ConfigError, LockError
from .requests import AuthFailedError, InvalidACLError, NoAuthError

REFUSALS = (AuthFailedError, InvalidACLError, NoAuthError)
"""Errors that say that we may not do this: trying again is of no use."""

_WHAT_TO_DO = (
    "give the user whose znodes these are in the URL, as zookeeper://user:password@host:2181, or have "
    "their ACLs changed"
)


def request_failed(name: str, error: Exception) -> LockError:
    """Returns the error for a request about the lock `name` that ZooKeeper did not carry out."""
    if isinstance(error, LockError):
        return error
    kind = type(error).__name__
    if isinstance(error, REFUSALS):
        return ConfigError(
            f"ZooKeeper does not let us work on the znodes of {name!r} ({kind}); {_WHAT_TO_DO}",
            name=name,
        )
    return BackendUnavailable(
        f"ZooKeeper could not do what was asked for {name!r}: {kind}", name=name
    )


def session_refused(address: object, root: str, error: Exception) -> LockError:
    """Returns the error for a session whose znodes the ensemble does not let us create."""
    kind = type(error).__name__
    message = f"the ensemble at {address} does not let us create znodes below {root}: {kind}"
    if isinstance(error, REFUSALS):
        return ConfigError(f"{message}; {_WHAT_TO_DO}")
    return BackendUnavailable(message)


def reading_refused(root: str, error: Exception) -> LockError:
    """Returns the error for a list of locks that ZooKeeper did not give us."""
    if isinstance(error, LockError):
        return error
    message = f"the locks below {root} cannot be listed: {type(error).__name__}"
    if isinstance(error, REFUSALS):
        return ConfigError(f"{message}; {_WHAT_TO_DO}")
    return BackendUnavailable(message)


def credentials_refused(address: object) -> ConfigError:
    return ConfigError(
        f"the ensemble at {address} refused our credentials; correct the user and the password in the "
        "URL, or sasl="
    )
