"""Commands as bytes, and what a server's refusals mean. The parser is hiredis, an extra."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from ....errors import BackendUnavailable, ConfigError
from ....model import OWNER_ID
from ..address import Address

NOTHING: Any = ...
"""What a reader answers when the reply is not complete."""
CLIENT_NAME = b"holdfast"


class Lost(BackendUnavailable):
    """Raised when no answer came: the command may have been carried out, or may yet be.

    `broken`: the connection is gone, so asking again makes sense; otherwise the time was over.
    """

    broken = True


class Late(Lost):
    """Raised when no answer came in time, on a connection that may still be good."""

    broken = False


def require_hiredis() -> None:
    if sys.modules.get("hiredis") is None and find_spec("hiredis") is None:
        raise ConfigError("redis:// needs a driver that is missing: pip install 'holdfast[redis]'")


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def pack(*parts: bytes) -> bytes:
    """One command."""
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(p), p) for p in parts])


NO_CHANNEL = bulk(b"")
"""Of one who is not to be put into the queue, or of a connection that has not needed one yet."""

PING = pack(b"PING", b"the next one is told")
"""Sent ahead of a release that will wake somebody. Of those to whom a server has something to write, it
serves the latest first: that would be the one who gave the lock away, because its answer is made after
the wake-up is. The answer to a PING ahead of it makes it the earlier one, so the next holder starts
first. On two processors that is a fifth of the time between two holders. It is answered with its own
text, which makes that answer `LONG`."""

ONE = b":1\r\n"
FREED = bulk(b"the next one is told") + ONE
"""What is answered to both, if the release freed it."""

MESSAGE = b">3\r\n" + bulk(b"message")
"""How everything that is published begins; its channel and its text follow."""

LONG = 18
"""Bytes. What is shorter can wait a little, on a connection that waits to be handed a lock: it only
says that one is in the queue. A token and a wake-up are longer."""


DIGITS = 16
"""Of a token, as long as it is counted in microseconds since 1970."""
_TOKEN_BEHIND = len(b" ") + DIGITS + len(b"\r\n")
TOKEN_IS = b"$%d\r\n" % DIGITS
A_TOKEN = len(TOKEN_IS) + DIGITS + 2
"""Bytes of an answer that is one."""


def wake_up(channel: bytes) -> bytes:
    """How a message begins by which an owner id of ours is handed a lock; the id and a token follow."""
    return b"%b%b$%d\r\n" % (MESSAGE, channel, OWNER_ID + 1 + DIGITS)


def handed(data: bytes, beginning: bytes) -> int:
    """The token, if this is a place in the queue and such a wake-up, and nothing else; otherwise 0.

    `beginning` ends with the owner. The parser can find that out, too, at several times the cost; and
    others wait for the lock by now. It is passed by safely: the rest of what it has not finished would
    be at the beginning here.
    """
    place, _, token = data.partition(beginning)
    if len(token) != _TOKEN_BEHIND or place[:1] != b":" or place.count(b"\n") != 1:
        return 0
    try:
        return int(token)
    except ValueError:
        return 0


def woken(message: bytes) -> tuple[str, int]:
    """Who is told, and its token; 0 where it was not granted, and should ask."""
    try:
        owner, token = message.decode().split(" ")
        return owner, int(token)
    except ValueError:
        return "", 0  # nothing that we sent


def greeting(address: Address) -> list[bytes]:
    """The first commands on a connection: RESP3, which brings wake-ups beside answers; who we are."""
    hello = [b"HELLO", b"3"]
    user, password = address.login() if address.login else (address.user, address.password)
    if password or user:
        hello += [b"AUTH", (user or "default").encode(), password.encode()]
    commands = [pack(*hello, b"SETNAME", CLIENT_NAME)]
    if address.db:
        commands.append(pack(b"SELECT", b"%d" % address.db))
    return commands


def check_greeting(replies: list[Any], address: Address) -> None:
    """Refuse a server that does not let us in, or that is too old."""
    for reply in replies:
        if isinstance(reply, Exception):
            text = str(reply)
            if text.startswith("ERR unknown command") or text.startswith("NOPROTO"):
                raise _too_old(address, "one before 6.0")
            raise refusal(reply, address)
    check_kind(replies[0], address)
    version = replies[0].get(b"version", b"")
    numbers = version.split(b".")
    if len(numbers) >= 2 and all(number.isdigit() for number in numbers[:2]):
        major, minor = int(numbers[0]), int(numbers[1])
        if (major, minor) < (6, 2):
            raise _too_old(address, f"version {major}.{minor}")


def check_kind(hello: dict[bytes, bytes], address: Address) -> None:
    """Refuse a server that is something else than the URL says."""
    mode = hello.get(b"mode", b"standalone").decode()
    wanted = "standalone" if address.expects == "primary" else address.expects
    if mode != wanted:
        raise ConfigError(
            f"the server at {address} is {_KINDS.get(mode, mode)}, and not {_KINDS[wanted]}: "
            f"{_SCHEMES.get(mode, 'redis://')} is the URL for that"
        )
    if address.expects == "primary" and hello.get(b"role", b"master") != b"master":
        # As if the connection had broken: whatever was sent along is not to be believed.
        raise Lost(f"the server at {address} is a replica, and no longer or not yet the primary")


_KINDS = {
    "standalone": "a server that stands alone",
    "cluster": "part of a cluster",
    "sentinel": "a sentinel",
}
_SCHEMES = {"cluster": "redis+cluster://", "sentinel": "redis+sentinel://"}


def _too_old(address: Address, what: str) -> ConfigError:
    return ConfigError(f"the server at {address} is {what}; holdfast needs Redis 6.2 or Valkey")


_LET_IN = ("NOAUTH", "WRONGPASS", "NOPERM")
_WORDS = {
    "READONLY": "is a read-only replica; connect to the primary",
    "LOADING": "is still loading its data",
    "OOM": "is out of memory (maxmemory), so it cannot keep another lock",
    "MISCONF": "refuses writes because it cannot save its data to disk",
    "NOREPLICAS": "refuses writes because too few replicas are connected",
    "MASTERDOWN": "is a replica that has lost its primary",
    "BUSY": "is busy with somebody's long script",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "MOVED": "belongs to a cluster, where this lock is on another server",
    "ASK": "belongs to a cluster in which this lock is on the move to another server",
    "TRYAGAIN": "belongs to a cluster in which this lock is on the move to another server",
    "NOREPLICA": "has no replica",
}
PASSING = frozenset({"LOADING", "BUSY", "TRYAGAIN"})
"""Refusals that end by themselves: asked again until the call's time is over."""
TURNED = frozenset({"READONLY", "MASTERDOWN"})
"""Refusals after which the connection is not used again: another may lead to the primary."""
PASSING_OVER = PASSING | TURNED | {"NOREPLICAS"}
"""Refusals that end with a failover, where somebody takes care of that: asked again, too."""
MOVING = PASSING_OVER | {"MOVED", "ASK", "CLUSTERDOWN"}
"""The same in a cluster: also those that end when a slot has moved, or is served again."""


def code_of(error: Exception) -> str:
    text = str(error)
    if text.startswith("ERR Error running script"):
        # Redis 6 wraps what a command inside a script was refused with.
        text = text.partition(": -")[2] or text
    return text.partition(" ")[0]


def refusal(error: Exception, address: Address) -> BackendUnavailable | ConfigError:
    """What to raise for an error that the server answered. Its text never holds our secrets."""
    code = code_of(error)
    text = str(error)
    if code in _LET_IN or text.startswith("ERR AUTH") or "invalid password" in text:
        return ConfigError(
            f"the server at {address} does not let us in ({code}): check the user, the password and "
            "the user's permissions"
        )
    if text.startswith("ERR DB index"):
        return ConfigError(f"the server at {address} has no such database: {text}")
    words = _WORDS.get(code)
    if words is None:
        return BackendUnavailable(f"the server at {address} refused: {text[:200]}")
    return BackendUnavailable(f"the server at {address} {words}")
