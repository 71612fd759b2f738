"""The Lua scripts that run inside each node."""

from __future__ import annotations

import os
from functools import cache

from ..redis.lua import Script, script_text, scripts_in

NAMES = (
    "take",
    "take_batch",
    "take_shared",
    "raise",
    "raise_shared",
    "free",
    "free_shared",
    "free_batch",
    "renew",
    "wait",
    "wait_shared",
    "leave",
    "leave_shared",
    "inspect",
    "find",
    "free_any",
    "adopt",
    "amend",
    "detach",
    "force",
    "begin",
    "seal",
    "highest",
    "admit",
)
_FOLDER = os.path.join(os.path.dirname(__file__), "scripts")


@cache
def scripts() -> dict[str, Script]:
    """Returns the scripts of Redlock, by name."""
    return scripts_in(_FOLDER, NAMES)


def text_of(name: str) -> bytes:
    """Returns the script `name` as it is sent to a node."""
    return script_text(_FOLDER, name)
