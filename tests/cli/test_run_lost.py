"""Losing the lease: the whole group is ended inside what remained of it, and the status is 76."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress

import pytest

from cli.stage import Stage, ended, eventually, lives
from worlds.stalls import Stalls

STUBBORN = "trap '' TERM; echo $$ > child.pid; while :; do date +%s.%N >> beat; sleep 0.01; done"
WILLING = "trap 'echo told > told; exit 0' TERM; echo $$ > child.pid; while :; do sleep 0.01; done"


def last_beat(stage: Stage) -> float:
    """Returns the time at which the command last showed that it ran."""
    return float(stage.wrote("beat").splitlines()[-1])


STALL = 2.0
"""Seconds by which a busy machine may hold a supervisor up. That it means to kill before the lease
ends, and by how much, is in `test_supervisor`."""


def test_broken_by_force(stage: Stage) -> None:
    process = stage.start("run", "x", "--ttl", "20s", "--", "sh", "-c", WILLING)
    stage.pid()
    assert stage.locks.force_release("x")
    process.send_signal(signal.SIGCONT)  # it looks at its lease, rather than after seven seconds
    answer = ended(process)
    assert answer.status == 76
    assert "holdfast: the lease on 'x' is lost, so the command was ended" in answer.err
    assert stage.wrote("told") == "told\n"


def test_broken_by_force_and_stubborn_it_is_killed_after_the_grace(stage: Stage) -> None:
    process = stage.start(
        "run", "x", "--ttl", "20s", "--grace", "100ms", "--", "sh", "-c", STUBBORN
    )
    stage.pid()
    assert stage.locks.force_release("x")
    process.send_signal(signal.SIGCONT)
    begun = time.monotonic()
    with Stalls() as stalls:
        assert ended(process).status == 76
    assert time.monotonic() - begun < 5 + stalls.seconds
    assert not lives(stage.pid())


def test_a_store_that_does_not_answer(stage: Stage) -> None:
    """At the time when the store could give the lock away, nothing of the command runs."""
    words = ["run", "x", "--ttl", "2s", "--grace", "1m"]
    process = stage.start(*words, "--", "sh", "-c", STUBBORN)
    child = stage.pid()
    stage.wrote("beat")
    with stage.frozen_store() as since:
        answer = ended(process)
        assert last_beat(stage) < since + 2 + STALL
    assert answer.status == 76
    assert "answer" in answer.err  # it does not; or our own clock found that out
    assert not lives(child)


def test_it_is_told_first_and_has_some_time(stage: Stage) -> None:
    script = (
        "trap 'date +%s.%N > told' TERM; echo $$ > child.pid;"
        "while :; do date +%s.%N >> beat; sleep 0.01; done"
    )
    process = stage.start("run", "x", "--ttl", "6s", "--", "sh", "-c", script)
    stage.pid()
    with stage.frozen_store() as since:
        assert ended(process).status == 76
        told = float(stage.wrote("told"))
        # It is told when one third is left, goes on nevertheless, and is killed before the end.
        assert told < since + 4 + STALL
        assert last_beat(stage) < since + 6 + STALL


def test_a_store_that_comes_back_too_late(stage: Stage) -> None:
    """Once told to stop, the command is ended, even if the lease could be renewed again."""
    script = (
        "trap 'echo told > told; until [ -e done ]; do sleep 0.01; done; exit 0' TERM;"
        "echo $$ > child.pid; while :; do sleep 0.01; done"
    )
    process = stage.start("run", "x", "--ttl", "6s", "--", "sh", "-c", script)
    stage.pid()
    with stage.frozen_store():
        stage.wrote("told")
    eventually(lambda: stage.locks.inspect("x").holders[0].remaining > 3, "a renewal")
    (stage.folder / "done").touch()
    assert ended(process).status == 76
    assert stage.free()


def test_a_store_that_comes_back_in_time(stage: Stage) -> None:
    script = "echo $$ > child.pid; until [ -e done ]; do sleep 0.02; done; exit 3"
    process = stage.start("run", "x", "--ttl", "6s", "--", "sh", "-c", script)
    stage.pid()
    with stage.frozen_store():
        eventually(lambda: os.path.exists(f"/proc/{process.pid}/task"))
        # Until a renewal hangs: its thread and the gate's helper show in the kernel's queue.
        eventually(lambda: waits_for_gate(process.pid), "a renewal that hangs")
    eventually(lambda: stage.locks.inspect("x").holders[0].remaining > 4.5, "a renewal")
    (stage.folder / "done").touch()
    assert ended(process).status == 3


def waits_for_gate(pid: int) -> bool:
    with open("/proc/locks") as file:
        return any("->" in line and f" {pid} " in line for line in file)


def test_children_of_the_command_that_linger_are_killed_too(stage: Stage) -> None:
    script = (
        "sh -c 'trap \"\" TERM; echo $$ > left.pid; while :; do date +%s.%N >> beat; sleep 0.01; done'"
        " >/dev/null 2>&1 & trap 'exit 0' TERM; until [ -s left.pid ]; do sleep 0.01; done;"
        "echo $$ > child.pid; while :; do sleep 0.01; done"
    )
    words = ["run", "x", "--ttl", "1500ms", "--", "sh", "-c", script]
    process = stage.start(*words)
    stage.pid()
    with stage.frozen_store() as since:
        assert ended(process).status == 76
        assert not lives(stage.pid("left"))
        assert last_beat(stage) < since + 1.5 + STALL


def test_children_that_listen_are_waited_for_no_longer_than_they_live(stage: Stage) -> None:
    script = (
        'sh -c \'trap "sleep 0.1; echo clean > clean; exit 0" TERM; echo $$ > left.pid;'
        " while :; do sleep 0.01; done' >/dev/null 2>&1 & "
        "trap 'exit 0' TERM; until [ -s left.pid ]; do sleep 0.01; done;"
        "echo $$ > child.pid; while :; do sleep 0.01; done"
    )
    process = stage.start("run", "x", "--ttl", "1m", "--grace", "1m", "--", "sh", "-c", script)
    stage.pid()
    stage.locks.force_release("x")
    process.send_signal(signal.SIGCONT)
    assert ended(process, limit=20).status == 76
    assert stage.wrote("clean") == "clean\n"


def test_a_stopped_command_hears_that_it_is_to_end(stage: Stage) -> None:
    process = stage.start("run", "x", "--ttl", "6s", "--grace", "20s", "--", "sh", "-c", WILLING)
    os.kill(stage.pid(), signal.SIGSTOP)
    stage.locks.force_release("x")
    assert ended(process).status == 76
    assert stage.wrote("told") == "told\n"


def test_frozen_past_its_end_it_kills_at_once(stage: Stage) -> None:
    """There is no time left to be told in: somebody else may hold the lock by now."""
    process = stage.start("run", "x", "--ttl", "2s", "--grace", "1m", "--", "sh", "-c", WILLING)
    stage.pid()
    process.send_signal(signal.SIGSTOP)
    lease = stage.locks.lock("x").acquire(timeout=20)
    process.send_signal(signal.SIGCONT)
    assert ended(process).status == 76
    assert not (stage.folder / "told").exists()
    assert not lives(stage.pid())
    assert lease.release()


def test_a_command_that_ended_while_we_were_frozen_past_the_end(stage: Stage) -> None:
    """The command may have ended before the lease did, or after: nobody can tell, so it is lost."""
    script = "echo $$ > child.pid; until [ -e done ]; do sleep 0.02; done; exit 3"
    process = stage.start("run", "x", "--ttl", "2s", "--", "sh", "-c", script)
    child = stage.pid()
    process.send_signal(signal.SIGSTOP)
    with stage.locks.lock("x", timeout=20):
        (stage.folder / "done").touch()
        eventually(lambda: not lives(child))
        process.send_signal(signal.SIGCONT)
        assert ended(process).status == 76


def test_frozen_for_a_while_it_goes_on(stage: Stage) -> None:
    script = "echo $$ > child.pid; until [ -e done ]; do sleep 0.02; done; exit 3"
    process = stage.start("run", "x", "--ttl", "15s", "--", "sh", "-c", script)
    stage.pid()
    process.send_signal(signal.SIGSTOP)
    # Less than a third, so that it must have renewed before it judged.
    eventually(lambda: stage.locks.inspect("x").holders[0].remaining < 4.9)
    process.send_signal(signal.SIGCONT)
    eventually(lambda: stage.locks.inspect("x").holders[0].remaining > 7, "a renewal")
    (stage.folder / "done").touch()
    assert ended(process).status == 3


def test_a_command_that_ended_in_time_keeps_its_status_when_the_release_fails(stage: Stage) -> None:
    script = "echo $$ > child.pid; until [ -e done ]; do sleep 0.02; done; exit 3"
    process = stage.start("run", "x", "--", "sh", "-c", script)
    stage.pid()
    with stage.frozen_store():
        (stage.folder / "done").touch()
        answer = ended(process)
    assert answer.status == 3
    assert "could not be released" in answer.err
    eventually(stage.free, "it ended with its process")


def test_a_loss_that_only_the_release_finds_out(stage: Stage) -> None:
    """Broken and given to somebody else, all between two renewals: the command was not alone."""
    script = "echo $$ > child.pid; until [ -e done ]; do sleep 0.02; done"
    process = stage.start("run", "x", "--ttl", "10m", "--", "sh", "-c", script)
    stage.pid()
    stage.locks.force_release("x")
    with stage.locks.lock("x", timeout=0):
        (stage.folder / "done").touch()
        answer = ended(process)
        assert answer.status == 76
        assert "is lost" in answer.err


def test_killed_itself_the_lock_stays_while_the_command_lives(stage: Stage) -> None:
    script = "echo $$ > child.pid; exec sleep 60"
    process = stage.start("run", "x", "--ttl", "5m", "--", "sh", "-c", script)
    child = stage.pid()
    process.kill()
    assert process.wait() == -9
    assert lives(child)
    assert not stage.free()
    assert stage.run("run", "x", "--no-wait", "--", "true").status == 75
    os.kill(child, signal.SIGKILL)
    eventually(lambda: not lives(child))
    assert stage.run("run", "x", "--no-wait", "--", "true").status == 0


def test_killed_itself_the_lock_ends_with_its_ttl(stage: Stage) -> None:
    script = "echo $$ > child.pid; exec sleep 60"
    process = stage.start("run", "x", "--ttl", "2s", "--", "sh", "-c", script)
    child = stage.pid()
    process.kill()
    assert stage.run("run", "x", "--wait", "20s", "--", "true").status == 0
    assert lives(child)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


STOOD_STILL = """
import sys, threading
import holdfast
from holdfast.cli.__main__ import main

def ensure(lease, *words):  # which the thread that gets the lock asks, too
    if threading.current_thread() is threading.main_thread():
        raise holdfast.LeaseLost("it is over", name="x", reason="for a test")

holdfast.Lease.ensure = holdfast.MultiLease.ensure = ensure
sys.exit(main())
"""
"""`holdfast`, which stood still between the grant and the start of its command, for too long."""


@pytest.mark.parametrize("names", [["x"], ["x", "y"]])
def test_lost_before_the_command_began(stage: Stage, names: list[str]) -> None:
    program = [sys.executable, "-c", STOOD_STILL]
    words = ["run", *names, "--status-fd", "1", "--", "touch", "ran"]
    answer = stage.run(*words, program=program)
    assert answer.status == 76, answer
    assert "the command was not run: it is over" in answer.err
    assert not (stage.folder / "ran").exists()
    events = [json.loads(line)["event"] for line in answer.out.splitlines()]
    assert events == ["acquired", "lost"]
    eventually(lambda: all(stage.free(name) for name in names), "they ended with their process")
