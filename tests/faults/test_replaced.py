"""Case 9: the store's file is taken away, or another one put in its place, while it is in use."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

import holdfast
from faults.actors import Stage, until

TTL = 3.0


def gone(stage: Stage) -> None:
    for suffix in ("", "-wal", "-shm"):
        os.unlink(stage.path + suffix)


def gone_with_its_folder(stage: Stage) -> None:
    for suffix in ("", "-wal", "-shm"):
        os.unlink(stage.path + suffix)
    shutil.rmtree(f"{stage.path}-live")


def replaced(stage: Stage) -> None:
    """By a whole store from elsewhere, as when a backup is put back in good order."""
    other = f"{stage.folder}/other.db"
    with holdfast.connect(f"sqlite://{other}") as locks:
        locks.lock("x").acquire().release()
    gone(stage)
    os.rename(other, stage.path)


@pytest.mark.parametrize(
    ("world", "how"),
    [
        ("blocking", gone),
        ("aio", gone),
        ("blocking", gone_with_its_folder),
        ("aio", replaced),
    ],
)
def test_the_file_goes(stage: Stage, world: str, how: Callable[[Stage], None]) -> None:
    holder, rival, third = (stage.actor(world) for _ in range(3))
    first = holder.acquire("x", ttl=TTL)
    holder.ask("on_lost", key="x")
    assert rival.attempt("x") is None
    third.acquire("y")
    how(stage)
    second = rival.acquire("x")
    assert second["token"] > first["token"]
    assert third.attempt("x") is None  # all see the same new file
    until(lambda: holder.heard("lost"), "on_lost")
    assert holder.held("x") is False
    assert holder.ask("release", key="x") is False
    assert rival.held("x")
    assert holder.attempt("x") is None
    assert rival.ask("release", key="x") is True
    third_grant = third.acquire("x")
    assert third_grant["token"] > second["token"]
    assert third.send("renew", key="y").error().kind == "LeaseLost"
    sound(stage.path)


def test_only_the_folder_of_the_living_goes(stage: Stage, world: str) -> None:
    """A new folder proves nothing about any process, so none is taken for dead."""
    holder, rival = stage.actor(world), stage.actor(world)
    first = holder.acquire("x")
    shutil.rmtree(f"{stage.path}-live")
    assert rival.attempt("x") is None
    holder.ask("renew", key="x")
    assert rival.ask("inspect", name="x")["holders"] == [first["token"]]
    waiting = rival.queue("x")
    holder.waits("x", rival)
    assert holder.ask("release", key="x") is True
    assert waiting.get()["token"] > first["token"]


def test_one_has_not_noticed_that_the_folder_of_the_living_went(stage: Stage, world: str) -> None:
    """A process that has noticed does not take a lock away from one that has not."""
    late, early = stage.actor(world), stage.actor(world)
    assert early.ask("run", code="1") == 1  # up, but not yet in the store
    late.acquire("warm")
    assert late.ask("release", key="warm") is True
    shutil.rmtree(f"{stage.path}-live")
    assert early.attempt("y") is not None
    first = late.attempt("x")
    assert first is not None
    assert early.attempt("x") is None, "two processes hold one lock"
    assert early.ask("inspect", name="x")["holders"] == [first["token"]]
    assert late.ask("release", key="x") is True


@pytest.mark.parametrize("put_back", [False, True])
def test_the_file_goes_without_its_log(stage: Stage, put_back: bool) -> None:
    """Somebody removes, or replaces, locks.db alone: the old log must not be laid over the new."""
    holder, rival = stage.actor(), stage.actor()
    many = "[me.leases.update({{i: me.locks.lock(f'{}-{{i:04}}').acquire()}}) for i in range({})]"
    holder.ask("run", code=many.format("early", 400))
    highest = rival.acquire("y")["token"]
    with closing(sqlite3.connect(stage.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
    rival.ask("run", code=many.format("late", 100))
    if put_back:
        other = f"{stage.folder}/other.db"
        with holdfast.connect(f"sqlite://{other}") as locks:
            locks.lock("x").acquire().release()
        os.rename(other, stage.path)
    else:
        os.unlink(stage.path)
    for actor in (holder, rival):
        grant = actor.acquire("new")
        assert grant["token"] > highest
        highest = grant["token"]
        assert actor.ask("release", key="new") is True
    sound(stage.path)


def sound(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
