"""A simulated Redis server: its starts and crashes, and its connections. The rest is in `lua`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha1
from typing import Any

from ..connection import SimConnection
from ..process import Process
from .lua import lua

YES = (b":0\r\n", b":1\r\n")
NO_SCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


@cache
def digest_of(text: bytes) -> bytes:
    return sha1(text, usedforsecurity=False).hexdigest().encode()


@cache
def _reader_type() -> Any:
    from hiredis import Reader

    return Reader


class Session:
    """A client's connection, as the server sees it."""

    __slots__ = ("channels", "feed", "gets")

    def __init__(self) -> None:
        reader = _reader_type()(notEnoughData=...)
        self.feed = reader.feed
        self.gets = reader.gets
        self.channels: set[bytes] = set()


class RedisNode:
    """One server, whose data, clock, crashes and restarts are up to the simulation."""

    def __init__(self, process: Process, altered: dict[bytes, bytes] | None = None) -> None:
        self.process = process
        self.up = True
        self.incarnation = 0
        self.run_id = b""
        self.connections: dict[SimConnection, None] = {}
        self._lua = lua()
        self._data = self._lua.database()
        self._snapshot = self._lua.database()
        self._altered = altered or {}
        """Scripts that are run in place of others, by variants that break a rule."""
        self._scripts: dict[bytes, Any] = {}
        self._start()

    def _start(self) -> None:
        self.incarnation += 1
        self.run_id = b"%040x" % self.process.loop.random.getrandbits(160)
        self._scripts = {}

    # Starts and crashes.

    def crash(self) -> None:
        self.up = False
        connections, self.connections = self.connections, {}
        for connection in connections:
            connection.reset()

    def save(self) -> None:
        self._snapshot = self._lua.copied(self._data)

    def restart(self, memory: str) -> None:
        """Restarts with `all` of its data, with what was last saved (`snapshot`), or with `nothing`."""
        if memory == "snapshot":
            self._data = self._lua.copied(self._snapshot)
        elif memory != "all":
            self._data = self._lua.database()
        self._start()
        self.up = True

    # Connections.

    def opened(self, connection: SimConnection) -> None:
        connection.state = Session()
        self.connections[connection] = None

    def closed(self, connection: SimConnection) -> None:
        self.connections.pop(connection, None)

    def received(self, connection: SimConnection, data: bytes) -> None:
        session, reply_to = connection.state, self._answer
        session.feed(data)
        gets = session.gets
        micros = self.process.clock.micros()  # once: no time passes meanwhile
        replies = b""
        while (words := gets()) is not ...:
            replies += reply_to(words, session, micros)
        if replies:
            connection.answer(replies)

    def replayed(self, data: bytes) -> None:
        session = Session()
        session.feed(data)
        micros = self.process.clock.micros()
        while (words := session.gets()) is not ...:
            if words[0] == b"EVALSHA":
                self._answer(words, session, micros)

    def _answer(self, words: list[bytes], session: Session, micros: int) -> bytes:
        name = words[0]
        if name == b"EVALSHA":
            function = self._scripts.get(words[1])
            if function is None:
                return NO_SCRIPT
            return self._lua.run_script(
                self, self._data, micros, function, int(words[2]), words[3:]
            )
        special = SPECIAL.get(name)
        if special is not None:
            return special(self, words, session)
        return self._lua.run_command(self._data, micros, *words)

    # The data, as the simulation sees and changes it.

    def ask(self, *words: bytes) -> Any:
        """Runs a command; returns its reply as hiredis reads it."""
        reader = _reader_type()()
        reader.feed(self._lua.run_command(self._data, self.process.clock.micros(), *words))
        return reader.gets()

    def all_keys(self) -> list[bytes]:
        """Returns the keys that exist now, in order."""
        keys: list[bytes] = self.ask(b"SCAN", b"0")[1]
        return keys

    # Called by scripts and commands.

    def publish(self, channel: bytes, message: bytes) -> int:
        count = 0
        for connection in self.connections:
            if channel in connection.state.channels and not connection.broken:
                count += 1
                connection.answer(b">3\r\n$7\r\nmessage\r\n" + _packed(channel) + _packed(message))
        return count

    def subscribers(self, channel: bytes) -> int:
        return sum(
            channel in connection.state.channels and not connection.broken
            for connection in self.connections
        )

    def _do_hello(self, words: list[bytes], session: Session) -> bytes:
        return HELLO

    def _do_info(self, words: list[bytes], session: Session) -> bytes:
        return _packed(b"# Server\r\nrun_id:" + self.run_id + b"\r\n")

    def _do_select(self, words: list[bytes], session: Session) -> bytes:
        return b"+OK\r\n"

    def _do_ping(self, words: list[bytes], session: Session) -> bytes:
        return b"+PONG\r\n"

    def _do_script(self, words: list[bytes], session: Session) -> bytes:
        if words[1] == b"EXISTS":
            known = map(self._scripts.__contains__, words[2:])
            return b"*%d\r\n" % (len(words) - 2) + b"".join(map(YES.__getitem__, known))
        return _packed(self.load(words[2]))

    def load(self, text: bytes) -> bytes:
        sha = digest_of(text)
        self._scripts[sha] = self._lua.compiled(self._altered.get(text, text))
        return sha

    def _do_subscribe(self, words: list[bytes], session: Session) -> bytes:
        session.channels.add(words[1])
        return b">3\r\n$9\r\nsubscribe\r\n" + _packed(words[1]) + b":1\r\n"


SPECIAL: dict[bytes, Callable[[RedisNode, list[bytes], Session], bytes]] = {
    b"HELLO": RedisNode._do_hello,
    b"INFO": RedisNode._do_info,
    b"SELECT": RedisNode._do_select,
    b"PING": RedisNode._do_ping,
    b"SCRIPT": RedisNode._do_script,
    b"SUBSCRIBE": RedisNode._do_subscribe,
}
"""Commands about the connection or the server."""


def _packed(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


_HELLO_FIELDS = (b"server", b"redis", b"version", b"7.0.0", b"mode", b"standalone")
HELLO = b"%4\r\n" + b"".join(map(_packed, _HELLO_FIELDS)) + _packed(b"proto") + b":3\r\n"
