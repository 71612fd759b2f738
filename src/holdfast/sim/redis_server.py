"""A simulated Redis server: it speaks the protocol, and runs our scripts in a real Lua 5.1.

The scripts are the shipped ones, text for text; only `redis.call` leads to `redis_data`. One
interpreter serves all servers of a run, one script at a time, as Redis itself runs them.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from typing import Any

from ..errors import ConfigError
from .loop import Process
from .network import Link
from .redis_data import OK, Data, Refusal, Status, run

NO_SCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
_PREAMBLE = b"""
local sim = ...
redis = {
  error_reply = function(text) return { err = text } end,
  status_reply = function(text) return { ok = text } end,
}
local answers = function(ok, answer)
  if ok then return answer end
  error(answer, 0)
end
redis.call = function(...) return answers(sim(...)) end
redis.pcall = function(...)
  local ok, answer = sim(...)
  if ok then return answer end
  return { err = answer }
end
"""


class Lua:
    """The interpreter, and the scripts that were compiled in it."""

    def __init__(self) -> None:
        try:
            from lupa.lua51 import LuaError, LuaRuntime, lua_type
        except ImportError:
            raise ConfigError(
                "the simulator runs our scripts in Lua, which is missing: pip install 'holdfast[sim]'"
            ) from None
        self._runtime = LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._type = lua_type
        self._error = LuaError
        self._compiled: dict[bytes, Any] = {}
        self._server: RedisNode | None = None
        self._runtime.execute(_PREAMBLE, self._call)
        self._table = self._runtime.table_from

    def compiled(self, text: bytes) -> Any:
        function = self._compiled.get(text)
        if function is None:
            wrapped = b"return function(KEYS, ARGV) " + text + b"\nend"
            function = self._compiled[text] = self._runtime.execute(wrapped)
        return function

    def run(self, server: RedisNode, function: Any, keys: list[bytes], args: list[bytes]) -> Any:
        self._server = server
        try:
            return self._python(function(self._table(keys), self._table(args)))
        except self._error as error:
            text = error.args[0] if error.args else b""
            if isinstance(text, bytes):
                text = text.decode("utf-8", "replace")
            raise Refusal(str(text)) from None
        finally:
            self._server = None

    def _call(self, *words: Any) -> tuple[bool, Any]:
        assert self._server is not None
        # Redis formats numbers so, too; a number that is too large for that loses its digits.
        parts = [w if type(w) is bytes else b"%.17g" % w for w in words]
        try:
            return True, self._lua(self._server.command(parts))
        except Refusal as error:
            return False, str(error).encode()

    def _lua(self, value: Any) -> Any:
        if value is None:
            return False
        if type(value) is list:
            return self._table([self._lua(item) for item in value])
        if type(value) is Status:
            return self._table({b"ok": bytes(value)})
        return value

    def _python(self, value: Any) -> Any:
        kind = type(value)
        if kind is bytes or kind is int:
            return value
        if kind is float:
            return int(value)
        if value is None or value is False:
            return None
        if value is True:
            return 1
        if self._type(value) == "table":
            if value[b"err"] is not None:
                raise Refusal(value[b"err"].decode())
            if value[b"ok"] is not None:
                return Status(value[b"ok"])
            items: list[Any] = []
            i = 1
            while (item := value[i]) is not None:
                items.append(self._python(item))
                i += 1
            return items
        return value


@cache
def lua() -> Lua:
    return Lua()


class Session:
    """A client's connection, as the server knows it."""

    __slots__ = ("channels", "reader")

    def __init__(self) -> None:
        from hiredis import Reader

        self.reader = Reader(notEnoughData=...)
        self.channels: set[bytes] = set()


class RedisNode:
    """One server. Its data, its clock and its life are in the hands of the simulation."""

    def __init__(self, process: Process, altered: dict[bytes, bytes] | None = None) -> None:
        self.process = process
        self.up = True
        self.incarnation = 0
        self.run_id = b""
        self.links: dict[Link, None] = {}
        self.data = Data(self._millis)
        self.snapshot = Data(self._millis)
        self._lua = lua()
        self._altered = altered or {}
        """Texts to run instead of others, for variants that are known to be bad."""
        self._scripts: dict[bytes, Any] = {}
        self._born()

    def _born(self) -> None:
        self.incarnation += 1
        self.run_id = b"%040x" % self.process.loop.random.getrandbits(160)
        self._scripts = {}

    def _millis(self) -> int:
        return int(self.process.clock.wall() * 1000)

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
            fresh = Data(self._millis)
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
        session = link.state
        session.reader.feed(data)
        answers: list[bytes] = []
        while (words := session.reader.gets()) is not ...:
            answers.append(self._answer(words, session))
        if answers:
            link.answer(b"".join(answers))

    def replayed(self, data: bytes) -> None:
        session = Session()
        session.reader.feed(data)
        while (words := session.reader.gets()) is not ...:
            if words[0] == b"EVALSHA":
                self._answer(words, session)

    def _answer(self, words: list[bytes], session: Session) -> bytes:
        self.data.tick()
        name = words[0].upper()
        try:
            if name == b"EVALSHA":
                function = self._scripts.get(words[1])
                if function is None:
                    return NO_SCRIPT
                keys = int(words[2])
                return _packed(
                    self._lua.run(self, function, words[3 : 3 + keys], words[3 + keys :])
                )
            special = getattr(self, "_do_" + name.decode().lower(), None)
            if special is not None:
                return bytes(special(words, session))
            return _packed(self.command(words))
        except Refusal as error:
            return b"-" + str(error).replace("\n", " ").encode() + b"\r\n"

    def command(self, words: list[bytes]) -> Any:
        """One that scripts may use, too."""
        if words[0] == b"TIME":
            micros = int(self.process.clock.wall() * 1_000_000)
            return [b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)]
        if words[0] == b"PUBLISH":
            return self._publish(words[1], words[2])
        if words[0] == b"PUBSUB":  # NUMSUB, the only one that we use
            heard = [link for link in self.links if words[2] in link.state.channels]
            return [words[2], sum(not link.broken for link in heard)]
        return run(self.data, words)

    def _publish(self, channel: bytes, message: bytes) -> int:
        heard = 0
        for link in self.links:
            if channel in link.state.channels and not link.broken:
                heard += 1
                link.answer(b">3\r\n$7\r\nmessage\r\n" + _packed(channel) + _packed(message))
        return heard

    def _do_hello(self, words: list[bytes], session: Session) -> bytes:
        said = {b"server": b"redis", b"version": b"7.0.0", b"proto": 3, b"mode": b"standalone"}
        return b"%%%d\r\n" % len(said) + b"".join(_packed(k) + _packed(v) for k, v in said.items())

    def _do_info(self, words: list[bytes], session: Session) -> bytes:
        return _packed(b"# Server\r\nrun_id:" + self.run_id + b"\r\n")

    def _do_select(self, words: list[bytes], session: Session) -> bytes:
        return _packed(OK)

    def _do_ping(self, words: list[bytes], session: Session) -> bytes:
        return b"+PONG\r\n"

    def _do_script(self, words: list[bytes], session: Session) -> bytes:
        if words[1] == b"EXISTS":
            return _packed([int(digest in self._scripts) for digest in words[2:]])
        sha = sha1(words[2], usedforsecurity=False).hexdigest().encode()
        self._scripts[sha] = self._lua.compiled(self._altered.get(words[2], words[2]))
        return _packed(sha)

    def _do_subscribe(self, words: list[bytes], session: Session) -> bytes:
        session.channels.add(words[1])
        return b">3\r\n$9\r\nsubscribe\r\n" + _packed(words[1]) + b":1\r\n"


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
    if kind is Status:
        return b"+%b\r\n" % value
    if kind is float:
        return b":%d\r\n" % int(value)
    raise TypeError(kind)
