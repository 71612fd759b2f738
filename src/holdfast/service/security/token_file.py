"""The token file: the badges of all bearer tokens, as JSON. No token itself is in it.

The file is read as a whole or not at all. Anything in it that is not understood is an error, and a
service that meets one lets nobody in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from ...errors import ConfigError
from . import private_files
from .badge import Badge, check, decode, encode
from .private_files import Mark

VERSION = 1
WHAT = "the token file"
MAX_TOKENS = 10_000


def default_path() -> str:
    """Returns the path of the token file where none is named, whether it is there or not."""
    named = os.environ.get("HOLDFAST_SERVE_TOKEN_FILE")
    if named:
        return named
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):  # the specification: a relative one is to be ignored
        folder = os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(folder, "holdfast", "tokens.json")


def load(path: str) -> tuple[dict[str, Badge], Mark]:
    """Returns the badges by id, and the mark of the file that they were read from.

    Raises FileNotFoundError, or ConfigError if the file is damaged or is not safe.
    """
    data, mark = private_files.read(WHAT, path)
    return _parse(path, data), mark


def add(path: str, badge: Badge) -> None:
    """Adds a badge to the file, which is made if it is missing."""
    check(badge)
    with private_files.turn(path):
        badges = _load_or_none(path)
        if badge.id in badges:
            raise ConfigError(f"there is a token {badge.id} already; make another")
        if len(badges) >= MAX_TOKENS:
            raise ConfigError(f"{WHAT} {path} has {MAX_TOKENS} tokens; revoke some first")
        _save(path, [*badges.values(), badge])


def remove(path: str, token_ids: Sequence[str]) -> list[Badge]:
    """Removes the badges of these ids, all or none, and returns them."""
    with private_files.turn(path):
        badges = _load_or_none(path)
        for token_id in token_ids:
            if token_id not in badges:
                raise ConfigError(f"there is no token {token_id!r:.80} in {path}")
        removed = [badges.pop(token_id) for token_id in dict.fromkeys(token_ids)]
        _save(path, list(badges.values()))
    return removed


def _load_or_none(path: str) -> dict[str, Badge]:
    try:
        return load(path)[0]
    except FileNotFoundError:
        return {}


def _save(path: str, badges: Sequence[Badge]) -> None:
    content = {"version": VERSION, "tokens": [encode(badge) for badge in badges]}
    try:
        private_files.replace(path, json.dumps(content, indent=1).encode() + b"\n")
    except OSError as error:
        raise ConfigError(f"{WHAT} {path} cannot be written: {error.strerror}") from None


def _parse(path: str, data: bytes) -> dict[str, Badge]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise ConfigError(f"{WHAT} {path} is damaged: it is not JSON") from None
    if not isinstance(content, dict) or set(content) != {"version", "tokens"}:
        raise ConfigError(f"{WHAT} {path} is damaged: it has not the keys version and tokens")
    if content["version"] != VERSION:
        raise ConfigError(f"{WHAT} {path} is of another release of Holdfast")
    if not isinstance(content["tokens"], list):
        raise ConfigError(f"{WHAT} {path} is damaged: tokens is not a list")
    badges: dict[str, Badge] = {}
    for number, record in enumerate(content["tokens"], 1):
        try:
            badge = decode(record)
        except (ConfigError, TypeError) as error:
            raise ConfigError(f"{WHAT} {path} is damaged at its token {number}: {error}") from None
        if badge.id in badges:
            raise ConfigError(f"{WHAT} {path} is damaged: it has the token {badge.id} twice")
        badges[badge.id] = badge
    return badges
