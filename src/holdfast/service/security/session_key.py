"""The key that signs the sessions of the page: a file of 32 random bytes beside the token file.

Services that are to accept each other's sessions, and their own after a restart, have the same key.
`holdfast token create` makes it, so that a service need not be able to write there.
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress

from ...errors import ConfigError
from . import private_files

LENGTH = 32
WHAT = "the session key"
_log = logging.getLogger("holdfast.service.security")


def path_beside(token_file: str) -> str:
    """Returns the path of the session key that belongs to a token file."""
    return os.path.join(os.path.dirname(token_file), "session.key")


def ensure(token_file: str) -> bytes:
    """Returns the key, which is made if it is missing; raises ConfigError if it cannot be used."""
    path = path_beside(token_file)
    with suppress(FileNotFoundError):
        return _load(path)
    with private_files.turn(token_file):
        with suppress(FileNotFoundError):
            return _load(path)
        key = secrets.token_bytes(LENGTH)
        try:
            private_files.replace(path, key.hex().encode() + b"\n")
        except OSError as error:
            raise ConfigError(f"{WHAT} {path} cannot be written: {error.strerror}") from None
    return key


def for_service(token_file: str) -> bytes:
    """Returns the key; if there is none and none can be made, one for this process alone."""
    path = path_beside(token_file)
    try:
        return ensure(token_file)
    except ConfigError as error:
        if os.path.lexists(path):
            raise
        _log.warning("sessions of the page end with this process: %s", error)
        return secrets.token_bytes(LENGTH)


def _load(path: str) -> bytes:
    data, _ = private_files.read(WHAT, path)
    with suppress(ValueError):
        key = bytes.fromhex(data.decode())
        if len(key) == LENGTH:
            return key
    raise ConfigError(f"{WHAT} {path} is damaged; remove it, and all sessions end")
