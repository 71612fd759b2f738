"""`holdfast show`: who waits for whom, in a circle."""

from __future__ import annotations

import json
import shlex
import threading
from contextlib import suppress

import pytest

import holdfast
from cli.screen import Screen
from cli.stage import HOLDFAST, Stage, ended, eventually

GATE = "until [ -e open ]; do sleep 0.02; done;"
"""Has a shell wait until the locks around it are held."""


def test_a_deadlock_is_drawn_and_spelled_out(stage: Stage) -> None:
    with (
        holdfast.connect(stage.url, label="billing") as billing,
        holdfast.connect(stage.url, label="shipping") as shipping,
    ):
        billing.lock("orders").acquire()
        shipping.lock("stock").acquire()

        def wait(locks: holdfast.Locks, name: str) -> None:
            with suppress(holdfast.LockError):  # its manager is closed, or it is granted at last
                locks.lock(name).acquire().release()

        waits = [(billing, "stock"), (shipping, "orders")]
        threads = [threading.Thread(target=wait, args=one) for one in waits]
        for thread in threads:
            thread.start()
        eventually(lambda: all(stage.locks.inspect(name).waiters for _, name in waits))
        answer = stage.run("show", "orders")
        assert answer.status == 0
        drawn = answer.out[answer.out.index("DEADLOCK") :]
        assert "each waits for the next" in drawn
        for word in ("billing (", "shipping (", "waits for orders, held by", "waits for stock"):
            assert word in drawn
        (circle,) = json.loads(stage.run("show", "stock", "--json").out)["deadlocks"]
        assert sorted(wait["name"] for wait in circle["cycle"]) == ["orders", "stock"]
        assert stage.locks.force_release("orders")
        eventually(lambda: "DEADLOCK" not in stage.run("show", "stock").out)
        billing.close()
        shipping.close()
        for thread in threads:
            thread.join(20.0)


def test_commands_that_run_inside_each_other(stage: Stage, fair_url: str) -> None:
    """Each `run` holds a lock until the `run` inside it has ended."""
    script = "echo > $0.on; until [ -e $1.on ]; do sleep 0.02; done; exec {} run $1 -- true"
    script = script.format(shlex.join(HOLDFAST))
    environment = stage.environment(HOLDFAST_URL=fair_url)
    outer = [
        stage.start("run", first, "--", "sh", "-c", script, first, second, env=environment)
        for first, second in [("a", "b"), ("b", "a")]
    ]

    def drawn() -> str:
        return stage.run("show", "a", env=environment).out.partition("DEADLOCK")[2]

    eventually(lambda: "waits for b, held by" in drawn() and "waits for a, held by" in drawn())
    assert drawn().count("    runs\n") == 2
    for process in outer:
        assert f":{process.pid}" in drawn()
    (circle,) = json.loads(stage.run("show", "b", "--json", env=environment).out)["deadlocks"]
    assert sorted(wait["name"] for wait in circle["cycle"]) == ["a", "b"]
    for process in outer:
        process.terminate()
        ended(process)


def test_who_runs_whom_is_told_to_programs_and_every_lock_is_marked(stage: Stage) -> None:
    """Of two siblings, each keeps the outer one; the circle goes through one of them only."""
    holdfast = shlex.join(HOLDFAST)
    first = stage.start("run", "a", "b", "--", "sh", "-c", f"{GATE} exec {holdfast} run c -- true")
    siblings = f"{holdfast} run a -- true & {holdfast} run b -- true & wait"
    second = stage.start("run", "c", "--", "sh", "-c", f"{GATE} {siblings}")
    eventually(lambda: all(stage.locks.inspect(name).held for name in "abc"))
    (stage.folder / "open").touch()
    eventually(lambda: all(stage.locks.inspect(name).waiters for name in "abc"))
    for name in "abc":
        (deadlock,) = json.loads(stage.run("show", name, "--json").out)["deadlocks"]
        assert deadlock["locks"] == ["a", "b", "c"]
        assert len(deadlock["cycle"]) == 2
        for step in deadlock["cycle"]:
            assert step["blocker"]["pid"] in (first.pid, second.pid)
            assert step["runs"]["pid"] not in (first.pid, second.pid)
    for process in (first, second):
        process.terminate()
        ended(process)


def test_through_a_command_on_another_store(stage: Stage) -> None:
    holdfast = shlex.join(HOLDFAST)
    between = f"{holdfast} run x --url sqlite://{stage.folder}/other/locks.db --"
    commands = [f"{between} {holdfast} run b -- true", f"{holdfast} run a -- true"]
    outer = [
        stage.start("run", name, "--", "sh", "-c", f"{GATE} exec {command}")
        for name, command in zip("ab", commands, strict=True)
    ]
    eventually(lambda: all(stage.locks.inspect(name).held for name in "ab"))
    (stage.folder / "open").touch()
    eventually(lambda: "DEADLOCK" in stage.run("show", "a").out)
    for process in outer:
        process.terminate()
        ended(process)


@pytest.mark.parametrize("leftovers", ["end", "leave"])
def test_what_may_be_left_behind_keeps_nobody(stage: Stage, leftovers: str) -> None:
    holdfast = shlex.join(HOLDFAST)
    wait = "until [ -e done ]; do sleep 0.02; done"
    script = f"{GATE} setsid {holdfast} run b -- true & {wait}"
    first = stage.start("run", "a", "--leftovers", leftovers, "--", "sh", "-c", script)
    second = stage.start("run", "b", "--", "sh", "-c", f"{GATE} exec {holdfast} run a -- true")
    eventually(lambda: all(stage.locks.inspect(name).held for name in "ab"))
    (stage.folder / "open").touch()
    eventually(lambda: all(stage.locks.inspect(name).waiters for name in "ab"))
    assert "DEADLOCK" not in stage.run("show", "a").out
    (stage.folder / "done").touch()
    assert ended(first).status == 0
    assert ended(second).status == 0


def test_its_lines_are_cut_to_the_terminal(stage: Stage) -> None:
    long = "n" * 200
    process = stage.start(
        "run", long, "--", *HOLDFAST, "run", long, "--label", "l" * 200, "--", "true"
    )
    eventually(lambda: stage.locks.inspect(long).waiters)
    screen = Screen(stage, *HOLDFAST, "show", long, size=(60, 24))
    assert screen.ended() == 0
    assert "    runs" in screen.text
    assert max(map(len, screen.text.replace("\r", "").split("\n"))) <= 60
    process.terminate()
    ended(process)


def test_a_command_that_waits_for_the_lock_that_it_runs_under(stage: Stage) -> None:
    command = ["run", "x", "--", *HOLDFAST, "run", "x", "--", "true"]
    process = stage.start(*command)
    eventually(lambda: "    runs\n" in stage.run("show", "x").out)
    process.terminate()
    ended(process)


def test_where_nobody_waits_there_is_none(stage: Stage) -> None:
    with stage.locks.lock("x"):
        assert json.loads(stage.run("show", "x", "--json").out)["deadlocks"] == []
