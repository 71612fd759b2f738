"""Case 2: a process that was frozen, and woke up after its time had come."""

from __future__ import annotations

from typing import Any

import pytest

from faults.actors import LIMIT, Stage, now, until

TTL = 0.6
QUICK: dict[str, Any] = {"heartbeat": 0.5, "claim_window": 1.6}


def test_a_holder_frozen_past_its_ttl_is_told(stage: Stage, world: str) -> None:
    holder, rival = stage.actor(world), stage.actor(world, heartbeat=0.2)
    first = holder.acquire("x", ttl=TTL)
    holder.ask("on_lost", key="x")
    waiting = holder.send("wait_lost", key="x")
    look = holder.send("look", key="x")
    left = look.get()["remaining"]
    holder.stop()
    second = rival.acquire("x")
    assert second["token"] > first["token"]
    assert second["at"] > look.sent + left  # not before its end
    holder.resume()
    assert holder.held("x") is False
    assert holder.send("ensure", key="x").error().kind == "LeaseLost"
    assert holder.send("renew", key="x").error().kind == "LeaseLost"
    assert waiting.get() is True
    until(lambda: holder.heard("lost"), "on_lost")
    assert [note["held"] for note in holder.heard("lost")] == [False]
    assert holder.ask("release", key="x") is False
    rival.ask("ensure", key="x")
    rival.ask("renew", key="x")
    assert rival.ask("inspect", name="x")["holders"] == [second["token"]]
    assert rival.ask("release", key="x") is True


def test_the_first_thing_after_the_freeze_is_a_release(stage: Stage, world: str) -> None:
    """Nothing had time to notice the loss: the release alone must do no harm."""
    holder, rival = stage.actor(world), stage.actor(world, heartbeat=0.2)
    holder.acquire("x", ttl=TTL, renew=False)
    holder.stop()
    answer = holder.send("release", key="x")
    second = rival.acquire("x")
    holder.resume()
    assert answer.get() is False
    assert rival.ask("inspect", name="x")["holders"] == [second["token"]]
    rival.ask("renew", key="x")


def test_the_first_thing_after_the_freeze_is_a_look(stage: Stage, world: str) -> None:
    """Nobody renews it and nobody waits to be told: the clock alone tells."""
    holder, rival = stage.actor(world), stage.actor(world, heartbeat=0.2)
    holder.acquire("x", ttl=TTL, renew=False)
    holder.stop()
    looks = [holder.send("look", key="x"), holder.send("ensure", key="x")]
    rival.acquire("x")
    holder.resume()
    look = looks[0].get()
    assert (look["held"], look["remaining"]) == (False, 0.0)
    assert looks[1].error().kind == "LeaseLost"


def test_the_body_of_with_is_told(stage: Stage, world: str) -> None:
    holder, rival = stage.actor(world), stage.actor(world, heartbeat=0.2)
    body = holder.send("body", key="x", name="x", ttl=TTL, timeout=LIMIT)
    until(lambda: holder.heard("entered"), "the body")
    holder.stop()
    second = rival.acquire("x")
    holder.resume()
    if world == "blocking":
        # A thread cannot be stopped; it is told at the end.
        assert not body.ready
        holder.ask("leave", key="x")
    refused = body.error()
    assert refused.kind == "LeaseLost"
    assert refused.lost_at is not None
    stopped = [note["by"] for note in holder.heard("stopped")]
    assert stopped == (["CancelledError"] if world == "aio" else [])
    assert rival.ask("inspect", name="x")["holders"] == [second["token"]]


@pytest.mark.parametrize(
    ("world", "options"), [("blocking", QUICK), ("aio", QUICK), ("blocking", {})]
)
def test_a_frozen_waiter_is_passed_over_and_comes_back(
    stage: Stage, world: str, options: dict[str, Any]
) -> None:
    window = options.get("claim_window", 2.0)
    holder, frozen, waiter = (stage.actor(world, **options) for _ in range(3))
    first = holder.acquire("x")
    late = frozen.queue("x")
    holder.waits("x", frozen)
    answer = waiter.queue("x")
    holder.waits("x", frozen, waiter)
    frozen.stop()
    released = now()
    holder.ask("release", key="x")
    (passed,) = holder.ask("inspect", name="x")["holders"]  # it was handed to the frozen one
    grant = answer.get()
    assert window * 0.9 < grant["at"] - released < 10.0  # and not when its TTL of 30 s is over
    assert grant["token"] > passed > first["token"]
    frozen.resume()
    # It finds that it was passed over, enrols again, and waits for its turn.
    holder.waits("x", frozen)
    assert not late.ready
    assert waiter.held("x")
    assert waiter.ask("release", key="x") is True
    again = late.get()
    assert again["token"] > grant["token"]
    assert frozen.held("x")


def test_a_holder_frozen_for_less_than_its_ttl_goes_on(stage: Stage, world: str) -> None:
    """Frozen until its renewal is overdue, and no longer."""
    holder, rival = stage.actor(world), stage.actor(world, heartbeat=0.2)
    holder.acquire("x", ttl=5.0)
    answer = rival.queue("x")
    holder.waits("x", rival)
    frozen = holder.stop()
    until(lambda: now() > frozen + 2.0, "the time of its renewal")
    holder.resume()
    holder.ask("ensure", key="x")
    before = holder.ask("look", key="x")["remaining"]
    until(lambda: holder.ask("look", key="x")["remaining"] > 4.0 or before > 4.0, "a renewal")
    assert not answer.ready
    assert holder.ask("release", key="x") is True
    answer.get()
