"""Interrupts on the threshold of `with`, where the lease that is entered is nobody's but its own."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import holdfast
from faults.actors import until
from holdfast._sync.lease_object import LeaseObject


class Shock(BaseException):
    """What a user's handler of a signal raises."""


def entered_interrupted(make: Callable[[], Any], number: int) -> bool:
    """Enters a new lease, interrupted after so many calls of ours; returns whether it was."""
    met = 0
    entered = LeaseObject.__enter__.__code__

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal met
        if event not in ("call", "c_return") or (not met and frame.f_code is not entered):
            return
        met += 1
        if met == number + 1:  # the first is the call itself: what comes before it is too early
            sys.setprofile(None)
            raise Shock

    sys.setprofile(watch)
    try:
        with make():
            sys.setprofile(None)
    except Shock:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.parametrize("what", ["acquire", "campaign", "multi", "adopt"])
def test_a_lease_that_nobody_else_has_is_freed(what: str) -> None:
    with holdfast.connect("memory://") as locks:
        makers: dict[str, Callable[[], Any]] = {
            "acquire": lambda: locks.lock("x", ttl=60.0).acquire(),
            "campaign": lambda: locks.election("x", ttl=60.0).campaign(),
            "multi": lambda: locks.multi(["x", "y"], ttl=60.0).acquire(),
            "adopt": lambda: locks.adopt(locks.lock("x", ttl=60.0).acquire().export()),
        }
        number = 1
        while entered_interrupted(makers[what], number):
            gc.collect()
            until(lambda: not locks.inspect("x").held, f"after {number} calls, that it is freed")
            number += 1
        assert number > 10
        assert not locks.inspect("x").held


def test_a_lease_that_the_caller_has_stays() -> None:
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("x", ttl=60.0).acquire()
        for number in (1, 5, 10):
            assert entered_interrupted(lambda: lease, number)
        assert lease.held
        with lease:
            assert lease.held
        assert not locks.inspect("x").held


def test_a_look_at_its_exit_changes_nothing() -> None:
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("x", ttl=60.0).acquire()
        assert hasattr(lease, "__exit__")
        assert lease._hold._usage.given
        with lease:
            assert lease._hold._usage.given
            assert len(lease._hold._usage.watches) == 2  # over the lease, and over this exit
