"""The configuration: a file of named stores, for `--store`. Nothing of it is ever shown but names.

    [stores.prod]
    url = "redis://ada:secret@redis.example:6379/0"
    namespace = "billing"

Whoever may write to it chooses where our locks are, and whom we show our passwords to. So a file that
others may write to is refused, and so is one in whose place they may put another.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from typing import Any, NamedTuple

from ..errors import ConfigError
from .arguments import unknown

_MOST = 1 << 20
"""Bytes that a configuration may have."""


class Place(NamedTuple):
    """A store that the configuration names. Its URL may have a password in it."""

    url: str
    namespace: str | None

    def __repr__(self) -> str:
        return "<Place>"


def path() -> str:
    """Returns the path of the configuration, whether it is there or not."""
    named = os.environ.get("HOLDFAST_CONFIG")
    if named:
        return named
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):  # the specification: a relative one is to be ignored
        folder = os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(folder, "holdfast", "config.toml")


def store_named(name: str) -> Place:
    """Returns the store of that name."""
    file = path()
    stores = _stores(file, _parsed(file, _read(file)))
    if name not in stores:
        if not stores:
            raise ConfigError(f"there is no store in {file}; write [stores.NAME] and url = …")
        raise unknown(f"store in {file} named", name, list(stores))
    return _place(file, name, stores[name])


def read_toml(file: str) -> dict[str, Any]:
    """Returns what is in a file of TOML, which others may not write to."""
    return _parsed(file, _read(file))


def _read(file: str) -> bytes:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in its place is not waited for
    except FileNotFoundError:
        raise ConfigError(
            f"there is no configuration at {file}; write [stores.NAME] and url = … into it, or name "
            "another file by $HOLDFAST_CONFIG"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"the configuration {file} cannot be read: {reason}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"the configuration {file} is no file")
        if status.st_uid not in (0, os.geteuid()):
            raise ConfigError(f"the configuration {file} is somebody else's, so it is not used")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(
                f"others may write to the configuration {file}, so it is not used; mend that by: "
                f"chmod go-w {file}"
            )
        _refuse_open_folders(file)
        if status.st_size > _MOST:
            raise ConfigError(f"the configuration {file} is too large")
        return os.read(fd, _MOST)
    finally:
        os.close(fd)


def _refuse_open_folders(file: str) -> None:
    """Refuses a file in whose place others may put another, by its folder or one above that."""
    for path in dict.fromkeys((os.path.abspath(file), os.path.realpath(file))):
        folder = os.path.dirname(path)
        owner = os.stat(folder).st_uid
        if owner not in (0, os.geteuid()):
            raise ConfigError(
                f"the folder {folder} of the configuration is somebody else's, so it is not used"
            )
        while True:
            mode = os.stat(folder).st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and not _read_only(folder):
                raise ConfigError(
                    f"everybody may write to {folder}, in which the configuration is, so it is not "
                    f"used; mend that by: chmod o-w {folder}"
                )
            if folder == os.path.dirname(folder):
                break
            folder = os.path.dirname(folder)


def _read_only(folder: str) -> bool:
    """Tells whether `folder` is mounted so that nobody can write to it, as in a container."""
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def _parsed(file: str, data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode("utf-8-sig"))  # some editors put a mark in front
    except UnicodeDecodeError:
        raise ConfigError(f"the configuration {file} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        # The place alone: what is there may be a password.
        place = re.search(r"\(at (?:line \d+, column \d+|end of document)\)", str(error))
        where = f" {place.group()}" if place else ""
        raise ConfigError(f"the configuration {file} is not TOML{where}") from None


def _stores(file: str, parsed: dict[str, Any]) -> dict[str, Any]:
    for key in parsed:
        if key != "stores":
            raise ConfigError(f"the configuration {file} has an unknown key {key!r:.40}")
    stores = parsed.get("stores", {})
    if not isinstance(stores, dict):
        raise ConfigError(f"in the configuration {file}, stores must be tables: [stores.NAME]")
    return stores


def _place(file: str, name: str, table: Any) -> Place:
    where = f"[stores.{name}] in the configuration {file}"
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table")
    for key, value in table.items():
        if key not in Place._fields:
            raise ConfigError(f"{where} has an unknown key {key!r:.40}; there are url, namespace")
        if not isinstance(value, str):
            raise ConfigError(f"{key} of {where} must be a text, in quotes")
    if not table.get("url"):
        raise ConfigError(f"{where} has no url")
    return Place(table["url"], table.get("namespace"))
