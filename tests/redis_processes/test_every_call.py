"""A client killed at every system call on its socket: nobody waits longer than its lease lasts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from stores import redis_server

DOOMED = Path(__file__).parent / "doomed.py"
STRACE = ["strace", "-f", "-qq", "-o", "/dev/null"]


@pytest.mark.parametrize("call", ["sendto", "recvfrom"])  # strace counts each by itself
def test_a_client_killed_at_every_call_leaves_nothing_that_stays(call: str) -> None:
    server = redis_server()
    server("FLUSHALL")
    highest = 0
    with holdfast.connect(server.url, heartbeat=0.05) as locks:
        for moment in range(1, 100):
            inject = f"inject={call}:signal=SIGKILL:when={moment}"
            command = [
                *STRACE,
                "-e",
                f"trace={call}",
                "-e",
                inject,
                sys.executable,
                str(DOOMED),
                server.url,
            ]
            run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            lease = locks.lock("x").acquire(timeout=10.0)
            assert lease.token > highest, f"killed at call {moment}"
            highest = lease.token
            assert lease.release() is True
            assert (state := locks.inspect("x")).holders == state.waiters == ()
            if run.stdout == "done\n":
                break
        else:
            raise AssertionError("it never came to its end")
        assert moment > 5  # the greeting and the scripts, two grants, two releases; then none
