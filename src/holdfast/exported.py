"""A lease as a text, to be given away: written by `lease.export()`, read by `locks.adopt()`."""

from __future__ import annotations

from typing import NamedTuple

from . import checks
from .errors import ConfigError

_MARK = "holdfast1."
"""The beginning of every such text, with the number of its format."""


class Export(NamedTuple):
    """All that is needed to take a lease over."""

    realm: str
    """The store and namespace that the lock is of."""
    name: str
    owner: str
    token: int
    kind: str
    weight: int
    capacity: int
    ttl: float
    lock_delay: float
    text: str
    """A leader's value; empty for other locks."""


def encode(export: Export) -> str:
    """Returns the text: letters, digits, `-`, `_` and one dot, so it fits into a URL or a message."""
    import json  # slow to import, as base64 is, and rarely needed
    from base64 import urlsafe_b64encode

    packed = json.dumps(list(export), separators=(",", ":"), ensure_ascii=False).encode()
    return _MARK + urlsafe_b64encode(packed).decode().rstrip("=")


def decode(text: object) -> Export:
    """Returns what `encode` was given; raises `ConfigError` for anything else."""
    if not isinstance(text, str) or not text.startswith(_MARK):
        raise ConfigError("adopt() takes what lease.export() returned, and this is something else")
    import json
    from base64 import b64decode

    packed = text[len(_MARK) :]
    try:
        values = json.loads(b64decode(packed + "=" * (-len(packed) % 4), b"-_", validate=True))
        if not all(isinstance(values[index], str) for index in (0, 4, 9)):
            raise TypeError
        export = Export(*values)
        checks.lock_name(export.name)
        checks.owner(export.owner)
        checks.ttl(export.ttl)
        checks.delay(export.lock_delay)
        checks.permits(export.capacity)
        checks.permits(export.weight)
        checks.label(export.text)
    except (ValueError, TypeError, LookupError):  # as ConfigError and binascii.Error are
        raise ConfigError(
            "the text that should be an exported lease is damaged; pass on all of what lease.export() "
            "returned"
        ) from None
    return export
