"""A Redis with one replica."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ...guarantees import Guarantees
from ...stores.redis.guarantees import REDIS
from ..servers.redis import RedisServer
from .failover import FailoverLab

QUICK = ("--repl-diskless-sync-delay", "0")


class ReplicaLab(FailoverLab[RedisServer]):
    name = "redis+replica"
    title = "Redis with a replica"
    programs = ("redis-server:redis-server",)
    modules = ("hiredis",)
    extra = "redis"

    def start_primary(self) -> RedisServer:
        return RedisServer(*QUICK)

    def start_follower(self, port: int) -> RedisServer:
        server = RedisServer(*QUICK)
        try:
            server("REPLICAOF", "127.0.0.1", port)
            while b"master_link_status:up" not in server("INFO", "replication"):
                time.sleep(0.01)
        except BaseException:
            server.stop()
            raise
        return server

    def promote(self, server: RedisServer) -> None:
        server("REPLICAOF", "NO", "ONE")

    @property
    def guarantees(self) -> Guarantees:
        return REDIS

    def url_of(self, addresses: Sequence[str]) -> str:
        return f"redis://{addresses[0]}/0"
