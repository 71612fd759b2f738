"""One server that votes, asked by single commands of the protocol."""

from __future__ import annotations

import time
from typing import Any

from hiredis import Reader

from holdfast.model import Label
from holdfast.stores.redis.wire.protocol import bulk
from holdfast.stores.redlock.commands import (
    QUIET,
    Commands,
    packed_before,
)
from stores import redis_server

RUN_ID = b"a" * 40
VOTE = bulk(RUN_ID + b".1")
LOCK, QUEUE = "holdfast:{x}", "holdfast:{x}:q"
COUNTERS, BEGINNING = "holdfast:redlock:counters", "holdfast:redlock:beginning"
ELSEWHERE = bulk(RUN_ID + b".2")


class LockTerms:
    name = "x"
    label = Label("host", 1)
    kind, capacity, weight = "lock", 1, 1

    def __init__(self, ttl: float) -> None:
        self.ttl = ttl


class Node:
    """One server that votes."""

    def __init__(self) -> None:
        self.server = redis_server()
        self.server("FLUSHALL")
        self.commands = Commands("holdfast", 1.0)
        for load in self.commands.loads:
            self.ask(load)
        self.ask(self.commands.begin(RUN_ID, RUN_ID + b".1", b"first", 0))
        self.ask(self.commands.admit(RUN_ID, RUN_ID + b".1", 1, 100, 60.0, ["a", "b", "c"], b""))

    def ask(self, packed: bytes) -> Any:
        reader = Reader()
        reader.feed(packed)
        return self.server(*reader.gets())

    def take(self, owner: str, ttl: float = 30.0, vote: bytes = VOTE) -> Any:
        return self.ask(
            self.commands.prefixes_for(LockTerms(ttl)).take + bulk(owner.encode()) + vote
        )

    def raise_(self, owner: str, begin: int, token: int) -> Any:
        prefixes = self.commands.prefixes_for(LockTerms(30.0))
        numbers = bulk(b"%d" % token) + packed_before(begin)
        return self.ask(prefixes.raise_ + numbers + VOTE + bulk(owner.encode()))

    def free(self, owner: str, mark: bytes) -> Any:
        return self.ask(
            self.commands.prefixes_for(LockTerms(30.0)).free + bulk(owner.encode()) + mark + QUIET
        )

    def ends(self) -> None:
        while self.server("EXISTS", "holdfast:{x}"):
            time.sleep(0.002)
