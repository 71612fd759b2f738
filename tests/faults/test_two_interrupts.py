"""Two signals at once, whose handlers raise one right after the other: the second exception comes while
the first is being cleaned up behind, often at the very entry of that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._sync import adopting, multi
from holdfast._sync.hold import Hold
from holdfast._sync.lease import Lease
from holdfast._sync.reentrant import ReentrantHold
from holdfast._sync.session import Session
from holdfast._sync.usage import Usage
from holdfast.stores.memory._sync.backend import MemoryBackend
from holdfast.stores.sqlite import transactions
from holdfast.stores.sqlite.connection import StoreConnection
from holdfast.stores.sqlite.gate import Gate
from worlds.threads import eventually

Step = tuple[Any, str]
"""A function: where it stands, and its name."""


class TwoInterrupts:
    """The two: each comes before a call of one step, or behind it."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        first: Step,
        second: Step,
        behind: bool,
        behind_too: bool = False,
    ) -> None:
        self._patch = patch
        self._left = [(first, behind), (second, behind_too)]
        self._arm()

    def _arm(self) -> None:
        (owner, name), behind = self._left[0]
        real = getattr(owner, name)

        def interrupted(*arguments: Any, **keywords: Any) -> Any:
            self._patch.setattr(owner, name, real)
            del self._left[0]
            try:
                if behind:
                    real(*arguments, **keywords)
            finally:
                if self._left:
                    self._arm()
            raise KeyboardInterrupt

        self._patch.setattr(owner, name, interrupted)

    def check(self) -> None:
        assert not self._left, f"{self._left[0]} was not called"


@pytest.mark.parametrize(
    ("first", "second", "behind"),
    [
        ((Gate, "leave"), (Gate, "leave"), False),
        ((StoreConnection, "_checked_connection"), (Gate, "leave"), True),
        ((Gate, "_attempt"), (Gate, "leave"), True),
        ((transactions, "Ledger"), (transactions, "roll_back"), False),
    ],
)
def test_a_step_on_the_store_shuts_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Step, second: Step, behind: bool
) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        others.inspect("x")
        with locks.rwlock("y").read():  # another one takes no short cut
            interrupts = TwoInterrupts(monkeypatch, first, second, behind)
            with pytest.raises(KeyboardInterrupt):
                locks.rwlock("y").read().acquire()
            interrupts.check()
            with others.lock("x"), locks.lock("z"):
                pass


def lock(locks: holdfast.Locks) -> None:
    with locks.lock("x", ttl=60.0):
        pass


def several(locks: holdfast.Locks) -> None:
    with locks.multi(["x", "y"], ttl=60.0):
        pass


def adopted(locks: holdfast.Locks) -> None:
    with locks.adopt(locks.lock("x", ttl=60.0).acquire().export()):
        pass


@pytest.mark.parametrize(
    ("use", "first", "second", "behind"),
    [
        (lock, (Session, "hold"), (Session, "give_up"), True),
        (lock, (Session, "hold"), (Session, "clean_up"), True),
        (lock, (Lease, "_begin"), (Usage, "end"), False),
        (lock, (Lease, "_begin"), (Hold, "_release_quietly"), False),
        (lock, (Usage, "begin"), (Usage, "settle"), True),
        (lock, (Usage, "take_drop"), (Usage, "end"), False),
        (several, (Session, "hold_all"), (multi._Attempt, "_give_up_all"), True),
        (several, (Session, "hold_all"), (Session, "give_up"), True),
        (several, (Session, "hold_all"), (multi, "tell_ended"), True),
        (adopted, (adopting, "tell_granted"), (Session, "give_up"), False),
        (lock, (MemoryBackend, "release"), (Session, "clean_up"), False),
        (lock, (MemoryBackend, "release"), (Hold, "_freed"), False),
    ],
)
def test_no_lease_is_left_that_nobody_has(
    monkeypatch: pytest.MonkeyPatch,
    use: Callable[[holdfast.Locks], None],
    first: Step,
    second: Step,
    behind: bool,
) -> None:
    with holdfast.connect("memory://") as locks:
        locks.on_event(lambda event: None)
        interrupts = TwoInterrupts(monkeypatch, first, second, behind)
        with pytest.raises(KeyboardInterrupt):
            use(locks)
        interrupts.check()
        monkeypatch.undo()
        eventually(lambda: not locks.list())
        session: Any = locks._session()
        eventually(lambda: not session.leases and not session.tickets)


@pytest.mark.parametrize("behind_too", [False, True])
def test_the_outer_body_of_a_reentrant_lock_keeps_it(
    monkeypatch: pytest.MonkeyPatch, behind_too: bool
) -> None:
    with holdfast.connect("memory://") as locks:
        mine = locks.rlock("x", ttl=60.0)
        with mine as lease:
            interrupts = TwoInterrupts(
                monkeypatch, (Lease, "_begin"), (ReentrantHold, "release"), False, behind_too
            )
            with pytest.raises(KeyboardInterrupt), mine:
                pass
            interrupts.check()
            monkeypatch.undo()
            lease.ensure()
            assert locks.inspect("x").held
        assert not locks.inspect("x").held
