"""Problems: every refusal of the service, as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

import errno
from typing import Any, NamedTuple

from ..errors import (
    BackendUnavailable,
    ConfigError,
    GuaranteeError,
    LeaseLost,
    LockError,
    StaleToken,
)
from ..refusals import GivenUp
from .answers import Answer, Headers


class Kind(NamedTuple):
    """One kind of problem: its status, and its title for people."""

    status: int
    title: str


KINDS = {
    "bad-request": Kind(400, "The request cannot be read"),
    "unauthorized": Kind(401, "The caller is not known"),
    "forbidden": Kind(403, "The caller may not do this"),
    "not-found": Kind(404, "There is nothing here"),
    "method-not-allowed": Kind(405, "This cannot be done here"),
    "busy": Kind(409, "Others hold the lock"),
    "stale-token": Kind(409, "The fence refused the token"),
    "gone": Kind(410, "The owner neither holds the lock nor waits for it"),
    "too-large": Kind(413, "The request is too large"),
    "media-type": Kind(415, "The body is not JSON"),
    "misdirected": Kind(421, "This service does not answer to that name"),
    "bad-input": Kind(422, "The request makes no sense"),
    "guarantee": Kind(422, "The store cannot promise this"),
    "too-many": Kind(429, "Too many requests"),
    "head-too-large": Kind(431, "The headers are too large"),
    "internal": Kind(500, "A mistake in Holdfast itself"),
    "unavailable": Kind(503, "The store does not answer"),
    "closed": Kind(503, "The service lets nobody in"),
    "stopping": Kind(503, "The service is stopping"),
}
"""The kinds of problems, by the last part of their `type`."""

RETRY_AFTER = "1"
"""Seconds after which a client may ask again, when the store or the service could not answer."""
MEDIA_TYPE = b"application/problem+json"


class Problem(Exception):
    """Raised to end a request with a problem of this kind."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        headers: Headers = (),
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status = KINDS[kind].status
        self.detail = detail
        self.headers = tuple(headers)
        self.members = {key: value for key, value in members.items() if value is not None}
        """The fields of the problem beside its title and detail: `name`, `owner`, `token`, `field`."""

    def answer(self) -> Answer:
        """Returns the problem as it is sent."""
        headers = self.headers
        if self.status == KINDS["unavailable"].status:
            headers = (*headers, (b"retry-after", RETRY_AFTER.encode()))
        body = {
            "type": f"/problems/{self.kind}",
            "title": KINDS[self.kind].title,
            "status": self.status,
            "detail": self.detail,
            **self.members,
        }
        return Answer(self.status, body, headers, MEDIA_TYPE)


def no_namespace(namespace: str | None) -> Problem:
    """Returns the problem of a namespace that is not there, or not there for the caller."""
    return Problem("not-found", f"this service has no namespace {namespace!r:.80} for you")


def too_late(name: str, owner: str) -> Problem:
    """Returns the problem of a request that came after its attempt had been given up."""
    return Problem(
        "gone",
        f"the request for {name!r} came after it had been given up; ask again, with another owner id",
        name=name,
        owner=owner,
    )


def out_of_descriptors(error: Exception) -> Problem | None:
    """Returns the problem of a service that may open nothing more; None for any other error.

    That may strike anywhere, also where a module is imported when it is first needed.
    """
    if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
        return None
    return Problem("unavailable", f"the service may open nothing more: {error.strerror}")


def problem_of(error: LockError, name: str | None = None, owner: str | None = None) -> Problem:
    """Returns the problem that an error of the library is; `name` and `owner` where it has none."""
    members: dict[str, Any] = {
        "name": error.name if error.name is not None else name,
        "owner": error.owner if error.owner is not None else owner,
        "token": error.token,
    }
    if isinstance(error, GivenUp):
        return too_late(members["name"] or "", members["owner"] or "")
    if isinstance(error, StaleToken):
        more: dict[str, Any] = {
            "resource": error.resource,
            "highest": error.highest,
            "reason": error.reason,
        }
        return Problem("stale-token", str(error), **members, **more)
    kind = "unavailable"
    for type_, candidate in _KIND_OF:
        if isinstance(error, type_):
            kind = candidate
            break
    return Problem(kind, str(error), **members)


_KIND_OF: tuple[tuple[type[LockError], str], ...] = (
    (BackendUnavailable, "unavailable"),
    (ConfigError, "bad-input"),
    (GuaranteeError, "guarantee"),
    (LeaseLost, "gone"),
)
