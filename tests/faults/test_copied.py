"""A process that copies its own state folder: it opens, reads and closes every file of the store.

Closing a descriptor of a file drops all POSIX record locks that the process has on it, and SQLite's are
such: another process then believes to be the last one, and removes the log that we write to.
"""

from __future__ import annotations

import os
from pathlib import Path

from faults.actors import Stage, now, until

READ = """[
    os.close(fd) for folder, _, files in os.walk({folder!r}) for file in files
    for fd in [os.open(f"{{folder}}/{{file}}", os.O_RDONLY | os.O_NONBLOCK)]
]"""
TTL = 1.5


def test_what_it_holds_stays_held(stage: Stage, tmp_path: Path, world: str) -> None:
    holder = stage.actor(world)
    token = holder.acquire("x", ttl=TTL)["token"]
    holder.ask("run", code=READ.format(folder=str(tmp_path)).replace("\n", " "))
    rival = stage.actor(world)
    assert rival.attempt("x") is None
    rival.end()  # as the last one, or so it seems to SQLite
    rival = stage.actor(world)
    end = now() + 2 * TTL
    while now() < end:
        assert rival.attempt("x") is None
        os.sched_yield()
    assert holder.held("x")
    # What the holder does now is seen by others, and the other way round.
    assert rival.acquire("y")["token"] > token
    until(lambda: holder.attempt("y") is None, "a common store")
    holder.ask("release", key="x")
    assert rival.acquire("x")["token"] > token
