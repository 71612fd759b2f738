"""Leases at a fence: in a forked child, of a lock whose fence is none, and whose loop is gone."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import holdfast
from holdfast.fences import FileFence, MemoryFence, SqlFence

FORKED = """
import os, sys, holdfast
from holdfast.fences import FileFence
path = sys.argv[1]
fence = FileFence()
with holdfast.connect(f"sqlite://{path}.locks") as locks:
    with locks.lock("x", purpose="correctness", protects=fence) as lease:
        lease.guard.write(path, "the parent's")
        pid = os.fork()
        if pid == 0:
            refused = 0
            for write in (
                lambda: lease.guard.write(path, "the child's"),
                lambda: fence.write(path, "the child's", lease),
            ):
                try:
                    write()
                except holdfast.LockNotOwned as error:
                    refused += "forked" in str(error)
            os._exit(refused)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 2, "the child was let in"
        lease.guard.write(path, "the parent's again")
print(open(path).read())
"""


def test_a_forked_child_cannot_show_its_parents_lease(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path / "file")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "the parent's again\n"), done.stderr


def test_a_class_is_no_fence(tmp_path: Path) -> None:
    with holdfast.connect(f"sqlite://{tmp_path}/locks.db") as locks:
        for kind in (SqlFence, FileFence):
            with pytest.raises(holdfast.ConfigError, match="must be a fence"):
                locks.lock("x", purpose="correctness", protects=kind)


def test_a_turn_is_not_lost_with_the_loop_that_waited_for_it() -> None:
    """A loop that was closed without an end to its tasks cannot be woken: the next one is."""
    fence = MemoryFence()
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        async with fence.hold("x", 34):
            raise AssertionError("its loop is closed")

    with fence.hold("x", 34):
        task = loop.create_task(wait())
        loop.run_until_complete(asyncio.sleep(0))
        entered = threading.Event()

        def enter() -> None:
            with fence.hold("x", 34):
                entered.set()

        thread = threading.Thread(target=enter, daemon=True)
        thread.start()
        while fence._turns.waiting("x") < 2:
            thread.join(0.001)
        loop.close()
    assert entered.wait(20)
    thread.join(20)
    # What is left of the task ends, and must not end the turn of another.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    with fence.hold("x", 34):
        del task
        gc.collect()
        assert fence._turns.taken("x")
    assert not fence._turns._turns
