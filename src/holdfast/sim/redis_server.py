"""A simulated Redis server: it speaks the protocol, on the data of `redis_data`, with the scripts of
`redis_lua`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha1
from typing import Any

from .loop import Process
from .network import Link
from .redis_commands import COMMANDS
from .redis_data import OK, Data, Refusal
from .redis_lua import lua

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
    """A client's connection, as the server knows it."""

    __slots__ = ("channels", "feed", "gets")

    def __init__(self) -> None:
        reader = _reader_type()(notEnoughData=...)
        self.feed = reader.feed
        self.gets = reader.gets
        self.channels: set[bytes] = set()


class RedisNode:
    """One server. Its data, its clock and its life are in the hands of the simulation."""

    def __init__(self, process: Process, altered: dict[bytes, bytes] | None = None) -> None:
        self.process = process
        self.up = True
        self.incarnation = 0
        self.run_id = b""
        self.links: dict[Link, None] = {}
        self.data = Data(process.clock.millis)
        self.snapshot = Data(process.clock.millis)
        self._lua = lua()
        self._altered = altered or {}
        """Texts to run instead of others, for variants that are known to be bad."""
        self._scripts: dict[bytes, Any] = {}
        self._born()

    def _born(self) -> None:
        self.incarnation += 1
        self.run_id = b"%040x" % self.process.loop.random.getrandbits(160)
        self._scripts = {}

    # Its life.

    def crash(self) -> None:
        self.up = False
        links, self.links = self.links, {}
        for link in links:
            link.reset()

    def save(self) -> None:
        self.snapshot.copy_from(self.data)

    def restart(self, memory: str) -> None:
        """With `all` of its data, what was last saved (`snapshot`), or `nothing`."""
        if memory != "all":
            fresh = Data(self.process.clock.millis)
            if memory == "snapshot":
                fresh.copy_from(self.snapshot)
            self.data = fresh
        self._born()
        self.up = True

    # Its connections.

    def opened(self, link: Link) -> None:
        link.state = Session()
        self.links[link] = None

    def closed(self, link: Link) -> None:
        self.links.pop(link, None)

    def received(self, link: Link, data: bytes) -> None:
        session, answering = link.state, self._answer
        session.feed(data)
        gets = session.gets
        self.data.tick()  # once: no time passes meanwhile
        answer = b""
        while (words := gets()) is not ...:
            answer += answering(words, session)
        if answer:
            link.answer(answer)

    def replayed(self, data: bytes) -> None:
        session = Session()
        session.feed(data)
        self.data.tick()
        while (words := session.gets()) is not ...:
            if words[0] == b"EVALSHA":
                self._answer(words, session)

    def _answer(self, words: list[bytes], session: Session) -> bytes:
        name = words[0]
        try:
            if name == b"EVALSHA":
                function = self._scripts.get(words[1])
                if function is None:
                    return NO_SCRIPT
                return self._lua.run(self, function, int(words[2]), words[3:])
            special = SPECIAL.get(name)
            if special is not None:
                return special(self, words, session)
            plain = COMMANDS.get(name)
            if plain is not None:
                return _packed(plain(self.data, *words[1:]))
            return _packed(self.command(*words))
        except Refusal as error:
            return b"-" + str(error).replace("\n", " ").encode() + b"\r\n"

    def command(self, name: bytes, *words: bytes) -> Any:
        """One that needs more than the data."""
        if name == b"TIME":
            micros = int(self.process.clock.wall() * 1_000_000)
            return [b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)]
        if name == b"PUBLISH":
            return self._publish(*words)
        if name == b"PUBSUB":  # NUMSUB, the only one that we use
            heard = [link for link in self.links if words[1] in link.state.channels]
            return [words[1], sum(not link.broken for link in heard)]
        raise Refusal(f"ERR unknown command '{name.decode()}', with args beginning with:")

    def _publish(self, channel: bytes, message: bytes) -> int:
        heard = 0
        for link in self.links:
            if channel in link.state.channels and not link.broken:
                heard += 1
                link.answer(b">3\r\n$7\r\nmessage\r\n" + _packed(channel) + _packed(message))
        return heard

    def _do_hello(self, words: list[bytes], session: Session) -> bytes:
        return HELLO

    def _do_info(self, words: list[bytes], session: Session) -> bytes:
        return _packed(b"# Server\r\nrun_id:" + self.run_id + b"\r\n")

    def _do_select(self, words: list[bytes], session: Session) -> bytes:
        return _packed(OK)

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


def _packed(value: Any) -> bytes:
    kind = type(value)
    if kind is int:
        return b":%d\r\n" % value
    if kind is bytes:
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if kind is list:
        return b"*%d\r\n" % len(value) + b"".join([_packed(item) for item in value])
    if value is None:
        return b"_\r\n"
    if value is OK:
        return b"+OK\r\n"
    if kind is float:
        return b":%d\r\n" % int(value)
    raise TypeError(kind)


_SAID = {b"server": b"redis", b"version": b"7.0.0", b"proto": 3, b"mode": b"standalone"}
HELLO = b"%%%d\r\n" % len(_SAID) + b"".join(_packed(k) + _packed(v) for k, v in _SAID.items())
