"""A client killed at every system call on its socket: nobody waits longer than its lease lasts.

Alone, and in a line: handed the lock by one, and handing it to another.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from stores import redis_server
from worlds.threads import Job, eventually

DOOMED = Path(__file__).parent / "doomed.py"


def run(url: str, world: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the doomed process under strace with these options."""
    command = ["strace", "-f", "-qq", *options, sys.executable, str(DOOMED), url, world]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def calls_on_sockets(log: Path, call: str) -> list[int]:
    """Returns which of the first thread's calls of this name, counted from 1, were on a socket."""
    lines = log.read_text().splitlines()
    first = lines[0].split()[0]
    calls = [line for line in lines if line.split()[0] == first and f" {call}(" in line]
    return [number for number, line in enumerate(calls, 1) if "<TCP:" in line or "<socket:" in line]


SYSTEM_CALLS = {"threads": ("write", "read"), "aio": ("sendto", "recvfrom")}
"""The calls by which each world sends and receives."""
CALLS = [(world, call) for world, calls in SYSTEM_CALLS.items() for call in calls]


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


def turn_beside(locks: holdfast.Locks, world: str, name: str, *options: str) -> str:
    """Hands the lock to a doomed process and wants it back; returns what the process printed."""
    lock = locks.lock(name)
    held = lock.acquire(timeout=10.0)
    command = ["strace", "-f", "-qq", *options, sys.executable, str(DOOMED)]
    process = subprocess.Popen(
        [*command, locks.url, world, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        eventually(lambda: process.poll() is not None or locks.inspect(name).waiters)
        assert held.release() is True

        def turn() -> int:
            with lock as lease:
                return lease.token

        again = Job(turn)
        said = process.stdout.readline()
        eventually(lambda: again.done() or locks.inspect(name).waiters)
        with suppress(BrokenPipeError):
            process.stdin.write("\n")
            process.stdin.flush()
        assert again.result() > held.token
        said += process.stdout.read()
        process.wait(20.0)
    finally:
        process.kill()
        with suppress(BrokenPipeError):
            process.communicate()
    # Whatever it left behind ends soon, and the lock goes on as if nothing had happened.
    last = lock.acquire(timeout=10.0)
    assert last.token > again.result()
    assert last.release() is True
    assert (state := locks.inspect(name)).holders == state.waiters == ()
    return said


def calls_in_line(log: Path, call: str) -> list[int]:
    """Returns which of the first thread's calls of this name came once it was in the queue."""
    lines = log.read_text().splitlines()
    first = lines[0].split()[0]
    mine = [line for line in lines if line.split()[0] == first]
    start = next(number for number, line in enumerate(mine) if "SUBSCRIBE" in line)
    before = sum(f" {call}(" in line for line in mine[:start])
    here = [line for line in mine[start:] if f" {call}(" in line]
    # Also the one that says that it holds the lock: it dies as the holder.
    found = [
        n
        for n, line in enumerate(here, 1)
        if "<TCP:" in line or "<socket:" in line or "held" in line
    ]
    return [before + number for number in found]


@pytest.mark.parametrize("world", ["threads", "aio"])
def test_one_of_a_line_killed_at_every_call_holds_up_nobody(world: str, tmp_path: Path) -> None:
    server = redis_server()
    server("FLUSHALL")
    log = tmp_path / "calls"
    with (
        holdfast.connect(server.url, heartbeat=0.05) as locks,
        ThreadPoolExecutor(4) as pool,
    ):
        for _ in range(2):  # the first one may still write bytecode
            assert (
                turn_beside(
                    locks,
                    world,
                    "x",
                    "-yy",
                    "-o",
                    str(log),
                    "-e",
                    f"trace={','.join(SYSTEM_CALLS[world])}",
                )
                == "held\ndone\n"
            )
        ends = []
        for call in SYSTEM_CALLS[world]:
            moments = calls_in_line(log, call)
            # The subscription, the request, the release; and what is heard of each.
            assert len(moments) >= 3
            for moment in moments:
                inject = f"inject={call}:signal=SIGKILL:when={moment}"
                options = ("-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
                name = f"{call} {moment}"
                ends.append(pool.submit(turn_beside, locks, world, name, *options))
        said = [end.result(60.0) for end in ends]
    # Some died as waiters, and some as holders. How many reads it takes is not the same in each run, so
    # the last ones may not be reached.
    assert {"", "held\n"} <= set(said)
    assert said.count("held\ndone\n") <= len(said) // 2
