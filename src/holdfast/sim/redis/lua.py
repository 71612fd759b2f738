"""The inside of a simulated Redis: its data, its commands (`commands/`), and the shipped scripts.

All of it runs in a real Lua, of version 5.1 as in Redis: to cross to Python costs more than a command.

One interpreter serves all servers of all runs in a process, one request at a time, as Redis itself
runs them. A script keeps nothing between its calls (its variables are all local), so a script that was
compiled for one run serves the next. Replies come in the protocol's form. A test takes random steps
here and on a real server, and compares each reply.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Protocol

from ...errors import ConfigError
from ...refusals import lacks

_FOLDER = os.path.join(os.path.dirname(__file__), "commands")


class Server(Protocol):
    """The simulated server that a command runs on."""

    def publish(self, channel: bytes, message: bytes) -> int: ...
    def subscribers(self, channel: bytes) -> int: ...


class Lua:
    """The interpreter, with the commands of Redis."""

    def __init__(self) -> None:
        # A list comes as a tuple, and its parts arrive in Lua as so many values.
        self._runtime = _runtime_type()(encoding=None, unpack_returned_tuples=True)
        self._compiled: dict[bytes, Any] = {}
        self._server: Server | None = None
        data = self._file("data")
        commands = self._runtime.table()
        for name in ("keys", "hashes", "lists", "sorted"):
            self._file(name, data, commands)
        calls = self._file("calls", data, commands, self._call_server)
        self.database, self.copied = calls[b"database"], calls[b"copied"]
        self._run_command, self._wrap = calls[b"ask"], calls[b"compiled"]

    def _file(self, name: str, *given: Any) -> Any:
        with open(os.path.join(_FOLDER, f"{name}.lua"), "rb") as file:
            return self._runtime.execute(file.read(), *given)

    def compiled(self, text: bytes) -> Any:
        """Returns the function of a script, compiled once."""
        function = self._compiled.get(text)
        if function is None:
            script = self._runtime.execute(b"return function(KEYS, ARGV) " + text + b"\nend")
            function = self._compiled[text] = self._wrap(script)
        return function

    def run_script(
        self, server: Server, data: Any, micros: int, function: Any, count: int, words: list[bytes]
    ) -> bytes:
        """Returns a script's reply. `words` are `count` keys, and then the arguments."""
        self._server = server
        reply: bytes = function(data, micros, count, *words)
        self._server = None  # else the interpreter would keep all of this run alive
        return reply

    def run_command(self, data: Any, micros: int, *words: bytes) -> bytes:
        """Returns a command's reply."""
        reply: bytes = self._run_command(data, micros, *words)
        return reply

    def _call_server(self, name: bytes, *words: bytes) -> Any:
        assert self._server is not None
        if name == b"PUBLISH":
            return self._server.publish(*words)
        channel = words[1]  # PUBSUB NUMSUB, which is all that the scripts use besides
        return channel, self._server.subscribers(channel)


def _runtime_type() -> Any:
    try:
        # LuaJIT is the same language, with the faster interpreter.
        from lupa.luajit21 import LuaRuntime
    except ImportError:
        try:
            from lupa.lua51 import LuaRuntime
        except ImportError:
            needed = "lupa, by which it runs our scripts in Lua"
            raise ConfigError(lacks("the simulator", needed, "sim")) from None
    return LuaRuntime


@cache
def lua() -> Lua:
    return Lua()
