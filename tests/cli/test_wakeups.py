"""Standing still and going on, in a process with threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cli.stage import eventually, is_stopped

PROGRAM = """
import os, signal, sys, threading
from holdfast.cli.wakeups import Wakeups

wakeups = Wakeups()
there = threading.Event()

def slow():  # beside somebody who is always busy, and without the right to interrupt him
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    there.set()
    threading.Event().wait()

threading.Thread(target=slow, daemon=True).start()
there.wait()
# As when the kernel finds the main thread busy with another signal: the other thread gets this one.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
for line in sys.stdin:
    print(wakeups.stop(signal.SIGTSTP, everybody=False), flush=True)
"""
BUSY = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"


@pytest.fixture
def stopping() -> Iterator[subprocess.Popen[str]]:
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    yield process
    for one in (process, busy):
        one.kill()
        one.communicate()


def test_who_was_continued_knows_it_whichever_thread_is_told(
    stopping: subprocess.Popen[str],
) -> None:
    assert stopping.stdin is not None
    assert stopping.stdout is not None
    for _ in range(20):
        stopping.stdin.write("stop\n")
        stopping.stdin.flush()
        eventually(lambda: is_stopped(stopping.pid))
        os.kill(stopping.pid, signal.SIGCONT)
        assert stopping.stdout.readline() == "True\n"
