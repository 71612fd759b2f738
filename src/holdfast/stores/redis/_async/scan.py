"""The names of the locks on one Redis server, found by SCAN. Redlock uses it node by node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from ..wire.protocol import pack

SCAN_COUNT = b"1000"


class KeyNames(Protocol):
    """The part of a naming that finds the keys of locks."""

    def patterns(self, prefix: str) -> Sequence[bytes]: ...

    def name_of(self, key: bytes) -> str | None: ...


async def lock_names(
    naming: KeyNames, prefix: str, call: Callable[[bytes], Awaitable[Any]]
) -> set[str]:
    """Returns the names of all locks on the server that `call` sends a command to.

    Some of them may not start with `prefix`: a pattern cannot express all.
    """
    names: set[str] = set()
    for pattern in naming.patterns(prefix):
        cursor = b"0"
        while True:
            command = pack(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", SCAN_COUNT)
            cursor, keys = await call(command)
            names.update(filter(None, map(naming.name_of, keys)))
            if cursor == b"0":
                break
    return names
