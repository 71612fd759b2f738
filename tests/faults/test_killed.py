"""Case 1 and 5: whoever is killed holds nothing any more, at once, whatever its TTL."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from faults.actors import Stage, now

SLOW: dict[str, Any] = {"heartbeat": 4.0}
"""So slow that nothing below can be the heartbeat's doing; a waiter's place lasts five seconds."""
AT_ONCE = 3.5


def test_a_killed_holder_is_followed_at_once(stage: Stage, world: str) -> None:
    holder, waiter = stage.actor(world, **SLOW), stage.actor(world, **SLOW)
    first = holder.acquire("x", ttl=30.0)
    second = waiter.queue("x")
    holder.waits("x", waiter)
    killed = holder.kill()
    grant = second.get()
    assert grant["at"] - killed < AT_ONCE
    assert grant["token"] > first["token"]


def test_each_of_a_row_of_holders_is_killed(stage: Stage, world: str) -> None:
    crowd = [stage.actor(world, **SLOW) for _ in range(4)]
    last = crowd[0].acquire("x")
    pending = []
    for place, actor in enumerate(crowd[1:], 2):
        pending.append(actor.queue("x"))
        crowd[0].waits("x", *crowd[1:place])
    for holder, answer in zip(crowd, pending, strict=False):
        killed = holder.kill()
        grant = answer.get()
        assert grant["at"] - killed < AT_ONCE
        assert grant["token"] > last["token"]
        last = grant


def test_a_killed_waiter_is_passed_over_at_once(stage: Stage, world: str) -> None:
    holder, doomed, waiter = (stage.actor(world, **SLOW) for _ in range(3))
    holder.acquire("x")
    doomed.queue("x")
    holder.waits("x", doomed)
    answer = waiter.queue("x")
    holder.waits("x", doomed, waiter)
    doomed.kill()
    doomed.process.wait()
    released = now()
    assert holder.ask("release", key="x") is True
    assert answer.get()["at"] - released < AT_ONCE


def test_a_killed_waiter_is_passed_over_also_where_the_lock_goes_from_hand_to_hand(
    stage: Stage, world: str
) -> None:
    """The quick way to hand a lock over looks at nobody's process before it does."""
    holder, doomed, waiter = (stage.actor(world, heartbeat=9.0, claim_window=9.0) for _ in range(3))
    holder.acquire("x")
    answer = waiter.queue("x")
    holder.waits("x", waiter)
    assert holder.ask("release", key="x") is True  # from now on it knows that others want it
    answer.get()
    answer = holder.queue("x")
    waiter.waits("x", holder)
    assert waiter.ask("release", key="x") is True
    before = answer.get()["token"]
    doomed.queue("x")
    holder.waits("x", doomed)
    answer = waiter.queue("x")
    holder.waits("x", doomed, waiter)
    doomed.kill()
    doomed.process.wait()
    released = now()
    assert holder.ask("release", key="x") is True
    after = answer.get()
    assert after["at"] - released < AT_ONCE
    assert after["token"] > before


def test_all_killed_waiters_are_passed_over_when_the_holder_dies(stage: Stage, world: str) -> None:
    quick: dict[str, Any] = {"heartbeat": 0.3}
    holder, waiter = stage.actor(world, **quick), stage.actor(world, **quick)
    doomed = [stage.actor(world, **quick) for _ in range(3)]
    holder.acquire("x")
    for place, actor in enumerate(doomed, 1):
        actor.queue("x")
        holder.waits("x", *doomed[:place])
    answer = waiter.queue("x")
    holder.waits("x", *doomed, waiter)
    for actor in doomed:
        actor.kill()
        actor.process.wait()
    # The first in line, who would have watched the holder, is dead too: the heartbeat finds it.
    killed = holder.kill()
    assert answer.get()["at"] - killed < 0.3 + AT_ONCE


def test_one_who_was_handed_the_lock_is_killed(stage: Stage, world: str) -> None:
    """Confirmed, its process is watched by the next in line, as any holder's."""
    holder, doomed, waiter = (stage.actor(world, **SLOW) for _ in range(3))
    holder.acquire("x")
    handed = doomed.queue("x")
    holder.waits("x", doomed)
    answer = waiter.queue("x")
    holder.waits("x", doomed, waiter)
    holder.ask("release", key="x")
    token = handed.get()["token"]
    doomed.ask("renew", key="x")
    killed = doomed.kill()
    grant = answer.get()
    assert grant["at"] - killed < AT_ONCE
    assert grant["token"] > token


def test_one_who_was_handed_the_lock_is_killed_before_it_knew(stage: Stage, world: str) -> None:
    """Not even confirmed: then the claim window ends it, and a heartbeat finds that."""
    quick: dict[str, Any] = {"heartbeat": 0.4, "claim_window": 1.6}
    holder, doomed, waiter = (stage.actor(world, **quick) for _ in range(3))
    holder.acquire("x")
    doomed.queue("x")
    holder.waits("x", doomed)
    answer = waiter.queue("x")
    holder.waits("x", doomed, waiter)
    doomed.stop()
    released = now()
    holder.ask("release", key="x")
    token = holder.ask("inspect", name="x")["holders"][0]
    doomed.kill()
    grant = answer.get()
    assert grant["at"] - released < 1.6 + 0.4 + AT_ONCE
    assert grant["token"] > token


@pytest.mark.parametrize(
    ("world", "how"),
    [
        ("blocking", "popen"),
        ("aio", "popen"),
        ("blocking", "posix_spawn"),
        ("blocking", "fork and exec"),
        ("aio", "fork and exec"),
    ],
)
def test_a_program_that_was_started_keeps_nothing(stage: Stage, world: str, how: str) -> None:
    holder, waiter = stage.actor(world, **SLOW), stage.actor(world, **SLOW)
    first = holder.acquire("x")
    with child(holder.ask("spawn", how=how)) as pid:
        answer = waiter.queue("x")
        holder.waits("x", waiter)
        killed = holder.kill()
        grant = answer.get()
        assert grant["at"] - killed < AT_ONCE
        assert grant["token"] > first["token"]
        os.kill(pid, 0)  # it lives on


@contextmanager
def child(pid: int) -> Iterator[int]:
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
