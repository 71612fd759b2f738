"""A store that the user has: only our own workers, and the way to it, are broken.

Nothing is asked of the store but what a manager in the run's own namespace asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import holdfast

from ...errors import ConfigError
from ...guarantees import Guarantees
from ...stores.urls import parse
from ..faults import FAULTS
from ..servers.proxy import Place
from .links import LinkedLab

PORTS = {"redis": 6379, "etcd": 2379, "zookeeper": 2181, "postgresql": 5432, "mysql": 3306}
"""The schemes whose servers may be reached by way of a proxy, each with its usual port."""
SAME = {"postgres": "postgresql", "mariadb": "mysql"}
SECURE = ("tls", "tls_ca", "sslmode", "sslrootcert", "ssl", "ssl_ca")
"""Options that make a client look at the name of the server, which a proxy does not have."""


class Way(NamedTuple):
    """A URL taken apart, so that its servers can be replaced by proxies."""

    before: str
    """The scheme, and the credentials."""
    hosts: tuple[tuple[str, int], ...]
    after: str
    """The path and the query."""

    def through(self, addresses: Sequence[str]) -> str:
        return self.before + ",".join(addresses) + self.after


def take_apart(url: str) -> Way | str:
    """Returns the parts of a URL; or a text that says why no proxy can stand before its servers."""
    target = parse(url)
    scheme = SAME.get(target.scheme, target.scheme)
    if scheme == "sqlite":
        return "it is a file, and there is no connection to a server"
    if scheme not in PORTS:
        return f"the clients of {target.scheme}:// must reach its servers by their own addresses"
    if any(name in target.query for name in SECURE):
        return "TLS is used, and a proxy does not have the server's name"
    start, _, rest = url.partition("://")
    end = min((rest.find(mark) for mark in "/?" if mark in rest), default=len(rest))
    login, at, names = rest[:end].rpartition("@")
    hosts: list[tuple[str, int]] = []
    for name in names.split(","):
        host, colon, port = name.rpartition(":")
        if not colon or name.endswith("]"):
            host, port = name, str(PORTS[scheme])
        if not host or not port.isdecimal():
            return "the URL does not say where the servers are"
        hosts.append((host.strip("[]"), int(port)))
    return Way(f"{start}://{login}{at}", tuple(hosts), rest[end:])


class OwnLab(LinkedLab):
    name = "own"
    title = "your own store"
    possible = (
        "pause",
        "holder-crash",
        "partition",
        "delay",
        "lost-reply",
        "reset",
        "kill-at-call",
    )

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        if parse(url).scheme == "memory":
            raise ConfigError(
                "memory:// is a store of one process; workers are processes of their own"
            )
        if parse(url).scheme in ("http", "https"):
            raise ConfigError(
                "a lock service serves the namespaces that it was given, and each run has one of its "
                "own; name the store behind it"
            )
        way = take_apart(url)
        self._way = None if isinstance(way, str) else way
        self._obstacle = way if isinstance(way, str) else ""
        self.about = b"/holdfast/" if url.startswith("etcd:") else b""
        holdfast.connect(url).close()  # opens nothing, but refuses a URL that is wrong
        self._guarantees: Guarantees | None = None

    def __enter__(self) -> Self:
        """Reaches the store, so that one which cannot be had is told before anything begins."""
        self._guarantees = self.guarantees
        return super().__enter__()

    @property
    def guarantees(self) -> Guarantees:
        """The promises of the store, which is reached for them."""
        if self._guarantees is None:
            with holdfast.connect(self._url) as locks:
                self._guarantees = locks.guarantees
        return self._guarantees

    def why_not(self, fault: str) -> str | None:
        if fault in ("partition", "lost-reply", "reset") and self._way is None:
            return self._obstacle
        if fault in ("cut", "loss"):
            return "workers in a network of their own would not reach your store"
        if fault not in self.possible:
            return f"{FAULTS[fault].title} would break your store for others, too"
        return super().why_not(fault)

    @property
    def nodes(self) -> tuple[str, ...]:
        """One for each server that the URL names, without its address."""
        if self._way is None:
            return ("store",)
        return tuple(f"server {number}" for number in range(1, len(self._way.hosts) + 1))

    def places(self) -> dict[str, Place]:
        return {} if self._way is None else dict(zip(self.nodes, self._way.hosts, strict=True))

    def url_of(self, addresses: Sequence[str]) -> str:
        return self._url if self._way is None else self._way.through(addresses)

    @property
    def direct_url(self) -> str:
        return self._url

    def wait_ready(self) -> None:
        """Starts nothing: the store is the user's."""

    def stop(self) -> None:
        self.close_links()
