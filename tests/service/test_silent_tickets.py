"""A client of which nothing is heard any more: the service keeps neither its place nor its lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import stores
from holdfast.service import bells
from service.gates import store_of
from service.running import eventually, running


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service looks after tickets soon."""
    monkeypatch.setattr(bells, "UNHEARD", 0.2)


@pytest.fixture(params=["sqlite", "redis", "zookeeper"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with stores.STORES[request.param](tmp_path) as url:
        yield url


def test_a_place_that_nobody_renews_has_an_end(url: str, name: str) -> None:
    with running(url, options={"heartbeat": 0.3}) as (api, _):
        api.acquire(name, owner="holder", ttl=600)
        assert api.lock(name, "acquire", owner="dead", ttl=300, queue=True).status_code == 202
        assert api.waiters(name) == ["dead"]
        eventually(lambda: not api.waiters(name), limit=20.0)
        eventually(lambda: not len(store_of(api).bells))


def test_a_place_that_is_renewed_is_kept(url: str, name: str) -> None:
    with running(url, options={"heartbeat": 0.3}) as (api, _):
        api.acquire(name, owner="holder", ttl=600)
        assert api.lock(name, "acquire", owner="alive", ttl=300, queue=True).status_code == 202
        renewals = iter(range(100))

        def often_renewed() -> bool:
            assert api.lock(name, "renew", owner="alive", ttl=300).status_code == 202
            return next(renewals) > 50

        eventually(often_renewed)


def test_a_lease_that_was_renewed_elsewhere_ends_with_its_ttl(redis_url: str, name: str) -> None:
    timing = {"heartbeat": 0.4}
    with (
        running(redis_url, options=timing) as (here, _),
        running(redis_url, options=timing) as (there, _),
    ):
        here.acquire(name, owner="holder", ttl=600)
        assert here.lock(name, "acquire", owner="next", ttl=600, queue=True).status_code == 202
        assert there.lock(name, "release", owner="holder").status_code == 200
        assert there.lock(name, "renew", owner="next", ttl=6).status_code == 200
        eventually(lambda: not len(store_of(here).bells))  # it has been asked about
        eventually(lambda: not there.holders(name), limit=20.0)
