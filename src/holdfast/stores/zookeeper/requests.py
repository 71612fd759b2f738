"""The requests that are sent to ZooKeeper, and the names of kazoo that the other modules use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.serialization import (
    Create,
    Create2,
    Delete,
    GetChildren2,
    GetData,
    SetData,
    Sync,
    Transaction,
    multiheader_struct,
)
from kazoo.protocol.states import EventType, KazooState

__all__ = [
    "EPHEMERAL",
    "SEQUENTIAL",
    "AuthFailedError",
    "BadVersionError",
    "Conflict",
    "EventType",
    "InvalidACLError",
    "KazooState",
    "NoAuthError",
    "NoNodeError",
    "NodeExistsError",
    "ReplyCallback",
    "Step",
    "Unanswered",
    "create",
    "create_beside",
    "create_container",
    "delete",
    "done",
    "get_children",
    "get_data",
    "move",
    "remove",
    "set_data",
    "step_replies",
    "sync",
]

ReplyCallback = Callable[[Any, Exception | None], None]
"""A function to call with the value that a request returned, or with its error."""

Unanswered = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError)
"""Errors after which a request may have been carried out, or not."""

EPHEMERAL, SEQUENTIAL, CONTAINER = 1, 2, 4


class _CreateContainer(Create2):  # type: ignore[misc]
    """The request for a container, which the server removes some time after its last child has gone."""

    type = 19


class Step:
    """The request for several writes in one step, with one zxid: all of them are done, or none."""

    type = Transaction.type

    __slots__ = ("writes",)

    def __init__(self, writes: Sequence[Any]) -> None:
        self.writes = writes

    def serialize(self) -> bytes:
        text = bytearray()
        for request in self.writes:
            text += multiheader_struct.pack(request.type, False, -1) + request.serialize()
        return bytes(text + multiheader_struct.pack(-1, True, -1))

    @staticmethod
    def deserialize(text: bytes, offset: int) -> list[Any]:
        """Returns the replies to the writes, or the error, in a list: kazoo wants one."""
        return step_replies(Transaction.deserialize(text, offset))


class Conflict(Exception):
    """The error of a step of which a write behind the first found another state than was read."""


def step_replies(replies: list[Any]) -> list[Any]:
    """Returns the replies to the writes of a step; if it was not done, the reason alone."""
    for number, reply in enumerate(replies):
        if isinstance(reply, Exception) and not isinstance(reply, RolledBackError):
            expected = (BadVersionError, NodeExistsError, NoNodeError)
            return [Conflict() if number and isinstance(reply, expected) else reply]
    return replies


class Creator(Protocol):
    """The client session or the manager that creates a znode."""

    acl: Sequence[Any]


def create(client: Creator, path: str, data: bytes, flags: int = 0) -> Any:
    return Create2(path, data, client.acl, flags)


def create_container(client: Creator, path: str) -> Any:
    return _CreateContainer(path, b"", client.acl, CONTAINER)


def delete(path: str, version: int = -1) -> Any:
    return Delete(path, version)


def set_data(path: str, data: bytes, version: int = -1) -> Any:
    return SetData(path, data, version)


def move(
    client: Creator,
    path: str,
    data: bytes,
    to: str = "",
    flags: int = EPHEMERAL,
    beside: Sequence[Any] = (),
) -> Step:
    """Returns the request to delete a znode and create it again, in one step and with one zxid.

    The znode keeps its path, or gets the path `to`, in which it keeps its place in the queue. From then
    on it ends with the session that has sent this. Where there is no such znode nothing happens; so it
    may be repeated, and one that comes late does not bring back what was deleted. `beside` are writes
    that belong to the same step.
    """
    to = to or path
    # The last write's reply says the zxid; a creation's does not.
    created = (Create(to, b"", client.acl, flags), *beside, SetData(to, data, -1))
    return Step((Delete(path, -1), *created))


def remove(path: str, beside: str) -> Any:
    """Returns the request to delete a znode, and with it `beside`, unless that is empty."""
    return Step((Delete(path, -1), Delete(beside, -1))) if beside else Delete(path, -1)


def create_beside(client: Creator, path: str, data: bytes, flags: int = 0) -> Any:
    """Returns the request to create a znode, as a part of a step."""
    return Create(path, data, client.acl, flags)


def done(value: Any, error: Exception | None) -> tuple[Any, Exception | None]:
    """Returns the reply to the last write of a step, or the error, out of the reply to the step.

    The reply to another request is returned as it is.
    """
    if error is not None or not isinstance(value, list):
        return value, error
    return (None, value[0]) if isinstance(value[0], Exception) else (value[-1], None)


def get_data(path: str, watcher: Callable[[Any], None] | None = None) -> Any:
    return GetData(path, watcher)


def get_children(path: str, watcher: Callable[[Any], None] | None = None) -> Any:
    return GetChildren2(path, watcher)


def sync(path: str) -> Any:
    return Sync(path)
