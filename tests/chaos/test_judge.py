"""The judge sees in a history what was wrong, and what was not."""

from __future__ import annotations

from typing import Any

from holdfast.chaos import verdicts
from holdfast.chaos.history import Event, in_order
from holdfast.chaos.judge import Findings
from holdfast.chaos.promises import Promise
from holdfast.chaos.verdicts import MUST, REPORTED, Ending, Verdict
from holdfast.stores.redis.guarantees import REDIS

KEEPS_ALL = Promise(True, True, "")
DECLARES = Promise(False, True, "a failover may forget the latest grants")


class Story:
    """A history, told line by line."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._writes = 0

    def add(self, at: float, lane: str, kind: str, **fields: Any) -> Story:
        self.events.append({"at": at, "lane": lane, "kind": kind, **fields})
        return self

    def grant(self, lane: str, token: int | None, asked: float, at: float, *seen: float) -> Story:
        """A worker asks, is granted the lock, and looks at it at these times. One grant per worker."""
        own = {"owner": lane, "lock": "x"}
        self.add(asked, lane, "ask", **own).add(at, lane, "grant", token=token, ttl=2.0, **own)
        for look in seen:
            self.add(look, lane, "seen", token=token, owner=lane)
        return self

    def release(self, lane: str, at: float) -> Story:
        return self.add(at, lane, "release", owner=lane).add(at, lane, "end", owner=lane)

    def told(self, lane: str, at: float, stalled: float = 0.0) -> Story:
        return self.add(at, lane, "told", owner=lane, stalled=stalled)

    def write(self, lane: str, token: int, at: float, accepted: bool, register: str) -> Story:
        self._writes += 1
        self.add(at, lane, "send", owner=lane, number=self._writes)
        fields = {"accepted": accepted, "stale": not accepted, "from": lane}
        fields |= {"register": register, "number": self._writes, "token": token, "lock": "x"}
        return self.add(at, register, "write", **fields)

    def fault(self, at: float, until: float, name: str = "pause") -> Story:
        return self.add(at, "w1", "fault", name=name, until=until, text="", number=at)

    def judged(
        self, promise: Promise = KEEPS_ALL, ending: Ending | None = None, ours: bool = True
    ) -> dict[str, Verdict]:
        seen = Findings(in_order(self.events), tokens=ours)
        guarantees = REDIS if ours else None
        found = verdicts.verdicts_of(seen, ending or Ending(), guarantees, promise)
        return {one.rule: one for one in found}


def failed(found: dict[str, Verdict]) -> set[str]:
    return {rule for rule, one in found.items() if one.failed}


def test_a_run_in_which_all_was_well() -> None:
    story = Story().grant("a", 1, 0.0, 1.0, 1.1, 1.4).release("a", 1.5)
    found = story.grant("b", 2, 0.5, 1.6, 1.7).release("b", 1.8).judged()
    assert not failed(found)
    assert all(one.held for one in found.values())
    assert set(found) == set(verdicts.RULES)


def test_two_holders_that_were_both_sure() -> None:
    story = Story().grant("a", 1, 0.0, 1.0, 3.0).grant("b", 2, 0.5, 2.0, 2.6, 4.0)
    found = story.release("a", 3.1).release("b", 4.1).judged()
    assert failed(found) == {verdicts.EXCLUSION, verdicts.DECLARED}
    assert round(found[verdicts.EXCLUSION].seconds, 3) == 1.0
    declared = story.judged(DECLARES)
    assert not failed(declared)
    assert not declared[verdicts.EXCLUSION].held
    assert declared[verdicts.EXCLUSION].demand == REPORTED
    assert "as declared" in declared[verdicts.DECLARED].text


def test_a_grant_that_was_known_only_after_its_rivals_end() -> None:
    """Tokens rose on the store; it is exclusion that the holder of the older one did not have."""
    story = Story().grant("a", 2, 0.2, 0.9, 1.0, 1.1).release("a", 1.1)
    story.grant("b", 1, 0.1, 1.2, 1.3).release("b", 1.4)
    assert failed(story.judged()) == {verdicts.EXCLUSION, verdicts.DECLARED}
    assert not failed(story.judged(DECLARES))


def test_a_token_that_fell() -> None:
    story = Story().grant("a", 2, 0.2, 0.9, 1.0, 1.1).release("a", 1.1)
    story.grant("b", 1, 1.15, 1.2, 1.3).release("b", 1.4)
    assert verdicts.ORDER in failed(story.judged(DECLARES))


def test_a_holder_that_slept_is_not_blamed() -> None:
    story = Story().grant("a", 1, 0.0, 1.0, 1.1).grant("b", 2, 0.5, 3.0, 3.2).release("b", 3.3)
    story.told("a", 4.0, stalled=2.5).release("a", 4.1).fault(1.2, 4.0)
    found = story.judged()
    assert not failed(found)
    assert "slept on" in found[verdicts.EXCLUSION].text
    assert found[verdicts.EXCLUSION].demand == MUST


def test_a_holder_that_was_told_too_late() -> None:
    story = Story().grant("a", 1, 0.0, 1.0, 1.1).grant("b", 2, 0.5, 3.0, 3.2).release("b", 3.3)
    story.told("a", 3.5, stalled=0.1).release("a", 3.6)
    found = story.judged()
    assert failed(found) == {verdicts.TOLD, verdicts.DECLARED}
    early = Story().grant("a", 1, 0.0, 1.0, 1.1).told("a", 2.75).release("a", 2.8)
    found = early.grant("b", 2, 0.5, 3.0, 3.1).release("b", 3.2).judged()
    assert not failed(found)
    assert found[verdicts.TOLD].seconds == 0.25


def test_a_holder_that_hears_of_a_loss_while_it_gives_the_lock_back() -> None:
    story = Story().grant("a", 1, 0.0, 1.0, 1.1).release("a", 1.2).told("a", 2.7)
    found = story.grant("b", 2, 0.5, 1.3, 1.4).release("b", 1.5).judged()
    assert not failed(found)
    assert found[verdicts.TOLD].text == "no lease was lost"


def test_writes_that_come_too_late() -> None:
    story = Story().grant("a", 1, 0.0, 1.0, 1.1).release("a", 1.5)
    story.grant("b", 2, 1.6, 2.0, 2.1)
    for register in ("fenced", "unfenced"):
        story.write("b", 2, 2.2, True, register)
    story.write("a", 1, 2.3, False, "fenced").write("a", 1, 2.3, True, "unfenced")
    found = story.release("b", 3.0).judged()
    assert not failed(found)
    assert not found[verdicts.NO_FENCE].held
    # A fence that let it pass, and did not even know that it was late.
    story.write("a", 1, 2.4, True, "fenced")
    assert failed(story.judged()) == {verdicts.FENCE}


def test_tokens_that_fall() -> None:
    story = Story().grant("a", 7, 0.0, 1.0, 1.1).release("a", 1.5)
    found = story.grant("b", 6, 1.6, 2.0, 2.1).release("b", 2.2).judged()
    assert verdicts.ORDER in failed(found)


def test_what_is_left_and_who_is_stuck() -> None:
    story = Story().grant("a", 1, 0.0, 1.0, 1.1).release("a", 1.5)
    found = story.judged(ending=Ending(["w2"], ["a holder of 'x'"], limit=30.0))
    assert failed(found) == {verdicts.RECOVERY, verdicts.GHOSTS}


def test_a_lock_of_another_library_that_nobody_has_and_nobody_gets() -> None:
    story = Story().grant("a", None, 0.0, 1.0, 1.1).release("a", 1.5)
    story.fault(1.6, 1.7, "lost-reply")
    found = story.grant("b", None, 0.5, 3.6, 3.7).release("b", 3.8).judged(ours=False)
    assert (found[verdicts.GHOSTS].held, found[verdicts.GHOSTS].times) == (False, 1)
    assert not failed(found)
    paused = story.fault(1.8, 3.0, "pause").judged(ours=False)
    assert paused[verdicts.GHOSTS].held  # a process or a node was down: no ghost is needed


def test_how_long_it_took_until_somebody_was_granted_the_lock() -> None:
    story = Story().grant("a", 1, 0.0, 1.0, 1.1).release("a", 1.2).fault(1.5, 2.0)
    found = story.grant("b", 2, 1.6, 3.25, 3.3).release("b", 3.4).judged()
    assert found[verdicts.RECOVERY].seconds == 1.25
