"""`holdfast show`: who waits for whom, in a circle."""

from __future__ import annotations

import json
import shlex
import threading
from contextlib import suppress

import holdfast
from cli.stage import HOLDFAST, Stage, ended, eventually


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


def test_a_command_that_waits_for_the_lock_that_it_runs_under(stage: Stage) -> None:
    command = ["run", "x", "--", *HOLDFAST, "run", "x", "--", "true"]
    process = stage.start(*command)
    eventually(lambda: "    runs\n" in stage.run("show", "x").out)
    process.terminate()
    ended(process)


def test_where_nobody_waits_there_is_none(stage: Stage) -> None:
    with stage.locks.lock("x"):
        assert json.loads(stage.run("show", "x", "--json").out)["deadlocks"] == []
