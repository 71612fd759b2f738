"""The shipped scripts, text for text, in a real Lua 5.1; only `redis.call` leads to ours.

One interpreter serves all servers of all runs in a process, one script at a time, as Redis itself runs
them. A script keeps nothing between its calls (its variables are all local), so what was compiled for
one run is as good for the next. Its answer is put into the protocol's form in Lua, and the arguments of
a command into that of the data: to look at a value from outside costs more than the script.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Protocol

from ..errors import ConfigError
from .redis_commands import COMMANDS
from .redis_data import Data, Refusal

_PREAMBLE = b"""
local commands, lists, other = ...
local format, type, select = string.format, type, select
local ok = { ok = 'OK' }
-- Redis formats numbers so, too; one that is too large for that loses its digits.
local function text(v)
  if type(v) ~= 'number' then return v end
  if v % 1 == 0 and v < 1e17 and v > -1e17 then return format('%d', v) end
  return format('%.17g', v)
end
local function texts(count, a, b, c, ...)
  if count == 0 then return end
  if count == 1 then return text(a) end
  if count == 2 then return text(a), text(b) end
  if count == 3 then return text(a), text(b), text(c) end
  return text(a), text(b), text(c), texts(count - 3, ...)
end
redis = {
  call = function(name, key, ...)
    local command, answer = commands[name], nil
    if not command then
      if lists[name] then return { other(name, key, ...) } end
      answer = other(name, key, ...)
    elseif lists[name] then
      return { command(key, texts(select('#', ...), ...)) }
    elseif select('#', ...) == 0 then
      answer = command(key)
    else
      answer = command(key, texts(select('#', ...), ...))
    end
    if answer == nil then return false end
    if answer == true then return ok end
    return answer
  end,
  pcall = function(...)
    local done, answer = pcall(redis.call, ...)
    if done then return answer end
    return { err = tostring(answer) }
  end,
  error_reply = function(text)
    -- One without a space has no code of its own.
    return { err = string.find(text, ' ', 1, true) and text or 'ERR ' .. text }
  end,
  status_reply = function(text) return { ok = text } end,
}
local function packed(v)
  local kind = type(v)
  if kind == 'number' then return format(':%d\\r\\n', v) end
  if kind == 'string' then return '$' .. #v .. '\\r\\n' .. v .. '\\r\\n' end
  if kind == 'table' then
    if v.err then return '-' .. v.err .. '\\r\\n' end
    if v.ok then return '+' .. v.ok .. '\\r\\n' end
    local parts, count = { '' }, 0
    while v[count + 1] ~= nil do
      count = count + 1
      parts[count + 1] = packed(v[count])
    end
    parts[1] = '*' .. count .. '\\r\\n'
    return table.concat(parts)
  end
  if v == true then return ':1\\r\\n' end
  return '_\\r\\n'
end
local function split(count, ...)
  local keys, args = { ... }, {}
  for i = count + 1, #keys do
    args[i - count] = keys[i]
    keys[i] = nil
  end
  return keys, args
end
return function(script)
  return function(count, ...) return packed(script(split(count, ...))) end
end
"""

LISTS = (b"MGET", b"TIME", b"HMGET", b"HGETALL", b"HVALS", b"LRANGE", b"PUBSUB", b"ZRANGE")
"""Commands that answer a list, as far as scripts use them."""


class Server(Protocol):
    """Whose script runs."""

    data: Data

    def command(self, name: bytes, *words: bytes) -> Any:
        """One that needs more than the data."""
        ...


class Lua:
    def __init__(self) -> None:
        try:
            from lupa.lua51 import LuaError, LuaRuntime
        except ImportError:
            raise ConfigError(
                "the simulator runs our scripts in Lua, which is missing: pip install 'holdfast[sim]'"
            ) from None
        # A list comes as a tuple, and its parts arrive in Lua as so many values.
        self._runtime = LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._error = LuaError
        self._compiled: dict[bytes, Any] = {}
        self._server: Server | None = None
        # Lua lets go of what it was given whenever it likes: not of what belongs to a run, then.
        self._data = Data(lambda: 0)
        table = self._runtime.table_from
        # The data goes with the command: to be handed through Lua it would be wrapped each time.
        commands = {name: partial(command, self._data) for name, command in COMMANDS.items()}
        for name in LISTS:
            if name in commands:
                commands[name] = partial(_listed, commands[name])
        lists = table(dict.fromkeys(LISTS, True))
        self._wrap = self._runtime.execute(_PREAMBLE, table(commands), lists, self._other)

    def compiled(self, text: bytes) -> Any:
        function = self._compiled.get(text)
        if function is None:
            script = self._runtime.execute(b"return function(KEYS, ARGV) " + text + b"\nend")
            function = self._compiled[text] = self._wrap(script)
        return function

    def run(self, server: Server, function: Any, count: int, words: list[bytes]) -> bytes:
        """The answer, as it is sent. `words`: so many keys, and then the arguments."""
        self._server = server
        data, its = self._data, server.data
        data.values, data.ends, data.now = its.values, its.ends, its.now
        try:
            answer: bytes = function(count, *words)
            return answer
        except self._error as error:
            text = error.args[0] if error.args else b""
            raise Refusal(text.decode() if isinstance(text, bytes) else str(text)) from None
        finally:
            self._server = None  # with which it would keep all of its run

    def _other(self, name: bytes, *words: bytes) -> Any:
        """A command that needs more than the data."""
        assert self._server is not None
        value = self._server.command(name, *words)
        return tuple(value) if type(value) is list else value


def _listed(command: Callable[..., Any], *words: bytes) -> tuple[Any, ...]:
    return tuple([False if item is None else item for item in command(*words)])


@cache
def lua() -> Lua:
    return Lua()
