"""A file, whose version is the hash of its bytes: compared and replaced under `flock`.

For writers who all use it; a plain reader sees the old file or the new one. Local file systems only.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any

from ..fences.record import Record, sync_folder, write_all
from ..fences.replacement import staged_file
from ..interrupts import real_path
from .register import Conflict, Register, Steps, Versioned, data

Path = str | os.PathLike[str]


class FileVersioned(Register):
    """Files by path. Blocking; in asyncio call it by `asyncio.to_thread`."""

    def _get(self, key: Path) -> Steps[Versioned]:
        found = yield lambda: _read(real_path(key))
        return Versioned(*found)

    def _put(self, key: Path, value: bytes | str, version: str | None) -> Steps[str]:
        body = data(value)
        new: str = yield lambda: _replace(real_path(key), body, version)
        return new


def _read(path: str) -> tuple[bytes | None, str | None]:
    try:
        with open(path, "rb") as file:
            body = file.read()
    except FileNotFoundError:
        return None, None
    return body, sha256(body).hexdigest()


def _replace(path: str, body: bytes, version: str | None) -> Any:
    folder, name = os.path.split(path)
    lock = Record.locked(os.path.join(folder, f".{name}.versioned"))
    assert lock is not None
    with lock:
        if _read(path)[1] != version:
            raise Conflict(path, "it is not the file that was read any more")
        fresh = os.path.join(folder, f".{name}.versioned-new")
        descriptor = staged_file(fresh, path)
        try:
            write_all(descriptor, body)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(fresh, path)
        sync_folder(path)
    return sha256(body).hexdigest()
