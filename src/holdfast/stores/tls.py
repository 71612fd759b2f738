"""TLS by the options `tls`, `tls_ca`, `tls_cert` and `tls_key`, which name PEM files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import ConfigError
from ..interrupts import let_through

if TYPE_CHECKING:
    from ssl import SSLContext

TLS_FILES: dict[str, Any] = {"tls_ca": "", "tls_cert": "", "tls_key": ""}
TLS_OPTIONS: dict[str, Any] = {"tls": 0, **TLS_FILES}

_NO_TLS = "does not speak TLS on this port"
_PLAIN_TEXT = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""The names that OpenSSL has for a reply to a handshake that is no TLS."""


def context_of(settings: Mapping[str, Any]) -> SSLContext | None:
    """Returns the context that the options ask for; None if they ask for no TLS."""
    wanted = is_wanted(settings["tls"], "tls") or any(settings[name] for name in TLS_FILES)
    return context_with(settings) if wanted else None


def is_wanted(value: object, option: str) -> bool:
    """Returns whether `value` of an option turns TLS on; raises ConfigError if it says neither."""
    if value not in (0, 1):
        raise ConfigError(f"{option} must be True or False; in a URL, 1 or 0")
    return bool(value)


def context_with(files: Mapping[str, Any], prefix: str = "") -> SSLContext:
    """Returns a context with the files that `files` names. `prefix` is what users write before
    the names of these options."""
    import ssl  # slow to import, and not needed by most

    ca, cert, key = (files[name] or None for name in TLS_FILES)
    texts = {name: _pem(f"{prefix}{name}", files[name]) for name in TLS_FILES if files[name]}
    if cert is None and key is not None:
        raise ConfigError(f"{prefix}tls_key is given without {prefix}tls_cert, its certificate")
    if cert is not None and key is None and b"PRIVATE KEY-----" not in texts["tls_cert"]:
        raise ConfigError(
            f"{prefix}tls_cert and {prefix}tls_key go together: a client's certificate and its key"
        )
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key, password=_refuse_encrypted)
    except (OSError, ValueError) as error:
        let_through(error)
        raise ConfigError(f"the TLS files given cannot be used: {error}") from None
    return context


def unanswered(tls: SSLContext | None) -> str:
    """Returns what to say of a server that was not connected to in time, with TLS or without."""
    return "it did not answer in time" + (f", or {_NO_TLS}" if tls is not None else "")


def in_words(error: OSError, tls: SSLContext | None) -> OSError:
    """Returns `error`, which ended the opening of a connection, or one in its place: a port without
    TLS is named as what it is."""
    if tls is None:
        return error
    if isinstance(error, TimeoutError):
        return TimeoutError(unanswered(tls))
    if getattr(error, "reason", "") in _PLAIN_TEXT:
        return ConnectionError(f"it {_NO_TLS}")
    if isinstance(error, ConnectionResetError) or type(error).__name__ == "SSLEOFError":
        return ConnectionError(f"it hung up when we began to speak TLS; perhaps it {_NO_TLS}")
    return error


def _pem(option: str, path: Any) -> bytes:
    """Returns the contents of the PEM file that `option` names."""
    try:
        with open(os.fspath(path), "rb") as file:  # a number would be an open descriptor
            text = file.read()
    except (OSError, TypeError, ValueError) as error:
        let_through(error)
        raise ConfigError(f"the file given as {option} cannot be read: {error}") from None
    if b"-----BEGIN" not in text:
        raise ConfigError(f"the file given as {option} is not a PEM file")
    return text


def _refuse_encrypted() -> NoReturn:
    """Raises, in place of the prompt for a passphrase by which OpenSSL would wait for a person."""
    raise ConfigError("the key of the TLS certificate is encrypted; give a file where it is not")
