"""The choices of an operator about the security of a service."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network

from ...errors import ConfigError
from .limits import Limits


@dataclass(frozen=True)
class SecurityOptions(Limits):
    """The settings that say who may call a service, from where, and how often."""

    token_file: str | None = None
    """The token file; None: the one that `holdfast token` writes where none is named."""
    tls_cert: str | None = None
    tls_key: str | None = None
    behind_tls_proxy: bool = False
    """Whether all callers come by way of a proxy that has TLS."""
    proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    """The addresses, or networks, of that proxy: what it says of a caller's address is believed."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which callers may call the service, beside loopback and addresses."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("tls_cert and tls_key need each other; give both or none")
        for place in self.proxies:
            try:
                ip_network(place)
            except ValueError:
                raise ConfigError(
                    "each of proxies is an address, or a network such as 10.1.0.0/16, "
                    f"not {place!r:.80}"
                ) from None
        for name in self.allowed_hosts:
            if not name or any(sign in name for sign in "/:@ ") or not name.isascii():
                raise ConfigError(
                    f"an allowed host is a name without a scheme and a port, not {name!r:.80}"
                )
