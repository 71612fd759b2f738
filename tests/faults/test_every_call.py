"""Case 13: killed at each of its system calls, whoever comes next finds everything in order."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import holdfast
from faults.actors import environment, until
from faults.doomed import AT, KINDS
from system_calls import call_set

Doom = Callable[[str, str, int], "Ending"]
AT_ONCE = 3.5


class Ending:
    """The end of the child, once it has come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def code(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@contextmanager
def doomed(kind: str) -> Iterator[Doom]:
    """Returns a starter of children that are killed at some call of that kind."""
    calls = call_set(kind)
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:signal=SIGKILL:when={AT}"]
    command += [sys.executable, "-m", "faults.doomed"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )

    def doom(scene: str, url: str, number: int) -> Ending:
        ending = Ending(process)
        ending.tell(f"{scene} {url} {kind} {number}\n")
        return ending

    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            yield doom
            process.stdin.close()
            assert process.wait(20) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # strace, and whom it watches
                process.wait()


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_killed_at_each_call(kind: str, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    deaths = 0
    with doomed(kind) as doom, holdfast.connect(url) as locks:
        highest = locks.inspect("x").token
        for number in range(1, AT):
            code = doom("whole", url, number).code()
            lease = locks.lock("x").try_acquire()
            assert lease is not None, f"not free after call {number}"
            assert lease.token > highest
            highest = lease.token
            assert lease.release() is True
            if code == 0:
                break
            assert code == -signal.SIGKILL
            deaths += 1
    sound(f"{tmp_path}/locks.db")
    assert deaths > 0 or kind in ("ftruncate", "write")  # which only the first to open has to do


@pytest.mark.parametrize("kind", ["pwrite64", "link", "unlink"])
def test_killed_at_each_call_that_makes_a_store(kind: str, tmp_path: Path) -> None:
    deaths = 0
    with doomed(kind) as doom:
        for number in range(1, AT):
            folder = tmp_path / str(number)
            folder.mkdir()
            url = f"sqlite://{folder}/locks.db"
            code = doom("whole", url, number).code()
            with holdfast.connect(url) as locks:
                lease = locks.lock("x").try_acquire()
                assert lease is not None, f"not free after call {number}"
            sound(f"{folder}/locks.db")
            assert not [name for name in os.listdir(folder) if ".new" in name], number
            if code == 0:
                break
            assert code == -signal.SIGKILL
            deaths += 1
    assert deaths > 0


@pytest.mark.parametrize("kind", ["pwrite64", "fcntl", "flock", "sendto"])
def test_killed_at_each_call_of_a_hand_over(kind: str, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    deaths = 0
    with doomed(kind) as doom, holdfast.connect(url, heartbeat=4.0) as locks:
        highest = 0
        for number in range(1, AT):
            ending = doom("handing", url, number)
            until(lambda: locks.inspect("x").holders, "the child's grant")
            with ThreadPoolExecutor(1) as waiter:
                granted = waiter.submit(locks.lock("x").acquire, 20.0)
                until(lambda: locks.inspect("x").waiters, "the waiting")
                ending.tell("go\n")
                lease = granted.result(AT_ONCE)
            assert lease.token > highest
            highest = lease.token
            code = ending.code()
            lease.ensure()
            assert lease.release() is True
            if code == 0:
                break
            assert code == -signal.SIGKILL
            deaths += 1
    sound(f"{tmp_path}/locks.db")
    assert deaths > 0


def sound(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
