"""Locks of other libraries, and locks that are known to be bad, under the same faults as ours.

Each adapter uses its library in the way that its own documentation shows. None of them has a fencing
token. A library that can tell whether a lock is still held is asked; of the others we believe what
their users have to believe: that it is held until they give it back.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

from ..stores import urls
from .job import Job


class NotAcquired(Exception):
    """Raised when a library said that the lock was not to be had in time."""


class PeerLease:
    """A lock of another library, in the form of our leases."""

    token = None

    def __init__(self, release: Callable[[], object], held: Callable[[], bool]) -> None:
        self.release = release
        self._held = held

    @property
    def held(self) -> bool:
        return self._held()

    def on_lost(self, callback: Callable[[Any], None]) -> None:
        """None of them tells its user unasked; a user who looks is told by `held`."""


class Peer(ABC):
    """A library that has been connected to a store."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.prefix = f"{job.namespace}:"

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @abstractmethod
    def acquire(self, name: str, ttl: float, timeout: float) -> PeerLease:
        """Returns the lock once it is held; raises `NotAcquired`, or the library's own error."""

    @abstractmethod
    def close(self) -> None:
        """Ends the connections to the store."""


def believe() -> bool:
    """Stands for a library that cannot tell."""
    return True


class RedisPeer(Peer):
    """A library on one Redis, or on several."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.clients = redis_clients(job.url)
        self.client = self.clients[0]

    def close(self) -> None:
        for client in self.clients:
            client.close()


class RedisPy(RedisPeer):
    """redis-py's own `Lock`."""

    def acquire(self, name: str, ttl: float, timeout: float) -> PeerLease:
        lock = self.client.lock(self.prefix + name, timeout=ttl, blocking_timeout=timeout)
        if not lock.acquire():
            raise NotAcquired("acquire() returned False")
        return PeerLease(lock.release, believe)


class PythonRedisLock(RedisPeer):
    """python-redis-lock, with its renewal thread."""

    def acquire(self, name: str, ttl: float, timeout: float) -> PeerLease:
        import redis_lock

        whole = max(round(ttl), 1)  # it knows whole seconds only
        lock = redis_lock.Lock(
            self.client, self.prefix + name, expire=whole, auto_renewal=True, strict=True
        )
        if not lock.acquire(timeout=max(int(timeout), whole)):
            raise NotAcquired("acquire() returned False")
        return PeerLease(lock.release, believe)


class Pottery(RedisPeer):
    """pottery's `Redlock`, on one node or on several."""

    def acquire(self, name: str, ttl: float, timeout: float) -> PeerLease:
        import pottery

        lock = pottery.Redlock(
            key=self.prefix + name, masters=set(self.clients), auto_release_time=ttl
        )
        if not lock.acquire(timeout=timeout):
            raise NotAcquired("acquire() returned False")
        return PeerLease(lock.release, believe)


class Kazoo(Peer):
    """kazoo's `Lock`; its listener is told when the session is lost, as its documentation asks."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        from kazoo.client import KazooClient

        hosts = ",".join(f"{host}:{port}" for host, port in places(job.url))
        self._client = KazooClient(hosts=hosts, timeout=job.ttl)
        self._client.start(timeout=30)

    def acquire(self, name: str, ttl: float, timeout: float) -> PeerLease:
        lock = self._client.Lock(f"/{self.job.namespace}/{name}", self.job.lane)
        if not lock.acquire(timeout=timeout):
            raise NotAcquired("acquire() returned False")
        return PeerLease(lock.release, lambda: bool(self._client.connected and lock.is_acquired))

    def close(self) -> None:
        self._client.stop()
        self._client.close()


DELETE_MINE = (
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"
)


class Plain(RedisPeer):
    """The lock of many articles: SET NX PX, and a delete that looks whose it is. Known to be bad: it
    has no token, so nothing stops the late write of a holder that was paused."""

    def acquire(self, name: str, ttl: float, timeout: float) -> PeerLease:
        key, value = self.prefix + name, uuid4().hex
        until = time.monotonic() + timeout
        while not self.client.set(key, value, nx=True, px=int(ttl * 1000)):
            if time.monotonic() > until:
                raise NotAcquired("it is held by another")
            time.sleep(0.01)
        return PeerLease(lambda: self.client.eval(DELETE_MINE, 1, key, value), believe)


class WriteBack(RedisPeer):
    """A lock that renews by writing its value back, without looking whose it is. Known to be bad."""

    def acquire(self, name: str, ttl: float, timeout: float) -> PeerLease:
        key, value = self.prefix + name, uuid4().hex
        until = time.monotonic() + timeout
        milliseconds = int(ttl * 1000)
        while not self.client.set(key, value, nx=True, px=milliseconds):
            if time.monotonic() > until:
                raise NotAcquired("it is held by another")
            time.sleep(0.01)

        def held() -> bool:
            return bool(self.client.set(key, value, px=milliseconds))

        return PeerLease(lambda: self.client.eval(DELETE_MINE, 1, key, value), held)


PEERS: dict[str, Callable[[Job], Any]] = {
    "redis-py": RedisPy,
    "python-redis-lock": PythonRedisLock,
    "pottery": Pottery,
    "kazoo": Kazoo,
    "plain": Plain,
    "write-back": WriteBack,
}
STORES_OF = {
    "redis-py": ("redis", "redis+replica", "redis+sentinel"),
    "python-redis-lock": ("redis", "redis+replica"),
    "pottery": ("redis", "redis+replica", "redlock"),
    "kazoo": ("zookeeper",),
    "plain": ("redis", "redis+replica", "redis+sentinel"),
    "write-back": ("redis",),
}
"""The stores that each of them can be used with."""
KNOWN_BAD = ("plain", "write-back")
MODULES = {
    "redis-py": {"redis": "redis"},
    "python-redis-lock": {"redis": "redis", "redis_lock": "python-redis-lock"},
    "pottery": {"redis": "redis", "pottery": "pottery"},
    "kazoo": {"kazoo": "kazoo"},
    "plain": {"redis": "redis"},
    "write-back": {"redis": "redis"},
}
"""The Python modules that each of them needs, with the packages that bring them."""


def missing_for(library: str) -> str | None:
    """Returns what a library lacks on this machine, and how to get it; None if nothing does."""
    needed = MODULES.get(library, {})
    missing = [module for module in needed if find_spec(module) is None]
    if not missing:
        return None
    packages = " ".join(needed[module] for module in missing)
    noun = "module" if len(missing) == 1 else "modules"
    return f"the Python {noun} {', '.join(missing)} missing: pip install {packages}"


def places(url: str) -> list[tuple[str, int]]:
    """Returns the hosts and ports that a URL names."""
    authority = urls.parse(url).rest.partition("/")[0].rpartition("@")[2]
    found = []
    for place in authority.split(","):
        host, _, port = place.rpartition(":")
        found.append((host, int(port)))
    return found


def redis_clients(url: str) -> list[Any]:
    """Returns a client of redis-py for each server that a URL names; for sentinels, of the primary."""
    import redis
    from redis import sentinel as sentinels

    made: Any = sentinels
    limits: dict[str, Any] = {"socket_timeout": 5.0, "socket_connect_timeout": 5.0}
    target = urls.parse(url)
    if target.scheme == "redis+sentinel":
        name = target.rest.rpartition("/")[2]
        return [made.Sentinel(places(url), **limits).master_for(name)]
    return [redis.Redis(host=host, port=port, **limits) for host, port in places(url)]


def left_by(library: str, url: str, namespace: str) -> list[str]:
    """Returns what a library has left on the store in this namespace."""
    if "redis" not in STORES_OF[library]:
        return []
    found: list[str] = []
    for client in redis_clients(url):
        with client:
            keys = client.scan_iter(match=f"*{namespace}:*")
            found += [key.decode() for key in keys if client.type(key) == b"string"]
    return found
