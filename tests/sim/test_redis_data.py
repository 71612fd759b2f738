"""The simulated Redis against a real one: random commands, and every answer compared."""

from __future__ import annotations

import random
from typing import Any

from holdfast.sim.redis_data import Data, Refusal, Status, run
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
        answer = run(data, words)
    except Refusal as error:
        return str(error)
    return bytes(answer) if isinstance(answer, Status) else answer


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
