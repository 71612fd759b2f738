"""A Redis hash with the fields `value` and `version`, changed by one script."""

from __future__ import annotations

import inspect
import os
from hashlib import sha1
from typing import Any

from ..errors import ConfigError
from ..fences.redis_keys import beside
from .register import Conflict, Register, Steps, Versioned

# KEYS[1] the hash. KEYS[2] what this very request was answered, if it has been here before: a client
# that got no reply asks again, and must not take its own write for somebody else's.
# ARGV[1] the value, ARGV[2] the version expected, empty if there must be none.
# Answers the new version, or false. The first one is a time: a key that was deleted and made again
# must not be taken for the old one.
_PUT = """
local answered = redis.call('GET', KEYS[2])
if answered then
  return answered
end
local version = redis.call('HGET', KEYS[1], 'version')
if (version or '') ~= ARGV[2] then
  return false
end
if version then
  version = redis.call('HINCRBY', KEYS[1], 'version', 1)
else
  local now = redis.call('TIME')
  version = string.format('%.0f', now[1] * 1000000 + now[2])
  redis.call('HSET', KEYS[1], 'version', version)
end
redis.call('HSET', KEYS[1], 'value', ARGV[1])
redis.call('SET', KEYS[2], version, 'EX', 60)
return version
"""
_SHA = sha1(_PUT.encode(), usedforsecurity=False).hexdigest()


class RedisVersioned(Register):
    """Hashes of one Redis, by a client of redis-py, blocking or asyncio."""

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
        if not isinstance(key, str):
            raise ConfigError(f"the key must be a str, not {type(key).__name__}")
        request = beside(key, f":holdfast-put:{os.urandom(8).hex()}")
        words = (2, key, request, value, "" if version is None else version)
        try:
            answer = yield lambda: self._execute("EVALSHA", _SHA, *words)
        except Exception as error:
            if type(error).__name__ != "NoScriptError":
                raise
            answer = yield lambda: self._execute("EVAL", _PUT, *words)
        if answer is None:
            raise Conflict(key, f"its version is not {version} any more")
        return int(answer)
