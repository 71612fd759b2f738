"""Commands as bytes, and the greeting of a connection. The parser is hiredis, an extra."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from ....errors import BackendUnavailable, ConfigError
from ....refusals import lacks
from ..address import Address
from .refusals import refusal

NOTHING: Any = ...
"""The result of a reader whose reply is not complete."""
CLIENT_NAME = b"holdfast"


class Lost(BackendUnavailable):
    """Raised when no reply came: the command may have been carried out, or may yet be.

    `broken`: the connection is gone, so sending again makes sense; otherwise the time was over.
    """

    broken = True


class Late(Lost):
    """Raised when no reply came in time, on a connection that may still be good."""

    broken = False


def require_hiredis() -> None:
    """Raises `ConfigError` if the driver is missing."""
    if sys.modules.get("hiredis") is None and find_spec("hiredis") is None:
        raise ConfigError(lacks("redis://", "the package hiredis", "redis"))


def bulk(data: bytes) -> bytes:
    """Returns one part of a command, packed."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def pack(*parts: bytes) -> bytes:
    """Returns a command, packed."""
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(p), p) for p in parts])


def greeting(address: Address, credentials: tuple[str, str] | None = None) -> list[bytes]:
    """Returns the first commands on a connection: RESP3, which has wake-ups beside replies.

    `credentials`, where they were asked for already, are those of the address's login.
    """
    hello = [b"HELLO", b"3"]
    if credentials is None:
        credentials = address.login.get() if address.login else (address.user, address.password)
    user, password = credentials
    if password or user:
        hello += [b"AUTH", (user or "default").encode(), password.encode()]
    commands = [pack(*hello, b"SETNAME", CLIENT_NAME)]
    if address.db:
        commands.append(pack(b"SELECT", b"%d" % address.db))
    return commands


def check_welcome(reply: Any, address: Address) -> None:
    """Refuses a server that does not take one of the commands in a greeting.

    Each reply is checked before the next is waited for: a server that lets nobody in says why in its
    first reply, and hangs up.
    """
    if isinstance(reply, Exception):
        text = str(reply)
        if text.startswith("ERR unknown command") or text.startswith("NOPROTO"):
            raise _too_old(address, "older than 6.0")
        raise refusal(reply, address)


def check_hello(reply: Any, address: Address) -> None:
    """Refuses a server, by its reply to HELLO, that does not let us in, or that is too old."""
    check_welcome(reply, address)
    check_kind(reply, address)
    version = reply.get(b"version", b"")
    numbers = version.split(b".")
    if len(numbers) >= 2 and all(number.isdigit() for number in numbers[:2]):
        major, minor = int(numbers[0]), int(numbers[1])
        if (major, minor) < (6, 2):
            raise _too_old(address, f"version {major}.{minor}")


def check_kind(hello: dict[bytes, bytes], address: Address) -> None:
    """Refuses a server of another kind than the URL says."""
    mode = hello.get(b"mode", b"standalone").decode()
    wanted = "standalone" if address.expects == "primary" else address.expects
    if mode != wanted:
        raise ConfigError(
            f"the server at {address} is {_KINDS.get(mode, mode)}, and not {_KINDS[wanted]}: "
            f"{_SCHEMES.get(mode, 'redis://')} is the URL for that"
        )
    if address.expects == "primary" and hello.get(b"role", b"master") != b"master":
        # As if the connection had broken: replies to commands that were sent along do not count.
        raise Lost(f"the server at {address} is a replica, and no longer or not yet the primary")


_KINDS = {
    "standalone": "a single server",
    "cluster": "part of a cluster",
    "sentinel": "a sentinel",
}
_SCHEMES = {"cluster": "redis+cluster://", "sentinel": "redis+sentinel://"}


def _too_old(address: Address, version: str) -> ConfigError:
    return ConfigError(f"the server at {address} is {version}; holdfast needs Redis 6.2 or Valkey")
