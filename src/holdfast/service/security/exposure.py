"""Where the service may listen: beyond loopback only with tokens, and with TLS."""

from __future__ import annotations

import socket
import ssl
from ipaddress import ip_address

from ...errors import ConfigError


def check_exposure(host: str, tokens: int, tls: bool, behind_tls_proxy: bool) -> None:
    """Raises ConfigError if `host` can be reached from outside, and anybody would be let in or heard.

    `tokens`: those that have not expired. `behind_tls_proxy`: the operator says that all callers come
    by way of a proxy that has TLS.
    """
    if tls and behind_tls_proxy:
        raise ConfigError("--tls-cert and --behind-tls-proxy exclude each other; give one of them")
    if is_loopback(host):
        return
    if not tokens:
        raise ConfigError(
            f"without tokens the service listens on loopback only, and {host!r:.80} is beyond it; "
            "make a token first: holdfast token create --role admin --prefix ''"
        )
    if not (tls or behind_tls_proxy):
        raise ConfigError(
            f"on {host!r:.80} tokens would be sent where others can read them; give --tls-cert and "
            "--tls-key, or --behind-tls-proxy if all callers come by way of a proxy that has TLS"
        )


def is_loopback(host: str) -> bool:
    """Tells whether all addresses of `host` can be reached from this machine alone."""
    try:
        return _is_loopback(host)
    except ValueError:
        pass
    if not host:
        return False  # every address
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"there is no address to listen on for {host!r:.80}: {error}") from None
    return all(_is_loopback(str(address[4][0])) for address in found)


def _is_loopback(address: str) -> bool:
    found = ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def check_certificate(cert: str, key: str) -> None:
    """Raises ConfigError if TLS cannot be spoken with this certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A key with a password would be asked for at the terminal, where there may be none.
        context.load_cert_chain(cert, key, password=_no_password)
    except ConfigError:
        raise
    except ssl.SSLError as error:
        reason = error.reason or "it is not PEM, or the key is not that of the certificate"
        raise ConfigError(
            f"the certificate {cert} and the key {key} cannot be used: {reason}"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"the certificate {cert} or the key {key} cannot be read: {error.strerror}"
        ) from None


def _no_password() -> str:
    raise ConfigError("the TLS key has a password; give one without, which only its owner may read")
