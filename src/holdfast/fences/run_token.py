"""The token of `holdfast run`, as the command that it runs shows it to a fence."""

from __future__ import annotations

import os

from ..errors import ConfigError
from .http import LOCK, TOKEN, RequestToken, read_headers


def run_token() -> RequestToken:
    """Returns the token, with the lock's identity, that `holdfast run` told its command.

    Give it to a fence wherever a token is taken. Raises `ConfigError` outside of `holdfast run`.
    """
    number = os.environ.get("HOLDFAST_TOKEN", "")
    lock = os.environ.get("HOLDFAST_LOCK_ID", "")
    if not number or not lock:
        raise ConfigError(
            "this program is not run by `holdfast run`, which tells its command the token of its lease "
            "(HOLDFAST_TOKEN and HOLDFAST_LOCK_ID)"
        )
    shown = read_headers({TOKEN.lower(): number, LOCK.lower(): lock})
    assert shown is not None
    return shown
