"""The requests that are sent to ZooKeeper, and the names of kazoo that the other modules use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.serialization import Create2, Delete, GetChildren2, GetData, SetData, Sync
from kazoo.protocol.states import EventType, KazooState

if TYPE_CHECKING:
    from .client import Client

__all__ = [
    "EPHEMERAL",
    "SEQUENTIAL",
    "AuthFailedError",
    "BadVersionError",
    "EventType",
    "InvalidACLError",
    "KazooState",
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


def create(client: Client, path: str, data: bytes, flags: int = 0) -> Any:
    return Create2(path, data, client.acl, flags)


def create_container(client: Client, path: str) -> Any:
    return _CreateContainer(path, b"", client.acl, CONTAINER)


def delete(path: str) -> Any:
    return Delete(path, -1)


def set_data(path: str, data: bytes, version: int = -1) -> Any:
    return SetData(path, data, version)


def get_data(path: str, watcher: Callable[[Any], None] | None = None) -> Any:
    return GetData(path, watcher)


def get_children(path: str, watcher: Callable[[Any], None] | None = None) -> Any:
    return GetChildren2(path, watcher)


def sync(path: str) -> Any:
    return Sync(path)
