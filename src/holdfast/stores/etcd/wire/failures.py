"""The failures of a call to etcd, which of them may be tried again, and what users are told."""

from __future__ import annotations

from os import strerror

from ....errors import BackendUnavailable, ConfigError
from ...resolving import why_late
from ..address import host_and_port
from .http2.grpc import OK, End


class Failure(Exception):
    """A call that ended without a reply. `code` is the name of a gRPC status."""

    def __init__(self, code: str, details: str, endpoint: str, untouched: bool = False) -> None:
        super().__init__(f"{code}: {details}")
        self.untouched = untouched
        """True if it is known that the request was not carried out, and never will be."""
        self.code = code
        self.details = details
        self.endpoint = endpoint

    @property
    def passing(self) -> bool:
        """True if another member, or the same one later, may answer."""
        return self.code in _PASSING or "too many requests" in self.details

    @property
    def unreachable(self) -> bool:
        """True if there was no connection at all; not if a member does not know its leader."""
        return self.code == "UNAVAILABLE" and "etcdserver" not in self.details

    @property
    def wants_login(self) -> bool:
        """True if the token of our user is not known any more, or older than a change of the users; or
        if there was none, because another call was just getting a new one."""
        return self.code == "UNAUTHENTICATED" or any(text in self.details for text in _LOG_IN)

    @property
    def lease_is_gone(self) -> bool:
        return "lease not found" in self.details

    @property
    def lease_exists(self) -> bool:
        return "lease already exists" in self.details

    def in_words(self, cluster: str) -> BackendUnavailable | ConfigError:
        """Returns the error for the user. It holds no password: etcd does not repeat it."""
        text = self.details.removeprefix("etcdserver: ") or self.code.lower()
        if self.code == "PERMISSION_DENIED":
            return ConfigError(
                f"the etcd cluster at {cluster} does not let this user work on our keys ({text}); "
                "grant its role: etcdctl role grant-permission ROLE --prefix=true readwrite /holdfast/"
            )
        if "not enabled" in text:
            return ConfigError(
                f"the etcd cluster at {cluster} knows no users: {text}; leave the user and the "
                "password out of the URL, or enable it: etcdctl auth enable"
            )
        if self.code == "UNAUTHENTICATED" or "authentication" in text or "user name" in text:
            return ConfigError(
                f"the etcd cluster at {cluster} does not let us in: {text}; give its user and "
                "password in the URL, as etcd://user:password@host:2379"
            )
        if self.code == "DEADLINE_EXCEEDED" and not self.untouched:
            text = "it did not answer in time"
        return BackendUnavailable(f"the etcd cluster at {cluster} cannot be used: {text}")


_LOG_IN = ("auth store is old", "user name is empty")
_PASSING = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED", "INTERNAL", "UNKNOWN"}


def failure_of(end: End | None, endpoint: str) -> Failure:
    """Returns the failure of a call that ended without a reply."""
    if end is None or end is OK:
        return Failure("UNKNOWN", "the server ended a call without a reply", endpoint)
    return Failure(end.code, end.details, endpoint, end.untouched)


def unreachable(error: BaseException, endpoint: str) -> Failure:
    """Returns the failure of a call for which there was no connection."""
    if isinstance(error, TimeoutError):
        text = why_late(*host_and_port(endpoint)) or str(error)
        text = f": {text}" if text else " in time"
        return Failure("DEADLINE_EXCEEDED", f"{endpoint} cannot be reached{text}", endpoint, True)
    text = getattr(error, "strerror", None) or str(error)
    if isinstance(error, ConnectionError) and error.errno:
        text = strerror(error.errno)  # asyncio has words of its own
    return Failure("UNAVAILABLE", f"{endpoint} cannot be reached: {text}", endpoint, True)
