"""A request that is repeated, or given up, while the first one is still under way."""

from __future__ import annotations

import itertools
from typing import Any

import httpx

from holdfast.model import Renewed
from holdfast.service.store import Store
from service.gates import gated, store_of
from service.running import LIMIT, Api, Later, eventually


def is_waited_for(store: Store, owner: str) -> bool:
    """Tells whether a request for several locks waits for another one of that owner."""
    turn = store.turns.get(owner)
    return turn is not None and bool(turn._waiters)


def test_several_locks_that_a_repeat_was_granted_are_not_freed_by_the_first(
    api: Api, name: str
) -> None:
    """On a store that takes them one by one: the first finds one of them held, and frees the other."""
    one, two = f"{name}-1", f"{name}-2"
    owners = {one: f"owner-of-{one}", two: f"owner-of-{two}"}
    body = {"locks": [{"name": lock, "owner": owner} for lock, owner in owners.items()]}
    other = api.acquire(two)["owner"]

    def post() -> httpx.Response:
        return httpx.post(f"{api.url}/v1/acquire", json=body, timeout=LIMIT)

    calls = itertools.count()

    def is_the_first(*words: Any) -> bool:
        return next(calls) == 0

    with gated(api, "inspect", before=is_the_first, acquire_all=None) as gate:
        first = Later(post)
        gate.reached()
        assert api.lock(two, "release", owner=other).status_code == 200
        second = Later(post)
        eventually(lambda: second.ended or is_waited_for(store_of(api), owners[one]))
        gate.open()
        assert first.answer().status_code == 409
        granted = second.answer()
    held = [api.holders(lock) for lock in owners]
    if granted.status_code == 200:
        assert held == [[owner] for owner in owners.values()]
    else:
        assert held == [[], []], granted.text


def test_an_adopt_whose_owner_is_given_up_meanwhile_leaves_nothing(api: Api, name: str) -> None:
    giver = api.acquire(name)["owner"]
    owner = f"{name}-adopts"

    def ask() -> httpx.Response:
        body = {"giver": giver, "owner": owner}
        return httpx.post(f"{api.url}/v1/locks/{name}/adopt", json=body, timeout=LIMIT)

    with gated(api, "adopt", before=lambda *words: True) as gate:
        later = Later(ask)
        gate.reached()
        assert api.lock(name, "release", owner=owner, doubtful=True).status_code == 410
        gate.open()
        answer = later.answer()
    assert answer.status_code == 410, answer.text
    assert owner not in api.holders(name)


def test_a_wait_whose_owner_is_given_up_before_its_grant_is_told_is_refused(
    api: Api, name: str
) -> None:
    holder = api.acquire(name)["owner"]
    owner = f"{name}-waits"

    def has_its_grant(outcomes: Any, claims: Any, *words: Any) -> bool:
        pairs = zip(claims, outcomes, strict=True)
        return any(claim.owner == owner and isinstance(one, Renewed) for claim, one in pairs)

    later = api.later(name, owner=owner, wait=LIMIT)
    eventually(lambda: api.waiters(name) == [owner])
    with gated(api, "renew", after=has_its_grant) as gate:
        assert api.lock(name, "release", owner=holder).status_code == 200
        gate.reached()
        api.lock(name, "release", owner=owner, doubtful=True)
        gate.open()
        answer = later.answer()
    assert answer.status_code == 410, answer.text
    assert api.holders(name) == []
