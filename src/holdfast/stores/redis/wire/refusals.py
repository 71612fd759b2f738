"""The refusals of a server: which of them end by themselves, and the errors to raise for them."""

from __future__ import annotations

from ....errors import BackendUnavailable, ConfigError
from ..address import Address

DENIED = ("NOAUTH", "WRONGPASS", "NOPERM")
"""Refusals of a user, a password or a permission."""
_DENIED_IN_SCRIPTS = ("ERR The user executing the script can't ", "ERR ACL failure in script")
"""The words of Redis 7 and Valkey for a command, or a key, that the user may not use in a script."""
_REASONS = {
    "READONLY": "is a read-only replica; connect to the primary",
    "LOADING": "is still loading its data",
    "OOM": "is out of memory (maxmemory), so it cannot keep another lock",
    "MISCONF": "refuses writes because it cannot save its data to disk",
    "NOREPLICAS": "refuses writes because too few replicas are connected",
    "MASTERDOWN": "is a replica that has lost its primary",
    "BUSY": "is busy with a long script",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "MOVED": "belongs to a cluster, where this lock is on another server",
    "ASK": "belongs to a cluster in which this lock is on the move to another server",
    "TRYAGAIN": "belongs to a cluster in which this lock is on the move to another server",
    "NOREPLICA": "has no replica",
}
TRANSIENT = frozenset({"LOADING", "BUSY", "TRYAGAIN"})
"""Refusals that end by themselves: the command is sent again until the call's time is over."""
NOT_PRIMARY = frozenset({"READONLY", "MASTERDOWN"})
"""Refusals after which the connection is not used again: another may lead to the primary."""
TRANSIENT_IN_FAILOVER = TRANSIENT | NOT_PRIMARY | {"NOREPLICAS"}
"""Refusals that end by themselves or with a failover, where sentinels see to that."""
TRANSIENT_IN_CLUSTER = TRANSIENT_IN_FAILOVER | {"MOVED", "ASK", "CLUSTERDOWN"}
"""Refusals that end by themselves, with a failover, or when a slot has moved or is served again."""


UNABLE = frozenset({"OOM", "READONLY", "MISCONF", "NOREPLICAS"})
"""Refusals of a server that still has its data, and cannot write now."""


def code_of(error: Exception) -> str:
    """Returns the first word of a refusal."""
    text = str(error)
    if text.startswith("ERR Error running script"):
        # Redis 6 wraps the refusal of a command inside a script.
        text = text.partition(": -")[2] or text
    if text.startswith(_DENIED_IN_SCRIPTS):
        return "NOPERM"
    return text.partition(" ")[0]


def reason_of(error: Exception) -> str:
    """Returns what a refusal says of the server, to stand behind its name."""
    return _REASONS.get(code_of(error)) or f"refused: {str(error)[:200]}"


def refusal(error: Exception, address: Address) -> BackendUnavailable | ConfigError:
    """Returns the exception to raise for a refusal. Its text never has secrets in it."""
    code = code_of(error)
    text = str(error)
    if code in DENIED or text.startswith("ERR AUTH") or "invalid password" in text:
        return ConfigError(
            f"the server at {address} does not let us in ({code}): check the user, the password and "
            "the user's permissions"
        )
    if text.startswith("ERR DB index"):
        return ConfigError(f"the server at {address} has no such database: {text}")
    return BackendUnavailable(f"the server at {address} {reason_of(error)}")


def deaf(error: Exception, address: Address, channels: bytes) -> BackendUnavailable | ConfigError:
    """Returns the exception to raise where a server does not let us listen on these channels."""
    kind = ConfigError if code_of(error) in DENIED else BackendUnavailable
    return kind(
        f"the server at {address} does not let us listen on channels: {error}; a user with an access "
        f"list needs &{channels.decode()}*"
    )
