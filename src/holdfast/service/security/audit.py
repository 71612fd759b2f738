"""The audit log: a line of JSON for each forced release and log-in, by the logger `holdfast.audit`.

Nothing in a line lets anybody in: a token is named by its id.
"""

from __future__ import annotations

import json
import logging
from typing import Any

log = logging.getLogger("holdfast.audit")


def write(event: str, **facts: Any) -> None:
    """Writes one line. It is ASCII, so no name or label can break it or draw on a terminal."""
    kept = {key: value for key, value in facts.items() if value is not None}
    line = json.dumps({"event": event, **kept}).replace("\x7f", "\\u007f")
    log.warning("%s", line)
