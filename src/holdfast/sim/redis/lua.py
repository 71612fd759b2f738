"""The inside of a simulated Redis: its data, its commands (`commands/`), and the shipped scripts.

All in a real Lua, of version 5.1 as in Redis: to cross to Python costs more than a command.

One interpreter serves all servers of all runs in a process, one request at a time, as Redis itself
runs them. A script keeps nothing between its calls (its variables are all local), so what was compiled
for one run is as good for the next. Answers come in the protocol's form. A test takes random steps
here and on a real server, and compares each answer.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Protocol

from ...errors import ConfigError

_FOLDER = os.path.join(os.path.dirname(__file__), "commands")


class Server(Protocol):
    """Whose commands these are."""

    def publish(self, channel: bytes, message: bytes) -> int: ...
    def hearers(self, channel: bytes) -> int: ...


class Lua:
    def __init__(self) -> None:
        # A list comes as a tuple, and its parts arrive in Lua as so many values.
        self._runtime = _runtime_type()(encoding=None, unpack_returned_tuples=True)
        self._compiled: dict[bytes, Any] = {}
        self._server: Server | None = None
        data = self._file("data")
        commands = self._runtime.table()
        for name in ("keys", "hashes", "lists", "sorted"):
            self._file(name, data, commands)
        calls = self._file("calls", data, commands, self._ask_server)
        self.database, self.copied = calls[b"database"], calls[b"copied"]
        self._ask, self._wrap = calls[b"ask"], calls[b"compiled"]

    def _file(self, name: str, *given: Any) -> Any:
        with open(os.path.join(_FOLDER, f"{name}.lua"), "rb") as file:
            return self._runtime.execute(file.read(), *given)

    def compiled(self, text: bytes) -> Any:
        function = self._compiled.get(text)
        if function is None:
            script = self._runtime.execute(b"return function(KEYS, ARGV) " + text + b"\nend")
            function = self._compiled[text] = self._wrap(script)
        return function

    def run(
        self, server: Server, data: Any, micros: int, function: Any, count: int, words: list[bytes]
    ) -> bytes:
        """A script's answer. `words`: so many keys, and then the arguments."""
        self._server = server
        answer: bytes = function(data, micros, count, *words)
        self._server = None  # with which it would keep all of its run
        return answer

    def ask(self, data: Any, micros: int, *words: bytes) -> bytes:
        """A command's answer."""
        answer: bytes = self._ask(data, micros, *words)
        return answer

    def _ask_server(self, name: bytes, *words: bytes) -> Any:
        assert self._server is not None
        if name == b"PUBLISH":
            return self._server.publish(*words)
        channel = words[1]  # of NUMSUB, the only one that we use
        return channel, self._server.hearers(channel)


def _runtime_type() -> Any:
    try:
        # LuaJIT's is the same language, and its interpreter is the quicker one.
        from lupa.luajit21 import LuaRuntime
    except ImportError:
        try:
            from lupa.lua51 import LuaRuntime
        except ImportError:
            raise ConfigError(
                "the simulator runs our scripts in Lua, which is missing: pip install 'holdfast[sim]'"
            ) from None
    return LuaRuntime


@cache
def lua() -> Lua:
    return Lua()
