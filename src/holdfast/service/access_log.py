"""The access log: one line of JSON for each request. No credentials, no headers, no query, no body.

Lines are written by a thread of their own: a disk or a pipe that stands still does not hold up the
service. What it cannot take is dropped, and the next line says how many.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from datetime import UTC, datetime

from ..errors import ConfigError
from ..events import report
from .hooks import Finished
from .security.bearer import redact

MOST_LINES = 10_000
"""Lines that wait to be written."""
MOST_PATH = 1024
"""Characters of a path that are written."""
LOOK_EVERY = 1.0
"""Seconds after which it is looked whether the file was moved away, as those who rotate logs do."""
CLOSE_LIMIT = 2.0

_END = None


def line_of(finished: Finished, at: float, dropped: int = 0) -> bytes:
    """Returns the line on one request, in ASCII."""
    told: dict[str, object] = {
        "at": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
        "client": finished.client,
        "caller": finished.caller,
        "method": finished.method,
        "path": redact(finished.path[:MOST_PATH]),
        "operation": finished.operation,
        "namespace": finished.namespace,
        "status": finished.status,
        "seconds": round(finished.duration, 6),
    }
    if dropped:
        told["dropped"] = dropped
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


class AccessLog:
    """A file, or the standard output, to which requests are written: a listener of `Hooks.finished`."""

    def __init__(self, path: str) -> None:
        """Opens the file, which is made if need be; `path` may be `-`, for the standard output.

        Raises ConfigError if it cannot be written.
        """
        self._path = "" if path == "-" else os.path.abspath(path)
        self._file = self._open()
        self._looked = time.monotonic()
        self._lines: queue.Queue[bytes | None] = queue.Queue(MOST_LINES)
        self._dropped = 0
        self._failed = False
        self._thread = threading.Thread(
            target=self._run, name="holdfast-serve-access-log", daemon=True
        )

    def start(self) -> None:
        """Begins to write. A process that forks may do so in its child: the file is open before."""
        self._thread.start()

    def __call__(self, finished: Finished) -> None:
        try:
            self._lines.put_nowait(line_of(finished, time.time(), self._dropped))
            self._dropped = 0
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Writes what is left, as far as it can be written soon. May be repeated."""
        if self._thread.is_alive():
            try:
                self._lines.put(_END, timeout=CLOSE_LIMIT)
            except queue.Full:
                return
            self._thread.join(CLOSE_LIMIT)

    def _open(self) -> int:
        if not self._path:
            return sys.stdout.fileno()
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            return os.open(self._path, flags, 0o640)
        except OSError as error:
            raise ConfigError(f"the access log cannot be written: {error}") from None

    def _run(self) -> None:
        while (line := self._lines.get()) is not _END:
            try:
                self._follow()
                left = line
                while left:
                    left = left[os.write(self._file, left) :]
                self._failed = False
            except (OSError, ConfigError) as error:
                if not self._failed:  # once: a full disk fails for each line
                    self._failed = True
                    report("the access log could not be written", error)
        if self._path:
            os.close(self._file)

    def _follow(self) -> None:
        """Opens the file again if it was moved away."""
        now = time.monotonic()
        if not self._path or now < self._looked + LOOK_EVERY:
            return
        self._looked = now
        try:
            there = os.stat(self._path)
            here = os.fstat(self._file)
            if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
                return
        except FileNotFoundError:
            pass
        fresh = self._open()
        os.close(self._file)
        self._file = fresh
