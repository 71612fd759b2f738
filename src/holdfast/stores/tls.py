"""TLS by the options `tls`, `tls_ca`, `tls_cert` and `tls_key`, which name PEM files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    from ssl import SSLContext

TLS_OPTIONS: dict[str, Any] = {"tls": 0, "tls_ca": "", "tls_cert": "", "tls_key": ""}


def context_of(settings: dict[str, Any]) -> SSLContext | None:
    """Returns the context that the options ask for; None if they ask for no TLS."""
    ca, cert, key = (settings[name] or None for name in ("tls_ca", "tls_cert", "tls_key"))
    if settings["tls"] not in (0, 1):
        raise ConfigError("tls must be True or False; in a URL, 1 or 0")
    if (cert is None) != (key is None):
        raise ConfigError("tls_cert and tls_key go together: a client's certificate and its key")
    if not settings["tls"] and ca is None and cert is None:
        return None
    import ssl  # slow to import, and not needed by most

    for option, path in (("tls_ca", ca), ("tls_cert", cert), ("tls_key", key)):
        _check_pem(option, path)
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the TLS files given cannot be used: {error}") from None
    return context


def _check_pem(option: str, path: object) -> None:
    if path is None:
        return
    try:
        with open(path, "rb") as file:  # type: ignore[call-overload]
            text: bytes = file.read()
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(f"the file given as {option} cannot be read: {error}") from None
    if b"-----BEGIN" not in text:
        raise ConfigError(f"the file given as {option} is not a PEM file")
