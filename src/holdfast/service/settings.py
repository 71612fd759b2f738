"""The settings of a service."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from .. import checks
from ..errors import ConfigError
from ..fences.places import NoFence, target_of
from .security.options import SecurityOptions

PORT = 7420
LEAST_CLAIMS = 500
"""Claims that our own clients put into one renewal."""


@dataclass(frozen=True)
class Settings(SecurityOptions):
    """How a service is started. Times are seconds."""

    url: str | None = field(default=None, repr=False)
    """The store, as for `connect()`; it may have a password in it."""
    namespaces: tuple[str, ...] = ("holdfast",)
    """The namespaces that requests may name; the first is that of a request which names none."""
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    """The options of the store, as for `connect()`."""
    fence_url: str | None = field(default=None, repr=False)
    """The store in which fences are kept; None: that of the locks."""
    host: str = "127.0.0.1"
    port: int = PORT
    patience: float = 5.0
    """Seconds that the store has to answer."""
    most_claims: int = 1000
    """Claims that one renewal may have."""
    stop_within: float = 10.0
    """Seconds that a graceful stop may take."""
    look_every: float = 1.0
    """Seconds between two looks at all locks, while somebody listens to events."""
    events_kept: int = 10_000
    """Events that are kept for those who come back."""

    metric_group: str | None = None
    """The separator in the names of locks before which their group stands, for `/metrics`."""
    chaos_report: str | None = None
    """A file that `holdfast chaos --html` has written; the page opens it."""
    access_log: str | None = None
    """The file for a line on each request; `-` is the standard output."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.namespaces:
            raise ConfigError("the service needs at least one namespace")
        for namespace in self.namespaces:
            checks.namespace(namespace)
        if len(set(self.namespaces)) != len(self.namespaces):
            raise ConfigError("a namespace is named twice")
        if self.most_claims < LEAST_CLAIMS:
            raise ConfigError(
                f"most_claims is at least {LEAST_CLAIMS}, which clients send, not {self.most_claims}"
            )
        if self.fence_url is not None:
            try:
                target_of(self.fence_url)
            except (ConfigError, NoFence) as error:
                raise ConfigError(f"fence_url: {error}") from None
        report = self.chaos_report
        if report is not None and not (os.path.isfile(report) and os.access(report, os.R_OK)):
            raise ConfigError(f"the chaos report {self.chaos_report!r} cannot be read")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"a port is from 0 to 65535, not {self.port}")
        for name in ("patience", "stop_within", "look_every"):
            checks.ttl(getattr(self, name), name)
