"""Requests of `RedisFence`, and marks and floors as they stand in Redis."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from .floors import Floor
from .rules import Mark

Result = TypeVar("Result")


class Request(NamedTuple):
    command: tuple[Any, ...]
    text: str = ""
    """The script of an EVALSHA, sent if the server does not know it yet."""
    node: Any = None
    """The server of a cluster to send it to; None for the one that has the key."""


Steps = Generator[Request, Any, Result]


def parse_mark(value: Any) -> Mark:
    """Returns the mark that is kept as `WRITER/READER MILLISECONDS LOCK`."""
    if value is None:
        return Mark()
    tokens, _, lock = text_of(value).split(" ", 2)
    highest, _, reader = tokens.partition("/")
    return Mark(int(highest), lock, int(reader or 0))


def parse_floor(value: Any) -> Floor:
    """Returns the floor that is kept as `WRITER READER`, with a third word if it is pinned."""
    words = text_of(value or "0").split(" ")
    return Floor(int(words[0]), int(words[1]) if len(words) > 1 else 0, len(words) > 2)


def text_of(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else value
