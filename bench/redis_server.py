"""A redis-server of its own for a figure, ended with it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LIMIT = 20.0


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """Runs a server for the `with`; yields its port."""
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("these figures need redis-server: apt-get install redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    process = subprocess.Popen(
        [program, *options, "--appendonly", "no"], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        limit = time.monotonic() + LIMIT
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError("redis-server did not start")
            time.sleep(0.01)
        yield port
    finally:
        process.kill()
        process.wait()
