"""A Redis hash with the fields `value` and `version`, changed by one script."""

from __future__ import annotations

import inspect
from hashlib import sha1
from typing import Any

from ..errors import ConfigError
from .register import Conflict, Register, Steps, Versioned

# KEYS[1] the hash. ARGV[1] the value, ARGV[2] the version expected, empty if there must be none.
# Answers the new version, or false.
_PUT = """
local version = redis.call('HGET', KEYS[1], 'version')
if (version or '') ~= ARGV[2] then
  return false
end
redis.call('HSET', KEYS[1], 'value', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'version', 1)
"""
_SHA = sha1(_PUT.encode(), usedforsecurity=False).hexdigest()


class RedisVersioned(Register):
    """Hashes of one Redis, by a client of redis-py, blocking or asyncio.

    A key that is deleted begins again at version 1: do not delete what somebody may be updating.
    """

    def __init__(self, client: Any) -> None:
        execute = getattr(client, "execute_command", None)
        if execute is None or hasattr(client, "command_stack"):
            raise ConfigError(
                f"RedisVersioned takes a client of redis-py, not {type(client).__name__}"
            )
        self._execute = execute
        self.asynchronous = inspect.iscoroutinefunction(execute)

    def _get(self, key: str) -> Steps[Versioned]:
        value, version = yield lambda: self._execute("HMGET", key, "value", "version")
        return Versioned(value, None if version is None else int(version))

    def _put(self, key: str, value: Any, version: int | None) -> Steps[int]:
        words = (1, key, value, "" if version is None else version)
        try:
            answer = yield lambda: self._execute("EVALSHA", _SHA, *words)
        except Exception as error:
            if type(error).__name__ != "NoScriptError":
                raise
            answer = yield lambda: self._execute("EVAL", _PUT, *words)
        if answer is None:
            raise Conflict(key, f"its version is not {version} any more")
        return int(answer)
