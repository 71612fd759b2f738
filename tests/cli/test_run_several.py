"""`holdfast run A B -- COMMAND`: several locks, all of them or none."""

from __future__ import annotations

import json
import os
import signal

from cli.stage import Stage, ended, eventually, lives


def test_the_command_has_all_of_them(stage: Stage) -> None:
    script = 'echo "$HOLDFAST_TOKENS"; echo "$HOLDFAST_LOCK"; sleep 0.1'
    answer = stage.run("run", "b", "a", "b", "--", "sh", "-c", script)
    assert answer.status == 0
    told, names = answer.out.splitlines()
    assert sorted(names.split(",")) == ["a", "b"]
    tokens = json.loads(told)
    assert sorted(tokens) == ["a", "b"]
    assert all(token > 0 for token in tokens.values())
    assert stage.locks.list() == []


def test_no_token_of_a_command_around_it_is_left(stage: Stage) -> None:
    inner = 'holdfast() { python3 -m holdfast "$@"; }; env | grep ^HOLDFAST_TOKEN='
    answer = stage.run("run", "a", "b", "--", "sh", "-c", inner)
    assert answer.status == 1  # grep found none
    assert answer.out == ""


def test_one_that_is_busy_makes_all_busy(stage: Stage) -> None:
    lease = stage.locks.lock("b").acquire()
    answer = stage.run("run", "a", "b", "--no-wait", "--", "touch", "ran")
    assert answer.status == 75
    assert "busy" in answer.err
    assert not stage.locks.inspect("a").held
    lease.release()
    assert not (stage.folder / "ran").exists()


def test_one_that_is_lost_ends_the_command(stage: Stage) -> None:
    process = stage.start(
        "run", "a", "b", "--ttl", "20s", "--", "sh", "-c", "echo $$ > child.pid; exec sleep 60"
    )
    child = stage.pid()
    assert stage.locks.force_release("b")
    process.send_signal(signal.SIGCONT)  # it looks at its leases, rather than after seven seconds
    answer = ended(process)
    assert answer.status == 76
    assert not lives(child)
    eventually(lambda: not stage.locks.inspect("a").held)


def test_they_outlive_the_wrapper_with_the_command(stage: Stage) -> None:
    process = stage.start("run", "a", "b", "--", "sh", "-c", "echo $$ > child.pid; exec sleep 60")
    child = stage.pid()
    process.kill()
    process.wait()
    assert [state.name for state in stage.locks.list()] == ["a", "b"]
    os.kill(child, signal.SIGKILL)
    eventually(lambda: not stage.locks.list())


def test_permits_are_for_one(stage: Stage) -> None:
    assert stage.run("run", "a", "b", "-n", "2", "--", "true").status == 2
