"""The nodes that a `redlock://` URL names, and its options."""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import checks
from ...errors import ConfigError
from ..redis.address import TLS_OPTIONS, Address, address_of, wants_tls
from ..timing import TIMING_OPTIONS, timing_of
from ..urls import Target, merge_options

FEWEST = 3
MAX_TTL = 60.0
NODE_TIMEOUT = 0.25
PATIENCE = 4


class Settings(NamedTuple):
    """The nodes, and the options of `connect()` for all of them."""

    addresses: tuple[Address, ...]
    members: tuple[str, ...]
    """Names by which the nodes know each other: the same for every client."""
    max_ttl: float
    node_timeout: float
    heartbeat: float
    wait_when_fresh: bool
    durable: bool
    stop_when_lost: bool
    """True if nodes do not come back by the clock, where too few vote that could be read."""

    @property
    def quorum(self) -> int:
        """The number of nodes in the smallest majority."""
        return len(self.addresses) // 2 + 1

    @property
    def patience(self) -> float:
        """Seconds that a node which comes back has for a reply: more than the others, since no caller
        waits for it."""
        return PATIENCE * self.node_timeout


def parse_settings(target: Target, options: dict[str, Any]) -> Settings:
    """Returns the settings in `redlock://[user:password@]host:port,host:port,…[/db]`."""
    known = {
        "max_ttl": MAX_TTL,
        "node_timeout": NODE_TIMEOUT,
        **TIMING_OPTIONS,  # the claim window is not used; accepted so that stores can be exchanged
        "fresh": "start",
        "appendfsync": "",
        "majority_lost": "return",
        "db": 0,
        "tls": 0,
        **TLS_OPTIONS,
    }
    given = merge_options(target, options, known)
    addresses = _addresses(target, given, wants_tls(given))
    if given["fresh"] not in ("start", "wait"):
        raise ConfigError(
            "fresh must be 'start' or 'wait': what nodes do that have never been used"
        )
    if given["appendfsync"] not in ("", "always"):
        raise ConfigError(
            "appendfsync can only be 'always', and only where every node is configured so"
        )
    if given["majority_lost"] not in ("return", "stop"):
        raise ConfigError(
            "majority_lost must be 'return' or 'stop': what nodes do that have restarted, where no "
            "majority is left that remembers the highest token"
        )
    return Settings(
        addresses,
        tuple(str(address) for address in addresses),
        checks.ttl(given["max_ttl"], "max_ttl"),
        checks.ttl(given["node_timeout"], "node_timeout"),
        timing_of(given).heartbeat,
        given["fresh"] == "wait",
        given["appendfsync"] == "always",
        given["majority_lost"] == "stop",
    )


def _addresses(target: Target, given: dict[str, Any], tls: bool) -> tuple[Address, ...]:
    authority, slash, db = target.rest.partition("/")
    hosts = [host.strip() for host in authority.split(",")]
    if len(hosts) < FEWEST or len(hosts) % 2 == 0:
        raise ConfigError(
            f"a redlock:// URL names an odd number of nodes, at least three, not {len(hosts)}: "
            "redlock://host1:6379,host2:6379,host3:6379"
        )
    # Credentials that only the first host has are meant for all hosts.
    shared, at, _ = hosts[0].rpartition("@")
    if at and not any("@" in host for host in hosts[1:]):
        hosts = [hosts[0], *(f"{shared}@{host}" for host in hosts[1:])]
    scheme = "rediss" if tls else "redis"
    addresses = tuple(address_of(Target(scheme, host + slash + db, {}), given) for host in hosts)
    if len({str(address) for address in addresses}) < len(addresses):
        raise ConfigError("a redlock:// URL names each node once: a node has one vote")
    return addresses
