"""Leftovers: what runs on when the command itself has ended has the lock too, unless told otherwise."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest

from cli.stage import Process, Stage, ended, eventually, is_stopped, lives
from cli.test_run_descendants import all_alive
from cli.test_run_descriptors import events

LEAVE = (
    "sh -c 'echo $$ > left.pid; until [ -e done ]; do sleep 0.02; done' >/dev/null 2>&1 &"
    "until [ -s left.pid ]; do sleep 0.01; done; exit 4"
)
"""A command that leaves something running, in its own process group."""
DEAF = "sh -c 'trap \"\" TERM; echo $$ > left.pid; exec sleep 60' >/dev/null 2>&1"


def busy(stage: Stage) -> bool:
    return stage.run("run", "x", "--no-wait", "--", "true").status == 75


@pytest.mark.parametrize(
    "command",
    [
        ["setsid", "sh", "-c", "echo $$ > left.pid; until [ -e done ]; do sleep 0.02; done"],
        ["sh", "-c", LEAVE],
        ["sh", "-c", "setsid " + LEAVE],
    ],
    ids=["setsid", "background", "both"],
)
def test_the_lock_is_held_until_they_have_ended(stage: Stage, command: list[str]) -> None:
    process = stage.start("run", "x", "--ttl", "3s", "--", *command)
    left = stage.pid("left")
    eventually(lambda: not child_of(process, left))
    # It is renewed meanwhile.
    token = stage.locks.inspect("x").holders[0].token
    eventually(lambda: stage.locks.inspect("x").holders[0].remaining < 2.2)
    eventually(lambda: stage.locks.inspect("x").holders[0].remaining > 2.7)
    assert busy(stage)
    assert stage.locks.inspect("x").holders[0].token == token
    assert lives(left)
    (stage.folder / "done").touch()
    answer = ended(process)
    assert answer.status == (0 if command[0] == "setsid" else 4)
    assert answer.err.startswith("holdfast: the command has ended, but the lock 'x' is held until")
    assert f"sh (pid {left}" in answer.err
    assert stage.free()


def child_of(process: Process, left: int) -> bool:
    """Returns True while the command itself is still there."""
    with open(f"/proc/{left}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1]) != process.pid


def test_those_that_end_soon_are_waited_for_without_a_word(stage: Stage) -> None:
    script = "(sleep 0.1; echo end > end) & exit 4"
    answer = stage.run("run", "x", "--", "sh", "-c", script)
    assert (answer.status, answer.err) == (4, "")
    assert stage.wrote("end") == "end\n"


def test_left(stage: Stage) -> None:
    process = stage.start("run", "x", "--leftovers", "leave", "--", "sh", "-c", LEAVE)
    answer = ended(process)
    assert (answer.status, answer.err) == (4, "")
    assert stage.free()
    assert lives(stage.pid("left"))
    (stage.folder / "done").touch()


@pytest.mark.parametrize("apart", ["", "setsid "], ids=["in the group", "setsid"])
def test_ended(stage: Stage, apart: str) -> None:
    script = f"{apart}{DEAF} & until [ -s left.pid ]; do sleep 0.01; done; exit 4"
    words = ["run", "x", "--leftovers=end", "--grace", "100ms", "--", "sh", "-c", script]
    answer = stage.run(*words)
    assert (answer.status, answer.err) == (4, "")
    assert not lives(stage.pid("left"))
    assert stage.free()


def test_they_are_told_first(stage: Stage) -> None:
    script = (
        'setsid sh -c \'trap "echo told > told; exit 0" TERM; echo $$ > left.pid;'
        "while :; do sleep 0.01; done' >/dev/null 2>&1 &"
        "until [ -s left.pid ]; do sleep 0.01; done"
    )
    words = ["run", "x", "--leftovers", "end", "--grace", "20s", "--", "sh", "-c", script]
    assert stage.run(*words).status == 0
    assert stage.wrote("told") == "told\n"


def test_any_other_word_is_refused(stage: Stage) -> None:
    answer = stage.run("run", "x", "--leftovers", "kill", "--", "true")
    assert answer.status == 2
    assert "there is no value of --leftovers 'kill'; choose from wait, end, leave" in answer.err


@pytest.mark.parametrize("name", ["TERM", "INT", "QUIT"])
def test_a_signal_that_asks_to_end_ends_them(stage: Stage, name: str) -> None:
    """Even where a shell has made them deaf to SIGINT, as it does with its background jobs."""
    script = f"{DEAF} & until [ -s left.pid ]; do sleep 0.01; done; exit 4"
    process = stage.start("run", "x", "--grace", "100ms", "--", "sh", "-c", script)
    left = stage.pid("left")
    eventually(lambda: waits_for_leftovers(process))
    process.send_signal(signal.SIGHUP)  # the terminal has gone; they go on
    process.send_signal(signal.SIGUSR1)
    assert lives(left)
    process.send_signal(getattr(signal, f"SIG{name}"))
    assert ended(process).status == 4
    assert not lives(left)
    assert stage.free()


def test_one_signal_ends_the_command_and_what_it_leaves(stage: Stage) -> None:
    script = f"setsid {DEAF} & until [ -s left.pid ]; do sleep 0.01; done; exec sleep 60"
    process = stage.start("run", "x", "--grace", "100ms", "--", "sh", "-c", script)
    left = stage.pid("left")
    process.send_signal(signal.SIGTERM)
    assert ended(process).status == 128 + signal.SIGTERM
    assert not lives(left)
    assert stage.free()


def waits_for_leftovers(process: Process) -> bool:
    """Returns True once the line about them is in the pipe."""
    import fcntl
    import struct
    import termios

    assert process.stderr is not None
    size = fcntl.ioctl(process.stderr, termios.FIONREAD, b"\0" * 4)
    return bool(struct.unpack("i", size)[0])


def test_a_stopped_one_is_said_to_be_stopped_and_is_continued(stage: Stage) -> None:
    script = "setsid " + LEAVE.replace("echo $$ > left.pid;", "echo $$ > left.pid; kill -STOP $$;")
    process = stage.start("run", "x", "--", "sh", "-c", script)
    left = stage.pid("left")
    eventually(lambda: is_stopped(left))
    eventually(lambda: waits_for_leftovers(process))
    process.send_signal(signal.SIGCONT)
    eventually(lambda: not is_stopped(left))
    (stage.folder / "done").touch()
    answer = ended(process)
    assert answer.status == 4
    assert f"sh (pid {left}, is stopped)" in answer.err


def test_a_lease_that_is_lost_under_them(stage: Stage) -> None:
    process = stage.start("run", "x", "--ttl", "20s", "--grace", "0", "--", "sh", "-c", LEAVE)
    left = stage.pid("left")
    eventually(lambda: not child_of(process, left))
    stage.locks.force_release("x")
    process.send_signal(signal.SIGCONT)
    answer = ended(process)
    assert answer.status == 76
    assert not lives(left)
    assert all_alive(stage) == []


def test_the_story(stage: Stage) -> None:
    script = "sleep 1.5 </dev/null >/dev/null 2>&1 & echo $! > left.pid; exit 4"
    status, story = events(stage, "--", "sh", "-c", script)
    assert status == 4
    names = [event["event"] for event in story]
    assert names == ["acquired", "started", "exited", "leftovers", "released"]
    assert story[3] == {"event": "leftovers", "name": "x", "pids": [stage.pid("left")]}


def test_no_orphan_stays_unburied(stage: Stage) -> None:
    """Whoever adopts has to reap, also while the command runs on."""
    code = (
        "import os, time\n"
        "for _ in range(50):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        if not os.fork(): pass\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "open('child.pid', 'w').write(f'{os.getpid()}\\n')\n"
        "while not os.path.exists('done'): time.sleep(0.01)\n"
    )
    process = stage.start("run", "x", "--", sys.executable, "-c", code)
    child = stage.pid()
    eventually(lambda: children(process.pid) == [child])
    (stage.folder / "done").touch()
    assert ended(process).status == 0


def children(pid: int) -> list[int]:
    found: list[Any] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == pid:
                        found.append(int(name))
            except OSError:
                continue
    return found
