"""The limits of a service: how much a caller may ask for, and how long it may take to do so."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ... import checks
from ...errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """What one caller, or one connection, may use up. Times are seconds."""

    requests_per_second: float = 2000.0
    """Requests that a token may send in a second, in the long run."""
    requests_at_once: float = 4000.0
    """Requests that a token may send at once, when it has sent none for a while."""
    most_waits: int = 10_000
    """Requests of one token that may wait at once; and places in queues that it may keep."""
    most_listeners: int = 2000
    """Streams of events that one token may listen to at once."""
    failures_per_second: float = 10.0
    """Requests without a good token that one address may send in a second, in the long run."""
    longest_ttl: float = checks.MAX_TTL
    """The longest TTL that a lease may have."""
    longest_wait: float = 3600.0
    """The most seconds that a request may wait for a lock."""
    body_limit: int = 1 << 20
    """Bytes that a body may have."""
    head_limit: int = 32 << 10
    """Bytes that the first line and the headers of a request may have."""
    receive_within: float = 20.0
    """Seconds from the connection, or from the first byte of a request, to the last one."""
    send_within: float = 60.0
    """Seconds for which a client may read nothing of an answer that waits to be sent."""
    idle_within: float = 75.0
    """Seconds for which a connection is kept while nothing is asked on it."""
    most_connections: int = 20_000
    """Connections at once, of all callers together."""

    def __post_init__(self) -> None:
        for field in fields(Limits):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ConfigError(f"{field.name} must be more than 0, not {value!r:.40}")
        for name in ("longest_ttl", "longest_wait", "receive_within", "send_within", "idle_within"):
            checks.ttl(getattr(self, name), name)
        if self.requests_at_once < 1:
            raise ConfigError("requests_at_once must be 1 or more, or no request would ever pass")
