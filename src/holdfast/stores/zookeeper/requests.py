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
    "EventType",
    "InvalidACLError",
    "KazooState",
    "Move",
    "NoAuthError",
    "NoNodeError",
    "NodeExistsError",
    "ReplyCallback",
    "Unanswered",
    "create",
    "create_container",
    "delete",
    "get_children",
    "get_data",
    "move",
    "moved",
    "set_data",
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


class Move:
    """The request to delete a znode and create it again, in one step and with one zxid.

    The znode keeps its path, and with that its place in the queue. From then on it ends with the
    session that has sent this. Where there is no such znode nothing happens; so it may be repeated,
    and one that comes late does not bring back what was deleted.
    """

    type = Transaction.type

    __slots__ = ("acl", "data", "path")

    def __init__(self, path: str, data: bytes, acl: Sequence[Any]) -> None:
        self.path = path
        self.data = data
        self.acl = acl

    def serialize(self) -> bytes:
        text = bytearray()
        for request in (
            Delete(self.path, -1),
            Create(self.path, b"", self.acl, EPHEMERAL),
            SetData(self.path, self.data, -1),  # whose reply says the zxid; a creation's does not
        ):
            text += multiheader_struct.pack(request.type, False, -1) + request.serialize()
        return bytes(text + multiheader_struct.pack(-1, True, -1))

    @staticmethod
    def deserialize(text: bytes, offset: int) -> list[Any]:
        """Returns the facts about the new znode, or the error, in a list: kazoo wants one."""
        results = Transaction.deserialize(text, offset)
        failed = (result for result in results if isinstance(result, Exception))
        cause = next((error for error in failed if not isinstance(error, RolledBackError)), None)
        return [results[-1] if cause is None else cause]


class Creator(Protocol):
    """The client session or the manager that creates a znode."""

    acl: Sequence[Any]


def create(client: Creator, path: str, data: bytes, flags: int = 0) -> Any:
    return Create2(path, data, client.acl, flags)


def create_container(client: Creator, path: str) -> Any:
    return _CreateContainer(path, b"", client.acl, CONTAINER)


def delete(path: str) -> Any:
    return Delete(path, -1)


def set_data(path: str, data: bytes, version: int = -1) -> Any:
    return SetData(path, data, version)


def move(client: Creator, path: str, data: bytes) -> Move:
    return Move(path, data, client.acl)


def moved(value: Any, error: Exception | None) -> tuple[Any, Exception | None]:
    """Returns the facts about the new znode, or the error, out of the reply to a `Move`."""
    if error is None and isinstance(value[0], Exception):
        return None, value[0]
    return (None, error) if error is not None else (value[0], None)


def get_data(path: str, watcher: Callable[[Any], None] | None = None) -> Any:
    return GetData(path, watcher)


def get_children(path: str, watcher: Callable[[Any], None] | None = None) -> Any:
    return GetChildren2(path, watcher)


def sync(path: str) -> Any:
    return Sync(path)
