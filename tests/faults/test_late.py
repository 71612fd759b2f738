"""Case 14: a lease is counted from when it was asked for, however late the answer comes."""

from __future__ import annotations

import pytest

from faults.actors import Stage

# The store has answered, and then the time goes by: the clock is moved rather than waited for.
LATE = """
import time
real, moved = time.clock_gettime, [0.0]
time.clock_gettime = lambda clock: real(clock) + moved[0]
from holdfast.stores.sqlite.store import Store
acquire, renew = Store.acquire, Store.renew
def late_acquire(self, *arguments):
    answer = acquire(self, *arguments)
    moved[0] += {acquire}
    return answer
def late_renew(self, *arguments):
    answer = renew(self, *arguments)
    moved[0] += {renew}
    return answer
Store.acquire, Store.renew = late_acquire, late_renew
"""
TTL = 100.0


def late(acquire: float = 0.0, renew: float = 0.0) -> str:
    return LATE.format(acquire=acquire * TTL, renew=renew * TTL)


def test_what_is_left_of_a_late_answer(stage: Stage, world: str) -> None:
    slow = stage.actor(world, late(acquire=0.9))
    grant = slow.acquire("x", timeout=None, ttl=TTL, renew=False)
    assert 0 < grant["remaining"] <= 0.1 * TTL
    assert slow.held("x")


def test_a_late_renewal_counts_from_when_it_was_sent(stage: Stage, world: str) -> None:
    slow = stage.actor(world, late(renew=0.9))
    slow.acquire("x", ttl=TTL, renew=False)
    slow.ask("renew", key="x")
    assert 0 < slow.ask("look", key="x")["remaining"] <= 0.1 * TTL


@pytest.mark.parametrize(("timeout", "kind"), [(None, "BackendUnavailable"), (10.0, "LockTimeout")])
def test_an_answer_after_the_end(
    stage: Stage, world: str, timeout: float | None, kind: str
) -> None:
    """Nothing is held, and nothing is left behind."""
    slow, other = stage.actor(world, late(acquire=1.1)), stage.actor(world)
    assert slow.queue("x", timeout=timeout, ttl=TTL).error().kind == kind
    assert slow.attempt("x", ttl=TTL) is None
    state = other.ask("inspect", name="x")
    assert (state["holders"], state["waiters"]) == ([], [])
    assert other.attempt("x") is not None
