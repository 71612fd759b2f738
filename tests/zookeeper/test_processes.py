"""Clients that are killed while they wait, interrupted by signals, and forked without hooks."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.chaos.servers.zookeeper import TICK, raw_client
from stores import zookeeper, zookeeper_ensemble
from worlds.threads import Job, eventually

TESTS = Path(__file__).parent.parent
SHORT = 15.0
"""Seconds: more than the session for waiting lives, and much less than one for a TTL of 60 s."""


@pytest.fixture
def url() -> Iterator[str]:
    with zookeeper() as made:
        yield made


def parked(raw: Any, url: str, owner: str) -> bool:
    lock = f"/{url.rpartition('/')[2]}/holdfast/locks/x"
    (child,) = (child for child in raw.get_children(lock) if child.startswith(owner))
    data: bytes = raw.get(f"{lock}/{child}")[0]
    return data.startswith(b"?")


def test_a_waiter_that_was_killed_keeps_nobody_from_a_free_lock(url: str) -> None:
    with holdfast.connect(url, tick=TICK) as locks:
        holder = locks.lock("x").acquire()
        program = subprocess.Popen(
            [sys.executable, "-m", "zookeeper.waiting", url], cwd=TESTS, stdin=subprocess.DEVNULL
        )
        try:
            eventually(lambda: locks.inspect("x").waiters)
            (dead,) = locks.inspect("x").waiters
            with raw_client(zookeeper_ensemble().hosts) as raw:
                eventually(partial(parked, raw, url, dead.owner))
        finally:
            program.kill()
            program.wait()
        rival = Job(locks.lock("x").acquire)
        eventually(lambda: len(locks.inspect("x").waiters) == 2)
        began = time.monotonic()
        holder.release()
        state = locks.inspect("x")
        assert not state.held  # it is still in the queue, and does not hold the lock
        assert state.waiters[0].owner == dead.owner
        assert rival.result().held
        assert time.monotonic() - began < SHORT


def test_what_a_signal_handler_raises_leaves_nothing_behind(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zookeeper.interrupted", url],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


def test_a_child_that_was_forked_without_hooks_leaves_its_parent_s_connections_alone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stands for such a child, which differs from its parent by nothing but its fork generation."""
    with holdfast.connect(url, tick=TICK) as locks:
        lease = locks.lock("x").acquire()
        live: Any = locks._live
        backend, deadline = live.backend, live.clock.now() + 5.0
        sockets = [one.client._connection._socket for one in backend._attempts._sessions.values()]
        with monkeypatch.context() as patch:
            patch.setattr(backend, "_made_in", backend._made_in - 1)
            with pytest.raises(holdfast.LockError, match="of the parent process"):
                backend.inspect("x", deadline)
            with pytest.raises(holdfast.LockError, match="of the parent process"):
                backend.release("x", lease.owner, deadline)
            backend.close()
        lease.renew()
        after = [one.client._connection._socket for one in backend._attempts._sessions.values()]
        assert after == sockets
        assert lease.release() is True
