"""The rules of the queue, under thousands of random steps on a clock that is moved."""

from __future__ import annotations

import random

import pytest

from holdfast.clock import ManualClock
from holdfast.entries import AcquireRequest, Claim
from holdfast.model import Busy, Granted, Label, Renewed
from holdfast.stores.memory.store import MemoryStore

LABEL = Label("host", 1)


class Model:
    """Drives one lock of one store at random, and checks what must stay true after each step."""

    def __init__(self, seed: int, capacity: int) -> None:
        self.dice = random.Random(seed)
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.capacity = capacity
        self.owners: list[str] = []
        self.tokens: dict[str, int] = {}
        self.arrived: dict[str, int] = {}
        self.barging: set[str] = set()
        self.told: list[str] = []

    def step(self) -> None:
        state = self.store.inspect("x")
        choice = self.dice.random()
        if choice < 0.45:
            self.ask()
        elif choice < 0.75 and self.owners:
            present = [one.owner for one in (*state.holders, *state.waiters)]
            self.store.release("x", self.dice.choice([*present, self.owners[0]]))
        elif choice < 0.9 and self.owners:
            owner = self.dice.choice(self.owners[-6:])
            before = {holder.owner: holder for holder in self.store.inspect("x").holders}
            (outcome,) = self.store.renew([Claim("x", owner, 10.0)])
            if isinstance(outcome, Renewed) and owner in before:
                assert outcome.token == before[owner].token
        elif choice < 0.92:
            self.store.force_release("x", "test")
        else:
            self.clock.advance(self.dice.choice([0.1, 1.0, 2.5, 11.0]))
            self.clock.step_wall(self.dice.choice([0.0, 60.0, -90.0]))
        self.check()

    def ask(self) -> None:
        owner = f"o{len(self.owners)}"
        weight = self.dice.choice([1, 1, self.capacity])
        barge = self.dice.random() < 0.2
        queue = self.dice.random() < 0.8
        self.owners.append(owner)
        self.arrived[owner] = len(self.arrived)
        if barge:
            self.barging.add(owner)
        ask = AcquireRequest(
            "x", owner, 10.0, weight, self.capacity, "share", queue, barge, 2.0, 5.0, LABEL
        )
        answer = self.store.acquire(ask, lambda grant: self.told.append(owner))
        repeated = self.store.acquire(ask, lambda grant: self.told.append(owner))
        if isinstance(answer, Granted):
            assert isinstance(repeated, Granted)
            assert repeated.token == answer.token
        assert isinstance(answer, Busy) <= (not queue)

    def check(self) -> None:
        state = self.store.inspect("x")
        assert sum(holder.weight for holder in state.holders) <= self.capacity
        newly = {h.owner: h.token for h in state.holders if h.owner not in self.tokens}
        highest = max(self.tokens.values(), default=0)
        for owner, token in newly.items():
            assert token > highest, "a token at or below an older one"
            self.tokens[owner] = token
        assert len(set(self.tokens.values())) == len(self.tokens)
        for holder in state.holders:
            assert self.tokens[holder.owner] == holder.token, "a token that changed"
        # Nobody who waited fairly was overtaken by somebody who came later and does not barge.
        still = {waiter.owner for waiter in state.waiters if waiter.owner not in self.barging}
        for owner in newly:
            if owner not in self.barging:
                overtaken = [o for o in still if self.arrived[o] < self.arrived[owner]]
                assert not overtaken, f"{owner} overtook {overtaken}"
        fair = [w.owner for w in state.waiters]
        assert fair == sorted(fair, key=self.arrived.__getitem__)


@pytest.mark.parametrize("capacity", [1, 3, 10])
@pytest.mark.parametrize("seed", range(20))
def test_what_must_stay_true_does(seed: int, capacity: int) -> None:
    model = Model(seed, capacity)
    for _ in range(300):
        model.step()
    # Then everybody leaves, and the lock is free and forgotten.
    for owner in model.owners:
        model.store.release("x", owner)
    assert model.store.list("") == []
    assert len(model.tokens) > 20, "too little happened for this to mean anything"


@pytest.mark.parametrize("handed", [False, True])
def test_a_renewal_for_less_time_takes_none_away(handed: bool) -> None:
    store = MemoryStore(ManualClock())
    for owner in ("first", "second"):
        ask = AcquireRequest("x", owner, 60.0, 1, 1, "lock", True, False, 2.0, 5.0, LABEL)
        store.acquire(ask, lambda grant: None)
    if handed:
        store.release("x", "first")
    (holder,) = store.inspect("x").holders
    (outcome,) = store.renew([Claim("x", holder.owner, 1.0)])
    assert isinstance(outcome, Renewed)
    assert store.inspect("x").holders[0].remaining == holder.remaining
