"""The checker's sweep finds what a comparison of every two grants finds, and is quick."""

from __future__ import annotations

import random
import time
from itertools import combinations

from holdfast.sim.checker import EXCLUSION, TOKENS, Checker, Grant, conflict


def compare_all(grants: list[Grant]) -> set[str]:
    """Returns the rules that are broken, by comparing every two grants."""
    broken = set()
    for one, other in combinations(grants, 2):
        rivals = conflict(one, other)
        same_slot = one.slot is not None and one.slot == other.slot
        if one.token == other.token:
            broken.add(TOKENS)
        for first, second in ((one, other), (other, one)):
            ended = first.ended_at
            fell = second.token < first.token
            if (rivals or same_slot) and first.granted_at < second.asked_at and fell:
                broken.add(TOKENS)
            seen = second.seen_at >= second.granted_at
            if rivals and seen and ended is not None and ended < second.granted_at and fell:
                broken.add(EXCLUSION)
            if not rivals and ended is not None and ended < second.asked_at:
                broken |= {TOKENS} if second.token <= first.token else set()
        overlap = one.granted_at < other.seen_at and other.granted_at < one.seen_at
        if (rivals or same_slot) and overlap:
            broken.add(EXCLUSION)
    for one in grants:
        held = [two for two in grants if two.granted_at <= one.granted_at < two.seen_at]
        if one in held and sum(two.weight for two in held) > one.capacity:
            broken.add(EXCLUSION)
    return broken


def draw_grants(chance: random.Random) -> list[Grant]:
    """Returns a few grants, of which most are right and some are not."""
    capacity = chance.choice([1, 1, 2, 3])
    grants, now, token = [], 0, 10
    for number in range(chance.randrange(2, 8)):
        weight = chance.choice([1, capacity])
        slots = capacity > 1 and weight == 1 and chance.random() < 0.5
        slot = chance.randrange(capacity) if slots else None
        asked = now - chance.randrange(4)
        token += chance.choice([1, 1, 1, 1, 1, 0, -1])
        grant = Grant("x", f"c{number}", token, asked, now, weight, capacity, slot)
        if chance.random() < 0.9:
            grant.seen_at = now + chance.randrange(4)
        if chance.random() < 0.7:
            grant.ended_at = max(now, grant.seen_at) + chance.randrange(2)
        now += chance.choice([0, 1, 2, 3, 3, 4])
        grants.append(grant)
    chance.shuffle(grants)
    return grants


def test_it_finds_what_comparing_every_two_finds() -> None:
    chance = random.Random(1)
    caught = 0
    for _ in range(6000):
        grants = draw_grants(chance)
        checker = Checker()
        checker.grants.extend(grants)
        checker.compare_grants()
        assert {violation.rule for violation in checker.found} == compare_all(grants)
        caught += bool(checker.found)
    assert 600 < caught < 5400  # both happen often, or this test proves nothing


def test_a_hundred_thousand_grants() -> None:
    checker = Checker()
    for number in range(100_000):
        grant = Grant("x", "c", number + 1, number - 3.5, float(number))
        grant.seen_at, grant.ended_at = number + 0.5, number + 0.6
        checker.grants.append(grant)
    checker.grants[70_000].seen_at += 1.0
    before = time.process_time()
    checker.compare_grants()
    assert time.process_time() - before < 5.0  # a comparison of every two would take an hour
    (found,) = checker.found
    assert (found.rule, round(found.seconds, 3)) == (EXCLUSION, 0.5)
