"""The simulated Redis against a real one: random commands, and every answer compared."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hiredis import Reader

from holdfast.sim.redis_commands import COMMANDS
from holdfast.sim.redis_data import OK, Data, Refusal
from holdfast.sim.redis_lua import lua
from servers.redis import RedisServer
from stores import redis_server

KEYS = [b"a", b"b", b"c"]
FIELDS = [b"1", b"2", b"31"]
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
        [b"DEL", key],
        [b"DEL", *KEYS[:2]],
        [b"EXISTS", *KEYS],
        [b"INCRBY", key, number],
        [b"PTTL", key],
        [b"PEXPIRE", key, b"500000"],
        [b"PEXPIRE", key, b"0"],
        [b"HGET", key, field],
        [b"HMGET", key, field, other],
        [b"HSET", key, field, other],
        [b"HDEL", key, field, other],
        [b"HINCRBY", key, field, number],
        [b"HEXISTS", key, field],
        [b"HLEN", key],
        [b"HGETALL", key],
        [b"HVALS", key],
        [b"RPUSH", key, field],
        [b"LPUSH", key, field, other],
        [b"LPOP", key],
        [b"LINDEX", key, number],
        [b"LLEN", key],
        [b"LRANGE", key, number, draw.choice(NUMBERS)],
        [b"LTRIM", key, number, draw.choice(NUMBERS)],
        [b"LREM", key, number, field],
        [b"LPOS", key, field],
        [b"ZADD", key, number, field],
        [b"ZREM", key, field],
        [b"ZSCORE", key, field],
        [b"ZCARD", key],
        [b"ZRANGE", key, b"0", b"-1"],
        [b"ZREVRANGE", key, b"0", b"0", b"WITHSCORES"],
        [b"ZRANGEBYSCORE", key, b"-inf", number, b"WITHSCORES"],
        [b"ZRANGEBYSCORE", key, number, b"+inf"],
    ]
    return draw.choice(choices)


def asked(server: RedisServer, words: list[bytes]) -> Any:
    try:
        return server(*words)
    except AssertionError as error:
        return str(error.args[0])


def simulated(data: Data, words: list[bytes]) -> Any:
    try:
        answer = COMMANDS[words[0]](data, *words[1:])
    except Refusal as error:
        return str(error)
    return b"OK" if answer is OK else answer


def test_every_command_answers_as_a_real_server_does() -> None:
    server = redis_server()
    server("FLUSHALL")
    draw = random.Random(4)
    data = Data(lambda: 1_000_000)
    data.tick()
    for step in range(3000):
        if step % 150 == 0:
            server("FLUSHALL")
            data = Data(lambda: 1_000_000)
            data.tick()
        words = pick(draw)
        real, ours = asked(server, words), simulated(data, words)
        if words[0] == b"PTTL" and isinstance(real, int) and real > 0:
            assert 0 <= ours - real < 30_000, words
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
]


class Simulated:
    def __init__(self) -> None:
        self.data = Data(lambda: 1_000_000)
        self.data.tick()

    def command(self, name: bytes, *words: bytes) -> Any:
        raise Refusal(f"ERR unknown command '{name.decode()}'")


@pytest.mark.parametrize("times", [1, 2])
def test_a_script_answers_as_in_a_real_server(times: int) -> None:
    """And what ran before it makes no difference: it is compiled once for all runs."""
    server = redis_server()
    server("FLUSHALL")
    words = [b"a", b"b", b"1", b"2"]
    simulated = Simulated()

    for _ in range(times):
        for text in SCRIPTS:
            reader = Reader()
            try:
                reader.feed(lua().run(simulated, lua().compiled(text), 2, words))
                ours = reader.gets()
            except Refusal as error:
                ours = error
            real = asked(server, [b"EVAL", text, b"2", *words])
            if isinstance(ours, Exception):
                # A real server adds which script it was.
                assert str(real).startswith(str(ours)), text
            else:
                assert real == ours, text
