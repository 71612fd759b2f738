"""All commands of a simulated Redis that need nothing but its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import redis_hashes, redis_keys, redis_lists, redis_sorted

COMMANDS: dict[bytes, Callable[..., Any]] = {
    **redis_keys.COMMANDS,
    **redis_hashes.COMMANDS,
    **redis_lists.COMMANDS,
    **redis_sorted.COMMANDS,
}
