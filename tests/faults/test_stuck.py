"""Case 12: somebody stands still in the middle of a transaction, and all others have to wait."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from faults.actors import Stage, now, until
from holdfast.chaos.servers.processes import state_of, thaw

LIMIT = 0.3
PATIENCE = "setattr(me.locks._live, 'patience', {})"
"""Code that sets the seconds a call may take; 5 otherwise."""
AT_THE_GATE = """
import fcntl, os, signal, sys
file = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(file, fcntl.LOCK_EX)
os.kill(os.getpid(), signal.SIGSTOP)
"""
# A grant asks the clock in the middle of its transaction: then it stands still.
INSIDE = """
import signal, threading, time
time.armed = False
def stopping(real):
    def clock(*arguments):
        if time.armed:
            time.armed = False
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # here, not a moment later
        return real(*arguments)
    return clock
time.time_ns, time.clock_gettime_ns = stopping(time.time_ns), stopping(time.clock_gettime_ns)
"""
ARM = "setattr(time, 'armed', True)"


@contextmanager
def frozen_at_the_gate(stage: Stage) -> Iterator[int]:
    code = [sys.executable, "-c", AT_THE_GATE, f"{stage.path}-live/gate"]
    process = subprocess.Popen(code)
    try:
        until(lambda: state_of(process.pid) == "T", "the freeze")
        yield process.pid
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_one_frozen_at_the_gate(stage: Stage, world: str) -> None:
    holder, rival = stage.actor(world), stage.actor(world)
    ttl = 1.2
    first = holder.acquire("x", ttl=ttl)
    holder.ask("on_lost", key="x")
    rival.attempt("y")
    rival.ask("run", code=PATIENCE.format(LIMIT))
    with frozen_at_the_gate(stage) as pid:
        began = now()
        steps: list[tuple[str, dict[str, Any]]] = [
            ("attempt", {"key": "z", "name": "z"}),
            ("acquire", {"key": "x", "name": "x", "timeout": 10.0}),
            ("inspect", {"name": "x"}),
            ("release", {"key": "y"}),
        ]
        for verb, arguments in steps:
            pending = rival.send(verb, **arguments)
            refused = pending.error()
            assert refused.kind == "BackendUnavailable"
            assert "gate" in refused.text
            assert LIMIT * 0.9 < pending.time - pending.sent < 4.5
        # The keeper is stuck; the holder is told by its own clock, no later than its deadline.
        until(lambda: holder.heard("lost"), "on_lost")
        (lost,) = holder.heard("lost")
        assert lost["held"] is False
        assert lost["time"] < began + ttl + 5.0
        assert holder.held("x") is False
        thaw(pid)
    rival.ask("run", code=PATIENCE.format(5.0))
    second = rival.acquire("x")
    assert second["token"] > first["token"]
    assert holder.ask("release", key="x") is False
    assert rival.held("x")
    assert holder.attempt("z") is not None  # what was refused was not done later either


def test_one_frozen_inside_its_transaction(stage: Stage, world: str) -> None:
    frozen, rival = stage.actor(world, INSIDE), stage.actor(world)
    warm = rival.acquire("y")
    rival.ask("run", code=PATIENCE.format(LIMIT))
    frozen.acquire("other")
    frozen.ask("run", code=ARM)
    asked = frozen.queue("x", timeout=None, ttl=LIMIT)
    until(lambda: state_of(frozen.pid) == "T", "the freeze")
    assert rival.send("attempt", key="x", name="x").error().kind == "BackendUnavailable"
    assert rival.send("attempt", key="x", name="x").error().kind == "BackendUnavailable"
    frozen.resume()
    rival.ask("run", code=PATIENCE.format(5.0))
    # It comes back after the end of what it is granted then, and counts from when it asked.
    refused = asked.error()
    assert refused.kind == "BackendUnavailable"
    assert "longer" in refused.text
    assert rival.acquire("x")["token"] > warm["token"]
    assert frozen.held("other")
    frozen.ask("renew", key="other")


def test_one_killed_inside_its_transaction(stage: Stage, world: str) -> None:
    frozen, rival = stage.actor(world, INSIDE), stage.actor(world)
    rival.acquire("y")
    frozen.acquire("other")
    frozen.ask("run", code=ARM)
    frozen.queue("x")
    until(lambda: state_of(frozen.pid) == "T", "the freeze")
    waiting = rival.send("attempt", key="x", name="x")
    killed = frozen.kill()
    assert waiting.get() is not None
    assert waiting.time - killed < 4.5
