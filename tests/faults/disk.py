"""`python -m faults.disk SCENE WORLD FOLDER`: on a small file system of its own, which fills up.

Run inside a private mount namespace (`unshare`), so that nothing of it is seen outside.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

from faults.actors import Actor, Refused, Stage, stage, until

SIZE = 4 << 20


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def fill(folder: str) -> None:
    """To the last byte."""
    size = 1 << 20
    with open(f"{folder}/ballast", "ab", buffering=0) as file:
        while size:
            try:
                if file.write(b"\0" * size) < size:
                    size //= 2
            except OSError:
                size //= 2


def sound(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def full(world: str, stage: Stage) -> None:
    holder, rival, late = stage.actor(world), stage.actor(world), stage.actor(world)
    free = rival.acquire("free")
    first = holder.acquire("x", ttl=1.5)
    holder.ask("on_lost", key="x")
    fill(stage.folder)
    tokens = [free["token"], first["token"]]

    def refused() -> Refused | None:
        # What SQLite has room for already (the rest of a page) may still be granted.
        try:
            probe = rival.attempt("probe")
            if probe is not None:  # else it was granted, and its release refused
                tokens.append(probe["token"])
            rival.ask("release", key="probe")
        except Refused as error:
            return error
        return None

    until(refused, "a refusal")
    error = refused()
    assert error is not None
    assert error.kind == "BackendUnavailable"
    assert "full" in error.text
    assert stage.path in error.text
    # It grants nothing, to whoever asks, also to one who only now opens it.
    assert rival.send("attempt", key="y", name="y").error().kind == "BackendUnavailable"
    assert late.send("attempt", key="y", name="y").error().kind == "BackendUnavailable"
    # The holder's renewals fail, and it is told at its own deadline.
    until(lambda: holder.heard("lost"), "on_lost")
    assert holder.held("x") is False
    assert holder.send("ensure", key="x").error().kind == "LeaseLost"
    os.unlink(f"{stage.folder}/ballast")
    for actor in (rival, late, holder):
        grant = actor.acquire("y")
        assert grant["token"] > max(tokens)
        tokens.append(grant["token"])
        assert actor.ask("release", key="y") is True
    assert rival.acquire("x")["token"] > max(tokens)
    rival.ask("ensure", key="free")
    rival.ask("renew", key="free")
    sound(stage.path)


def waiting(world: str, stage: Stage) -> None:
    """Checks that waiting, and leaving `with`, go on when a full disk has room again."""
    holder, waiter = stage.actor(world), stage.actor(world)
    body = holder.send("body", key="x", name="x", ttl=30.0)
    until(lambda: holder.heard("entered"), "the body")
    queued = waiter.queue("x")
    holder.waits("x", waiter)
    fill(stage.folder)
    probe = stage.actor(world)
    until(lambda: refused_now(probe), "a refusal")
    holder.ask("leave", key="x")
    try:
        body.get()  # leaving `with` does not raise
    finally:
        os.unlink(f"{stage.folder}/ballast")
    # The release did not reach the store, perhaps; the end of the process does.
    holder.kill()
    queued.get()
    sound(stage.path)


def refused_now(probe: Actor) -> bool:
    try:
        if probe.attempt("probe") is not None:
            probe.ask("release", key="probe")
    except Refused as refused:
        return refused.kind == "BackendUnavailable"
    return False


def new(world: str, stage: Stage) -> None:
    """A store that cannot be made is not half made."""
    fill(stage.folder)
    actor = stage.actor(world)
    refused = actor.send("attempt", key="x", name="x").error()
    assert refused.kind == "BackendUnavailable", refused
    assert stage.path in refused.text
    left = [name for name in os.listdir(stage.folder) if not name.endswith("-live")]
    assert left == ["ballast"], left
    os.unlink(f"{stage.folder}/ballast")
    assert actor.attempt("x") is not None
    sound(stage.path)


def read_only(world: str, stage: Stage) -> None:
    maker = stage.actor(world)
    maker.acquire("x")
    maker.end()
    before = content(stage.path)
    mount("-o", "remount,ro", stage.folder)
    reader = stage.actor(world)
    refused = reader.send("attempt", key="x", name="x").error()
    assert refused.kind == "ConfigError", refused
    assert "read-only" in refused.text
    assert stage.folder in refused.text
    assert content(stage.path) == before
    mount("-o", "remount,rw", stage.folder)
    assert reader.attempt("x") is not None


def content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def main() -> None:
    scene, world, folder = sys.argv[1:]
    mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder)
    with stage(folder) as made:
        globals()[scene](world, made)


if __name__ == "__main__":
    main()
