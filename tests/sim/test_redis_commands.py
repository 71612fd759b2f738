"""The simulated Redis against a real one: random commands, and every answer compared."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hiredis import Reader

from holdfast.chaos.servers.errors import ServerError
from holdfast.chaos.servers.redis import RedisServer
from holdfast.sim.redis.lua import lua
from stores import redis_server

KEYS = [b"a", b"b", b"c"]
FIELDS = [b"1", b"2", b"31"]
MICROS = 1_000_000_000
"""The clock of the simulated server."""
NUMBERS = [b"0", b"1", b"-1", b"2", b"5", b"-3"]


def pick(draw: random.Random) -> list[bytes]:
    key, field, number = draw.choice(KEYS), draw.choice(FIELDS), draw.choice(NUMBERS)
    other = draw.choice(FIELDS)
    choices: list[list[bytes]] = [
        [b"GET", key],
        [b"SET", key, field],
        [b"SET", key, field, b"NX"],
        [b"SET", key, field, b"GET"],
        [b"SET", key, field, b"PX", b"600000"],
        [b"SET", key, field, b"NX", b"PX", b"600000"],
        [b"SET", key, field, b"KEEPTTL"],
        [b"SET", key, field, b"XX", b"KEEPTTL"],
        [b"MGET", *KEYS],
        [b"GETDEL", key],
        [b"SETRANGE", key, b"2", field],
        [b"SETRANGE", key, b"0", b""],
        [b"GETRANGE", key, b"0", b"1"],
        [b"GETRANGE", key, b"1", b"8"],
        [b"SETBIT", key, draw.choice(FIELDS), b"1"],
        [b"SETBIT", key, draw.choice(FIELDS), b"0"],
        [b"BITPOS", key, b"0"],
        [b"DEL", key],
        [b"DEL", *KEYS[:2]],
        [b"EXISTS", *KEYS],
        [b"INCRBY", key, number],
        [b"INCR", key],
        [b"PTTL", key],
        [b"PEXPIRE", key, b"500000"],
        [b"PEXPIRE", key, b"0"],
        [b"PEXPIREAT", key, b"1"],
        [b"SCAN", b"0", b"MATCH", b"*", b"COUNT", b"100"],
        [b"SCAN", b"0", b"MATCH", b"\\a*", b"COUNT", b"100"],
        [b"HGET", key, field],
        [b"HMGET", key, field, other],
        [b"HSET", key, field, other],
        [b"HDEL", key, field, other],
        [b"HINCRBY", key, field, number],
        [b"HEXISTS", key, field],
        [b"HGETALL", key],
        [b"RPUSH", key, field],
        [b"LPUSH", key, field, other],
        [b"LPOP", key],
        [b"LINDEX", key, number],
        [b"LRANGE", key, number, draw.choice(NUMBERS)],
        [b"LTRIM", key, number, draw.choice(NUMBERS)],
        [b"LREM", key, number, field],
        [b"LPOS", key, field],
        [b"ZADD", key, number, field],
        [b"ZADD", key, number, field, b"1.5", other],
        [b"ZREM", key, field],
        [b"ZSCORE", key, field],
        [b"ZCARD", key],
        [b"ZRANGE", key, b"0", b"0", b"WITHSCORES"],
        [b"ZRANGE", key, b"0", b"-1"],
        [b"ZREVRANGE", key, b"0", b"0", b"WITHSCORES"],
        [b"ZRANGEBYSCORE", key, b"-inf", number, b"LIMIT", b"0", b"1"],
        [b"ZRANGEBYSCORE", key, b"-inf", number, b"WITHSCORES"],
        [b"ZRANGEBYSCORE", key, number, b"+inf"],
    ]
    return draw.choice(choices)


def asked(server: RedisServer, words: list[bytes]) -> Any:
    try:
        return server(*words)
    except ServerError as error:
        return str(error.args[0])


class Simulated:
    def __init__(self) -> None:
        self.data = lua().database()

    def ask(self, *words: bytes) -> Any:
        return read(lua().run_command(self.data, MICROS, *words))

    def run(self, script: bytes, *words: bytes) -> Any:
        return read(
            lua().run_script(self, self.data, MICROS, lua().compiled(script), 2, list(words))
        )

    def publish(self, channel: bytes, message: bytes) -> int:
        raise NotImplementedError

    def subscribers(self, channel: bytes) -> int:
        return 0


def read(answer: bytes) -> Any:
    reader = Reader()
    reader.feed(answer)
    value = reader.gets()
    return str(value) if isinstance(value, Exception) else value


def test_every_command_answers_as_a_real_server_does() -> None:
    server = redis_server()
    draw = random.Random(4)
    simulated = Simulated()
    for step in range(4000):
        if step % 150 == 0:
            server("FLUSHALL")
            simulated = Simulated()
        words = pick(draw)
        real, ours = asked(server, words), simulated.ask(*words)
        if words[0] == b"PTTL" and isinstance(real, int) and real > 0:
            assert 0 <= ours - real < 30_000, words
        elif words[0] == b"SCAN":
            assert sorted(real[1]) == ours[1], words
        elif words[0] == b"HGETALL" and isinstance(real, list):
            assert sorted(zip(real[::2], real[1::2], strict=True)) == list(
                zip(ours[::2], ours[1::2], strict=True)
            ), words
        else:
            assert real == ours, f"step {step}: {words}"


SCRIPTS = [
    b"return 7",
    b"return -7",
    b"return 1700000000123456",
    b"return 3.99",
    b"return -3.99",
    b"return 'text'",
    b"return ''",
    b"return false",
    b"return nil",
    b"return",
    b"return true",
    b"return { 1, 'two', { 3, false, 'x' } }",
    b"return { 1, nil, 3 }",
    b"return {}",
    b"return redis.error_reply('BAD')",
    b"return redis.error_reply('BAD it is')",
    b"return redis.status_reply('FINE')",
    b"return redis.call('SET', KEYS[1], ARGV[1])",
    b"return redis.call('GET', KEYS[2])",
    b"return redis.call('MGET', KEYS[1], KEYS[2])",
    b"return { redis.call('GET', KEYS[2]) == false, #KEYS, #ARGV }",
    b"return redis.call('HINCRBY', KEYS[2], ARGV[1], 5)",
    b"return redis.call('SET', KEYS[1], 1700000000123456)",
    b"return redis.call('GET', KEYS[1])",
    b"return redis.call('LPUSH', KEYS[1], 'x')",
    b"return redis.pcall('LPUSH', KEYS[1], 'x')",
    b"return redis.pcall('LPUSH', KEYS[1], 'x').err ~= nil",
    b"return redis.call('PUBSUB', 'NUMSUB', 'nobody')",
    b"return #redis.call('TIME')",
    b"return redis.call('SET', KEYS[1], 'x', 'PX', 0)",
    b"return redis.call('SET', KEYS[1], 'x', 'NX', 'PX', -1)",
    b"return redis.call('PEXPIRE', KEYS[1], 1000.5)",
    b"return redis.call('SET', KEYS[1], nil)",
    b"return redis.call('SET', KEYS[1], 'x', 'PX', false)",
    b"return redis.call('GET', KEYS[1])",
]


@pytest.mark.parametrize("times", [1, 2])
def test_a_script_answers_as_in_a_real_server(times: int) -> None:
    """Runs scripts after others, too: each is compiled once for all runs."""
    server = redis_server()
    server("FLUSHALL")
    words = [b"a", b"b", b"1", b"2"]
    simulated = Simulated()
    for _ in range(times):
        for text in SCRIPTS:
            real, ours = asked(server, [b"EVAL", text, b"2", *words]), simulated.run(text, *words)
            if isinstance(real, str):  # a real server adds which script it was
                assert real.startswith(ours), text
            else:
                assert real == ours, text


@pytest.mark.parametrize("text", [b"forgotten = 1", b"return forgotten"])
def test_a_script_has_no_variables_but_its_own(text: bytes) -> None:
    """Looks for global variables: a real server refuses them, here they would outlive the run."""
    assert isinstance(asked(redis_server(), [b"EVAL", text, b"0"]), str)
    assert "global" in Simulated().run(text, b"a", b"b")
