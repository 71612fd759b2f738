"""The picture of a chaos run: its report as one HTML file that asks for nothing from outside."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any

SCRIPTS = ("model.js", "words.js", "scene.js", "pen.js", "lanes.js", "timeline.js", "page.js")


def draw(report: dict[str, Any]) -> str:
    """Returns the picture of `report`, as the text of an HTML file.

    The file allows its own script and style alone. The report is in it as data: its texts are shown as
    texts, whatever is in them.
    """
    style = _read("style.css")
    script = '"use strict";\n' + "\n".join(map(_read, SCRIPTS))
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    parts = {"policy": policy, "style": style, "script": script, "report": _data(report)}
    page = _read("template.html")
    pieces: list[str] = []
    for piece in page.split("{{"):
        name, closed, rest = piece.partition("}}")
        pieces += [parts[name], rest] if closed else [piece]
    return "".join(pieces)


def _read(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


def _hash(text: str) -> str:
    """Returns what a content security policy has to say to allow `text`, and nothing else."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _data(report: dict[str, Any]) -> str:
    """Returns `report` as JSON that can stand in a script element: ASCII, and without any `<`."""
    try:
        text = json.dumps(report, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(report), separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    """Returns `value` with null for each number that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
