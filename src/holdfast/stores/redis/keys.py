"""The names of the keys on a server.

    NAMESPACE:{NAME}            the lock: an ordinary string with a TTL, for every client to see
    NAMESPACE:{NAME}:q          its queue; beside it :q:OWNER, :h, :e, :f, :c, :o, see scripts/queue.lua
    NAMESPACE:token:N           the counters of tokens, N from 0 to 255, for any number of locks
    NAMESPACE:audit             records of forced releases, the newest first
    NAMESPACE:wake:ID           the channels on which waiters and observers are woken
    NAMESPACE:recall            the channel on which holders are told of forced releases

The braces put all keys of a lock into one slot of a cluster. In the namespace `{`, `}` and `%`, and in
the name `}` and `%`, are written as %7B, %7D and %25, so that no two locks meet. `key="lock:*"` gives
the lock key another form, `*` standing for the name; the others are then `holdfast:{KEY}:q` and so on.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ...errors import ConfigError
from .wire.protocol import bulk

COUNTERS = 256


class LockKeys(NamedTuple):
    """The keys of one lock."""

    lock: bytes
    queue: bytes
    counter: bytes
    guard: bytes = b""
    """A key that never exists, in a cluster: see `cluster`."""


@lru_cache(maxsize=64)
def _counters(space: str) -> tuple[bytes, ...]:
    return tuple(f"{space}:token:{number}".encode() for number in range(COUNTERS))


class Naming:
    """The names of the keys of one manager."""

    def __init__(self, namespace: str, form: Any) -> None:
        space = namespace.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
        self.space = space.encode()
        self.audit = f"{space}:audit".encode()
        self.channels = f"{space}:wake:".encode()
        self.recalls = f"{space}:recall".encode()
        self._counters = _counters(space)
        if form is None:
            form = f"{space}:{{*}}"
        elif not isinstance(form, str) or form.count("*") != 1 or not form.isprintable():
            raise ConfigError("key must be a text with one *, for the lock's name: key='lock:*'")
        elif "{" in form.replace("{*}", "") or "}" in form.replace("{*}", ""):
            raise ConfigError("key may have braces only around the name: key='lock:{*}'")
        self._text_before, self._text_after = str(form).split("*")
        self._before, self._after = self._text_before.encode(), self._text_after.encode()
        # A form that ends in {*} can be told from its own side keys; another is wrapped.
        self._tagged = form.endswith("{*}")
        self._side = b"" if self._tagged else b"holdfast:{"
        self._side_after = b":q" if self._tagged else b"}:q"

    def of(self, name: str) -> LockKeys:
        written = _written(name)
        lock = self._before + written + self._after
        counter = self._counters[crc32(written) % COUNTERS]
        return LockKeys(lock, self._side + lock + self._side_after, counter)

    def audit_of(self, name: str) -> bytes:
        """Returns the key of the list in which forced releases of this lock are recorded."""
        return self.audit

    def lock_key(self, name: str) -> bytes:
        return self._before + _written(name) + self._after

    def packed(self, names: Sequence[str]) -> bytes:
        """Returns the lock keys of `names`, packed as arguments of a command."""
        every = "".join(names)
        if not every.isascii() or "%" in every or "}" in every:
            return b"".join([bulk(self.lock_key(name)) for name in names])
        # Text, packed as such and then turned into bytes at once: that is cheaper.
        before, after = self._text_before, self._text_after
        more = len(self._before) + len(self._after)
        keys = [f"${more + len(name)}\r\n{before}{name}{after}\r\n" for name in names]
        return "".join(keys).encode()

    def patterns(self, prefix: str) -> list[bytes]:
        """Returns patterns for SCAN by which every lock whose name starts with `prefix` is found.

        A pattern may match more than that, never less.
        """
        start = _literal(self._before + _written(prefix))
        if self._tagged:
            return [start + b"*"]
        return [start + b"*" + _literal(self._after), _literal(self._side) + start + b"*:q"]

    def name_of(self, key: bytes) -> str | None:
        """Returns the name of the lock that `key` belongs to; None if the key is not ours."""
        if not self._tagged and key.startswith(self._side) and key.endswith(self._side_after):
            key = key[len(self._side) : -len(self._side_after)]
        if not key.startswith(self._before):
            return None
        if self._tagged:
            written, brace, _ = key[len(self._before) :].partition(b"}")
            if not brace:
                return None
        else:
            if not key.endswith(self._after):
                return None
            written = key[len(self._before) : len(key) - len(self._after)]
        try:
            return written.decode().replace("%7D", "}").replace("%25", "%") or None
        except UnicodeDecodeError:
            return None


def _written(name: str) -> bytes:
    if "%" in name or "}" in name:
        name = name.replace("%", "%25").replace("}", "%7D")
    return name.encode()


def _literal(pattern: bytes) -> bytes:
    for char in b"\\*?[]^":
        pattern = pattern.replace(bytes([char]), b"\\" + bytes([char]))
    return pattern
