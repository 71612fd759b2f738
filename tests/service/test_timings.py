"""Clients with a timing of their own: the backend of one that is listened to, or waited at, is kept."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from holdfast.service import service
from service.running import LIMIT, Api, Later, Sse, eventually, running

OWN = {"heartbeat": "0.5"}
OTHER = {"heartbeat": "0.6"}


@pytest.fixture
def api(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A service that has room for one timing, which may be taken at once."""
    monkeypatch.setattr(service, "MOST_TIMINGS", 1)
    monkeypatch.setattr(service, "IDLE_TIMING", 0.0)
    with running(redis_url) as (api, _):
        yield api


def may_take_the_room(api: Api) -> bool:
    return api.get("/v1/locks/x", params=OTHER).status_code == 200


def test_one_that_nobody_uses_makes_room(api: Api) -> None:
    assert api.get("/v1/locks/x", params=OWN).status_code == 200
    eventually(lambda: may_take_the_room(api))


def test_one_whose_wake_ups_are_listened_to_is_kept(api: Api) -> None:
    stream = Sse(f"{api.url}/v1/wakeups?session=abc&heartbeat=0.5")
    try:
        stream.find("ready")
        assert not may_take_the_room(api)
    finally:
        stream.close()
    eventually(lambda: may_take_the_room(api))


def test_one_at_which_a_change_is_waited_for_is_kept(api: Api, name: str) -> None:
    path = f"{api.url}/v1/elections/{name}/changes"
    query = {**OWN, "after": "1", "wait": "40"}
    waiting = Later(lambda: httpx.get(path, params=query, timeout=LIMIT))
    assert api.app is not None
    timed = api.app.service._timed
    eventually(lambda: timed and next(iter(timed.values())).observers)
    assert not may_take_the_room(api)
    api.acquire(name, kind="election", owner="leader")
    assert waiting.answer().status_code == 200
    eventually(lambda: may_take_the_room(api))
