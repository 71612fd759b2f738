"""`holdfast show`: who waits for whom, in a circle."""

from __future__ import annotations

import json
import threading
from contextlib import suppress

import holdfast
from cli.stage import Stage, eventually


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


def test_where_nobody_waits_there_is_none(stage: Stage) -> None:
    with stage.locks.lock("x"):
        assert json.loads(stage.run("show", "x", "--json").out)["deadlocks"] == []
