"""The scripts that run inside the server, from `holdfast/scripts/redis_*.lua`."""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha1
from typing import NamedTuple

from .protocol import bulk, pack

NAMES = ("acquire", "release", "keep", "beat", "look", "force")
REDLOCK = (
    "take",
    "takes",
    "raise",
    "free",
    "frees",
    "keep",
    "wait",
    "leave",
    "look",
    "force",
    "begin",
    "seal",
    "admit",
)
_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "scripts")
_INCLUDE = "--@include "


class Script(NamedTuple):
    load: bytes
    """The command that brings it to the server."""
    digest: bytes
    call: bytes
    """The first two parts of the command that runs it, without the count of parts."""

    def command(self, keys: int, parts: int) -> bytes:
        """How a call of it begins, with so many keys and so many parts (keys and arguments)."""
        return _beginning(self.call, keys, parts)


@cache
def _beginning(call: bytes, keys: int, parts: int) -> bytes:
    return b"*%d\r\n" % (parts + 3) + call + bulk(b"%d" % keys)


@cache
def scripts() -> dict[str, Script]:
    return {name: _script(f"redis_{name}.lua") for name in NAMES}


@cache
def redlock_scripts() -> dict[str, Script]:
    return {name: _script(f"redlock_{name}.lua") for name in REDLOCK}


@cache
def text_of(file_name: str) -> bytes:
    """As it is sent."""
    return "\n".join(_lines(file_name)).encode()


def _script(file_name: str) -> Script:
    text = text_of(file_name)
    sha = sha1(text, usedforsecurity=False).hexdigest().encode()
    return Script(pack(b"SCRIPT", b"LOAD", text), sha, bulk(b"EVALSHA") + bulk(sha))


def _lines(file_name: str) -> list[str]:
    """Without comments: they would be kept in the server's memory."""
    lines: list[str] = []
    with open(os.path.join(_FOLDER, file_name), encoding="utf-8") as file:
        text = file.read()
    for line in text.splitlines():
        if line.startswith(_INCLUDE):
            lines += _lines(line.removeprefix(_INCLUDE).strip())
        elif line.strip() and not line.lstrip().startswith("--"):
            lines.append(line)
    return lines
