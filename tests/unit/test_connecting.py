"""The end of a process, while threads of ours connect in the background."""

from __future__ import annotations

import os
import subprocess
import sys

from holdfast.stores import connecting as module
from holdfast.stores.connecting import connecting

CONNECTS = """
import sys, threading, time
from holdfast.stores.connecting import connecting
begun = threading.Event()
def connect():
    with connecting():
        begun.set()
        time.sleep(float(sys.argv[1]))
        print("connected", flush=True)
threading.Thread(target=connect, daemon=True).start()
begun.wait()
"""
BEGINS_TOO_LATE = """
import atexit, threading
import holdfast
told = []
ends, done = threading.Event(), threading.Event()
def connect():
    try:
        with connecting():
            told.append("connected")
    except holdfast.BackendUnavailable as error:
        told.append(str(error))
def connect_late():
    ends.wait()
    connect()
    done.set()
def late():
    connect()
    ends.set()
    done.wait(30)
    print(told, flush=True)
atexit.register(late)  # before ours, so it is called after it
from holdfast.stores.connecting import connecting
threading.Thread(target=connect_late, daemon=True).start()
"""


def program(text: str, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", text, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60.0,
    ).stdout


def test_the_end_waits_for_a_thread_that_connects() -> None:
    assert program(CONNECTS, "0.3") == "connected\n"


def test_the_end_does_not_wait_for_long() -> None:
    assert program(CONNECTS, "3600") == ""


def test_none_begins_in_the_background_at_the_end() -> None:
    assert program(BEGINS_TOO_LATE) == "['connected', 'this process is ending']\n"


def test_a_forked_child_does_not_wait_for_threads_of_its_parent() -> None:
    with connecting():
        child = os.fork()
        if child == 0:
            os._exit(len(module._under_way))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(module._under_way) == 1
