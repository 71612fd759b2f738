"""A real Redis, and a real cluster, by redis-py's blocking and asyncio clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fences.sites import Site, die
from holdfast.chaos.servers.cluster import slot_of
from holdfast.fences import RedisFence, Token
from holdfast.fences.redis_keys import mark_of
from stores import redis_nodes, redis_server


class RedisSite(Site):
    grain = 1.0

    def __init__(self, folder: Path, single_use: bool = False) -> None:
        super().__init__(folder, single_use)
        if not (folder / "begun").exists():
            self.flush()
            (folder / "begun").touch()
        self.client = self.connect()
        self.fence = RedisFence(self.client, single_use=single_use)

    def flush(self) -> None:
        redis_server()("FLUSHALL")

    def connect(self) -> Any:
        import redis

        return redis.Redis(port=redis_server().port, decode_responses=True)

    def port(self, key: str) -> int:
        return redis_server().port

    def _verb(self, verb: str, *args: Any, **options: Any) -> Any:
        return getattr(self.fence, verb)(*args, **options)

    def write(self, resource: str, value: str, token: Token) -> None:
        self._verb("set", resource, value, token)

    def read(self, resource: str) -> str | None:
        value = self.client.get(resource)
        return value.decode() if isinstance(value, bytes) else value

    def overwrite(self, resource: str, value: str) -> None:
        self.client.set(resource, value)

    def highest(self, resource: str) -> int:
        highest: int = self._verb("highest", resource)
        return highest

    def reset(self, resource: str, to: int = 0) -> int:
        was: int = self._verb("reset", resource, by="a test", to=to)
        return was

    def show(self, resource: str, token: Token) -> None:
        self._verb("guard", resource, token)

    def prune(self, older_than: float = 0.0) -> int:
        number: int = self._verb("prune", older_than or 1e-3)
        return number

    def reset_floors(self, lock: Any = None, to: int = 0) -> None:
        self._verb("reset_floors", by="a test", lock=lock, to=to)

    def verify(self) -> None:
        self._verb("verify")

    def crash(self, resource: str, value: str, token: int) -> None:
        """Half of the request has been sent: the server sees none of it."""
        die(
            "import os, signal, socket, sys\n"
            "from holdfast.fences.redis_keys import mark_of\n"
            "from holdfast.fences.redis_scripts import SET, script_for\n"
            f"key, value, token = {resource!r}, {value!r}, {token}\n"
            f"floors = {self.fence.floors_of(mark_of(resource))!r}\n"
            "words = ['EVAL', script_for(SET).text, '3', mark_of(key), floors, key,"
            " str(token), '', 'w', value]\n"
            "packed = f'*{len(words)}\\r\\n' + ''.join(f'${len(w)}\\r\\n{w}\\r\\n' for w in words)\n"
            f"sock = socket.create_connection(('127.0.0.1', {self.port(resource)}))\n"
            "sock.sendall(packed.encode()[:-3])\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )

    def close(self) -> None:
        self.client.close()


class AsyncRedisSite(RedisSite):
    """Each call has a loop and a client of its own."""

    def _verb(self, verb: str, *args: Any, **options: Any) -> Any:
        import redis.asyncio

        async def call() -> Any:
            async with redis.asyncio.Redis(port=redis_server().port) as client:
                fence = RedisFence(client, single_use=self.single_use)
                return await getattr(fence, verb)(*args, **options)

        return asyncio.run(call())


class ClusterSite(RedisSite):
    def flush(self) -> None:
        redis_nodes().flush()

    def connect(self) -> Any:
        import redis.cluster

        return redis.cluster.RedisCluster("127.0.0.1", redis_nodes().nodes[0].port)

    def port(self, key: str) -> int:
        return redis_nodes().owner(slot_of(key)).port
