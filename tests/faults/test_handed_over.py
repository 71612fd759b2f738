"""The hand-over in one statement: what it must not do, found by a review; each of these failed once."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from worlds.threads import eventually

SLOW = "?heartbeat=30"
"""Waiters that do not ask by themselves meanwhile: what happens to them is the releaser's doing."""


class Scene:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.live = f"{path}-live"
        self.stack = ExitStack()
        self.waiters: dict[str, threading.Thread] = {}

    def connect(self) -> holdfast.Locks:
        return self.stack.enter_context(holdfast.connect(f"sqlite://{self.path}{SLOW}"))

    def waiting(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute("SELECT owner FROM entry WHERE waiting = 1 ORDER BY seq")
            return [owner for (owner,) in rows]

    def gate_is_taken(self) -> bool:
        """Somebody is inside, about to write."""
        with open(f"{self.live}/gate", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def queue(self, locks: holdfast.Locks, owner: str) -> list[holdfast.Lease]:
        """Have it wait for "x"; answers the list that its lease will be put in."""
        leases: list[holdfast.Lease] = []

        def work() -> None:
            try:
                leases.append(locks.lock("x").acquire(owner=owner))
            except holdfast.LockError:
                return

        thread = threading.Thread(target=work, daemon=True)
        self.waiters[owner] = thread
        thread.start()
        eventually(lambda: owner in self.waiting())
        return leases


def store_of(locks: holdfast.Locks) -> Any:
    session: Any = locks._session()
    return session.backend._store


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "locks.db")
    with made.stack:
        yield made


def test_nobody_is_woken_in_a_file_that_was_replaced(scene: Scene) -> None:
    holder, waiter, other = scene.connect(), scene.connect(), scene.connect()
    lease = holder.lock("x").acquire()
    leases = scene.queue(waiter, "w")
    holder.inspect("x")  # the mint has read the counters, as it has after any transaction
    for suffix in ("", "-wal", "-shm"):
        os.unlink(f"{scene.path}{suffix}")
    now_held = other.lock("x").acquire()
    assert lease.release() is False  # it ended with the file
    session: Any = waiter._session()
    mailbox = session.backend._mailbox.fileno()
    eventually(lambda: not select.select([mailbox], [], [], 0)[0])  # it has read what was sent
    session.look_at(["w"])  # if that was nothing, it now finds that its place is gone
    eventually(lambda: not scene.waiters["w"].is_alive())
    assert not (leases and now_held.held), "two hold one lock, in two files"


def test_a_release_counts_though_the_proof_of_our_life_is_gone(scene: Scene) -> None:
    holder, waiter = scene.connect(), scene.connect()
    lease = holder.lock("x").acquire()
    leases = scene.queue(waiter, "w")
    holder.inspect("x")  # the mint has read the counters, as it has after any transaction
    os.unlink(f"{scene.live}/{store_of(holder).process}.live")
    store_of(holder)._seen_until = 0.0  # half a second later
    assert lease.release() is True
    eventually(lambda: bool(leases))


def test_who_is_bound_to_no_process_is_not_taken_for_dead(scene: Scene) -> None:
    """After the folder of the living went, only TTL and patience say who is there."""
    holder, first, second = scene.connect(), scene.connect(), scene.connect()
    lease = holder.lock("x").acquire()
    scene.queue(first, "first")
    scene.queue(second, "second")
    holder.inspect("x")  # the mint has read the counters, as it has after any transaction
    shutil.rmtree(scene.live)
    store_of(holder)._seen_until = 0.0  # half a second later
    assert holder.inspect("x").held  # it has noticed, and opened anew
    assert lease.release() is True
    assert [one.owner for one in holder.inspect("x").holders] == ["first"]


DOOMED = """
import sys, holdfast
holdfast.connect(sys.argv[1]).lock("x").acquire(owner="doomed")
"""


def test_handed_to_the_dead_in_a_folder_that_we_have_not_seen_yet(scene: Scene) -> None:
    holder = scene.connect()
    lease = holder.lock("x").acquire()
    holder.inspect("x")  # the mint has read the counters, as it has after any transaction
    shutil.rmtree(scene.live)
    with subprocess.Popen([sys.executable, "-c", DOOMED, f"sqlite://{scene.path}"]) as doomed:
        eventually(lambda: scene.waiting() == ["doomed"])
        doomed.send_signal(signal.SIGKILL)
    assert lease.release() is True
    assert not holder.inspect("x").held


def test_a_lock_is_handed_over_for_the_whole_claim_window(scene: Scene) -> None:
    """Counted from when it stands, not from when the releaser began to wait for the file."""
    holder, waiter = scene.connect(), scene.connect()
    lease = holder.lock("x").acquire()
    scene.queue(waiter, "w")
    session: Any = waiter._session()
    session.backend._mailbox.close()  # it stays unconfirmed
    holder.inspect("x")  # the mint has read the counters, as it has after any transaction
    with closing(sqlite3.connect(scene.path, isolation_level=None)) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        releasing = threading.Thread(target=lease.release)
        releasing.start()
        eventually(scene.gate_is_taken)
        waits = time.clock_gettime(time.CLOCK_BOOTTIME)
        # Two moments that can be told apart: when it began to wait, and when it could write.
        eventually(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) > waits + 0.1)
        stood = time.clock_gettime(time.CLOCK_BOOTTIME)
        stranger.execute("COMMIT")
        releasing.join()
        owner, expires, claim = stranger.execute(
            "SELECT owner, expires, claim FROM entry WHERE waiting = 0"
        ).fetchone()
    assert owner == "w"
    assert expires >= stood + claim


HOLDER = """
import sys, holdfast
lease = holdfast.connect(sys.argv[1]).lock("x").acquire()
print("held", flush=True)
sys.stdin.readline()
lease.release()
sys.stdin.readline()
"""


def test_a_hand_over_that_is_lost_unconfirmed_leaves_no_descriptor(scene: Scene) -> None:
    program = [sys.executable, "-c", HOLDER, f"sqlite://{scene.path}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        waiter = scene.connect()
        backend: Any = waiter._session()
        backend = backend.backend
        leases = scene.queue(waiter, "w")
        eventually(lambda: backend._watches)  # the first in line watches the holder's process
        renew = backend.renew

        def unreachable(*arguments: Any) -> Any:
            raise holdfast.BackendUnavailable("for the claim window")

        backend.renew = unreachable
        holder.stdin.write("\n")
        holder.stdin.flush()
        eventually(lambda: leases and leases[0].state == "lost")
        backend.renew = renew
        with waiter.lock("y") as lease:
            lease.renew()
        assert not backend._watches
        holder.stdin.write("\n")
        holder.stdin.flush()
