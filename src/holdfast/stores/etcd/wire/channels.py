"""The set-up of gRPC, for both worlds."""

from __future__ import annotations

from typing import Any

from ....errors import ConfigError
from ..address import Address

OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.enable_retries", 0),  # what may be asked again is for us to know
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),  # etcd's own lower limit is 5 s
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of our own, never one that a fork shares
    ("SingleThreadedUnaryStream", 1),  # who listens to such a stream reads it itself
)

LEADER = ("hasleader", "true")
"""Metadata by which a member without a leader says so at once, instead of leaving us to wait."""


def require_grpc() -> Any:
    """Returns the module `grpc`, or says how to install it."""
    try:
        import grpc
    except ImportError:
        raise ConfigError(
            "etcd:// needs the package grpcio, which is not installed: pip install 'holdfast[etcd]'"
        ) from None
    return grpc


def open_channel(module: Any, endpoint: str, address: Address) -> Any:
    """Opens a channel to one member; `module` is `grpc` or `grpc.aio`."""
    if address.tls is None:
        return module.insecure_channel(endpoint, options=OPTIONS)
    ca, cert, key = address.tls
    credentials = require_grpc().ssl_channel_credentials(ca, key, cert)
    return module.secure_channel(endpoint, credentials, options=OPTIONS)
