"""The keys of `RedisFence`: the mark beside each key, and the floors and resets of all."""

from __future__ import annotations

from ..errors import ConfigError
from . import rules

SUFFIX = ":holdfast-fence"
FLOORS = "holdfast-fence-floors"
RESETS = "holdfast-fence-resets"


def resource_key(name: object) -> str:
    """Returns `name`, checked; raises for a key of the fence's own."""
    key = rules.resource_name(name)
    if key.endswith(SUFFIX) or key.startswith((FLOORS, RESETS)):
        raise ConfigError(f"{key!r} is one of the fence's own keys, where it remembers tokens")
    return key


def mark_of(key: str) -> str:
    """Returns the key that holds the mark of `key`."""
    return beside(key, SUFFIX)


def beside(key: str, suffix: str) -> str:
    """Returns the name of a second key in the same slot of a cluster. No two keys share one."""
    start = key.find("{")
    end = key.find("}", start + 1)
    if start >= 0 and end > start + 1:
        # It has a hash tag of its own. The colon tells `{x}` from `x`.
        return f"{key}:{suffix}"
    return f"{{{key}}}{suffix}"
