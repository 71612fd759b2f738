"""A client killed at every system call on its socket: nobody waits longer than its lease lasts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from stores import redis_server

DOOMED = Path(__file__).parent / "doomed.py"


def run(url: str, world: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The doomed process, under strace with these options."""
    command = ["strace", "-f", "-qq", *options, sys.executable, str(DOOMED), url, world]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def calls_on_sockets(log: Path, call: str) -> list[int]:
    """Which of the first thread's calls of this name, counted from 1, were on a socket."""
    lines = log.read_text().splitlines()
    first = lines[0].split()[0]
    calls = [line for line in lines if line.split()[0] == first and f" {call}(" in line]
    return [number for number, line in enumerate(calls, 1) if "<TCP:" in line or "<socket:" in line]


CALLS = [("threads", "write"), ("threads", "read"), ("aio", "sendto"), ("aio", "recvfrom")]


@pytest.mark.parametrize(("world", "call"), CALLS)  # strace counts each by itself
def test_a_client_killed_at_every_call_leaves_nothing_that_stays(
    world: str, call: str, tmp_path: Path
) -> None:
    server = redis_server()
    server("FLUSHALL")
    highest = 0
    log = tmp_path / "calls"
    for _ in range(2):  # the first one may still write bytecode
        ran = run(server.url, world, "-yy", "-o", str(log), "-e", f"trace={call}")
        assert ran.stdout == "done\n"
    moments = calls_on_sockets(log, call)
    # The greeting and the scripts, a grant, a release; in blocking code two of each.
    least = 5 if world == "threads" else 3
    assert len(moments) >= least
    ends = []
    with holdfast.connect(server.url, heartbeat=0.05) as locks:
        for moment in [*moments, moments[-1] + 100]:
            inject = f"inject={call}:signal=SIGKILL:when={moment}"
            options = ("-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
            ends.append(run(server.url, world, *options).stdout)
            lease = locks.lock("x").acquire(timeout=10.0)
            assert lease.token > highest, f"killed at call {moment}"
            highest = lease.token
            assert lease.release() is True
            assert (state := locks.inspect("x")).holders == state.waiters == ()
    # How many reads a greeting takes is not the same in each run: the last ones may not be reached.
    assert ends[:least] == [""] * least
    assert set(ends[least:]) <= {"", "done\n"}
    assert ends[-1] == "done\n"
