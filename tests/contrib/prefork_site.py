"""A WSGI application whose manager, and a lease, are there before a server forks its workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import holdfast

locks = holdfast.connect(os.environ["SITE_STORE"], namespace=os.environ["SITE_NAME"])
kept = locks.lock("kept").acquire()
"""A lease of the parent, which no worker may take for its own."""


def answer(path: str) -> str:
    if path == "hold":
        with locks.lock("job", ttl=2.0) as lease:
            print("holding", os.getpid(), lease.token, flush=True)
            while True:
                time.sleep(0.1)
                lease.ensure()
    if path == "kept":
        return f"{kept.held} {locks.lock('kept').try_acquire()}"
    with locks.lock("job", ttl=2.0, timeout=60.0) as lease:
        return f"{os.getpid()} {lease.token}"


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    words = answer(environ["PATH_INFO"].strip("/"))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [words.encode()]
