"""Names and options that the tests on real nodes share."""

from __future__ import annotations

from typing import Any

from holdfast import aio as holdfast
from holdfast.chaos.servers.redlock import RedlockNodes

MAX_TTL = 20.0
LOCK = "holdfast:{x}"


def connect(nodes: RedlockNodes, **options: Any) -> holdfast.Locks:
    return holdfast.connect(nodes.url, **{"max_ttl": MAX_TTL, "node_timeout": 1.5} | options)
