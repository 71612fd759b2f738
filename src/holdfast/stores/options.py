"""The types of what `connect()` takes: a client in place of a URL, and the options of all stores."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

if TYPE_CHECKING:
    from ssl import SSLContext

    from ..clock import Clock

File = str | PathLike[str]


class RedisClient(Protocol):
    """A client of redis-py, which need not be installed: a `Redis`, a `RedisCluster`, or what
    `master_for()` of a `Sentinel` returns."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...


class SqlAlchemyEngine(Protocol):
    """An `Engine` or `AsyncEngine` of SQLAlchemy: locks are kept in its database, over connections of
    our own."""

    @property
    def url(self) -> Any: ...


class SqlAlchemyUrl(Protocol):
    """A `URL` of SQLAlchemy."""

    def render_as_string(self, hide_password: bool = True) -> str: ...


class StoreOptions(TypedDict, total=False):
    """The options of `connect()`. Each store takes some of them, and refuses the others."""

    appendfsync: Literal["", "always"]
    claim_window: float
    clock: Clock | None
    connections: int
    db: int
    fresh: Literal["start", "wait"]
    heartbeat: float
    key: str | None
    majority_lost: Literal["return", "stop"]
    max_ttl: float
    min_replicas: int
    node_timeout: float
    sasl: dict[str, Any] | None
    sentinel_password: str | None
    sentinel_tls: bool | None
    sentinel_tls_ca: File | None
    sentinel_tls_cert: File | None
    sentinel_tls_context: SSLContext | None
    sentinel_tls_key: File | None
    sentinel_user: str | None
    tick: float
    tls: bool
    tls_ca: File | None
    tls_cert: File | None
    tls_context: SSLContext | None
    tls_key: File | None
    token: str | None
    token_base: int
    token_file: File | None
