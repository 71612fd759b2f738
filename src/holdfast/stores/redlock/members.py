"""The nodes that a `redlock://` URL names, and its options."""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import checks
from ...entries import HEARTBEAT
from ...errors import ConfigError
from ..redis.address import TLS_OPTIONS, Address, address_of
from ..urls import Target, merge_options

FEWEST = 3
MAX_TTL = 60.0
NODE_TIMEOUT = 0.25
PATIENCE = 4


class Settings(NamedTuple):
    addresses: tuple[Address, ...]
    members: tuple[str, ...]
    """What the nodes are called among each other: the same for every client."""
    max_ttl: float
    node_timeout: float
    heartbeat: float
    wait_when_fresh: bool
    durable: bool

    @property
    def quorum(self) -> int:
        return len(self.addresses) // 2 + 1

    @property
    def patience(self) -> float:
        """Seconds that a node which comes back is given to answer: more, since nobody waits for it."""
        return PATIENCE * self.node_timeout


def settings_of(target: Target, options: dict[str, Any]) -> Settings:
    """`redlock://[user:password@]host:port,host:port,host:port[/db]`."""
    known = {
        "max_ttl": MAX_TTL,
        "node_timeout": NODE_TIMEOUT,
        "heartbeat": HEARTBEAT,
        "claim_window": 1.0,  # nothing is handed over here; accepted so that a URL may be exchanged
        "fresh": "start",
        "appendfsync": "",
        "db": 0,
        "tls": 0,
        **TLS_OPTIONS,
    }
    given = merge_options(target, options, known)
    tls = bool(given["tls"]) or any(given[name] is not None for name in TLS_OPTIONS)
    addresses = _addresses(target, given, tls)
    if given["fresh"] not in ("start", "wait"):
        raise ConfigError(
            "fresh must be 'start' or 'wait': what nodes do that were never used before"
        )
    if given["appendfsync"] not in ("", "always"):
        raise ConfigError(
            "appendfsync can only be declared as 'always', where every node has it so"
        )
    return Settings(
        addresses,
        tuple(str(address) for address in addresses),
        checks.ttl(given["max_ttl"], "max_ttl"),
        checks.ttl(given["node_timeout"], "node_timeout"),
        checks.ttl(given["heartbeat"], "heartbeat"),
        given["fresh"] == "wait",
        given["appendfsync"] == "always",
    )


def _addresses(target: Target, given: dict[str, Any], tls: bool) -> tuple[Address, ...]:
    authority, slash, db = target.rest.partition("/")
    places = authority.split(",")
    if len(places) < FEWEST or len(places) % 2 == 0:
        raise ConfigError(
            f"a redlock:// URL names an odd number of nodes, three or more, not {len(places)}: "
            "redlock://host1:6379,host2:6379,host3:6379"
        )
    # Credentials before the first alone are everybody's.
    shared, at, _ = places[0].rpartition("@")
    if at and not any("@" in place for place in places[1:]):
        places = [places[0], *(f"{shared}@{place}" for place in places[1:])]
    scheme = "rediss" if tls else "redis"
    addresses = tuple(address_of(Target(scheme, place + slash + db, {}), given) for place in places)
    if len({str(address) for address in addresses}) < len(addresses):
        raise ConfigError("a redlock:// URL names each node once: a node has one vote")
    return addresses
