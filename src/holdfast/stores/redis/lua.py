"""The Lua scripts that run inside a Redis server, read from a folder and packed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from hashlib import sha1
from typing import NamedTuple

from .wire.protocol import bulk, pack

NAMES = (
    "acquire",
    "acquire_all",
    "release",
    "release_all",
    "keep",
    "beat",
    "look",
    "force",
    "amend",
    "detach",
    "adopt",
    "observe",
    "unobserve",
)
_FOLDER = os.path.join(os.path.dirname(__file__), "scripts")
_INCLUDE = "--@include "


class Script(NamedTuple):
    """A script, as it is sent to a server."""

    load: bytes
    """The command that loads it into the server."""
    digest: bytes
    call: bytes
    """The first two parts of the command that runs it, without the count of parts."""

    def command(self, keys: int, parts: int) -> bytes:
        """Returns the beginning of a call with so many keys and so many parts (keys and arguments)."""
        return _beginning(self.call, keys, parts)


@cache
def _beginning(call: bytes, keys: int, parts: int) -> bytes:
    return b"*%d\r\n" % (parts + 3) + call + bulk(b"%d" % keys)


@cache
def scripts() -> dict[str, Script]:
    """Returns the scripts of a single Redis, by name."""
    return scripts_in(_FOLDER, NAMES)


def scripts_in(folder: str, names: Iterable[str]) -> dict[str, Script]:
    """Returns the scripts of those names in `folder`."""
    return {name: _script(script_text(folder, name)) for name in names}


@cache
def script_text(folder: str, name: str) -> bytes:
    """Returns the script `name` of `folder` as it is sent: with what it includes, without comments."""
    return "\n".join(_lines(folder, f"{name}.lua")).encode()


def _script(text: bytes) -> Script:
    sha = sha1(text, usedforsecurity=False).hexdigest().encode()
    return Script(pack(b"SCRIPT", b"LOAD", text), sha, bulk(b"EVALSHA") + bulk(sha))


def _lines(folder: str, file_name: str) -> list[str]:
    """Returns the lines without comments, which the server would keep in its memory."""
    lines: list[str] = []
    with open(os.path.join(folder, file_name), encoding="utf-8") as file:
        text = file.read()
    for line in text.splitlines():
        if line.startswith(_INCLUDE):
            lines += _lines(folder, line.removeprefix(_INCLUDE).strip())
        elif line.strip() and not line.lstrip().startswith("--"):
            lines.append(line)
    return lines
