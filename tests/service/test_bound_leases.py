"""Leases on ZooKeeper hang on the session of the service that granted them, which is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
import stores
from service.running import Api, Process, eventually, running


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stores.STORES["zookeeper"](None) as url:  # type: ignore[arg-type]
        yield url


@pytest.fixture(scope="module")
def api(url: str) -> Iterator[Api]:
    with running(url) as (api, _):
        yield api


def test_it_is_said(api: Api) -> None:
    promised = api.get("/v1/guarantees").json()
    assert "no other service renews it" in promised["auto_release"]


def test_several_locks_are_not_asked_for_again_elsewhere(api: Api, name: str) -> None:
    """The service takes one after the other: it may give back what a repeat was granted meanwhile."""
    repeats: list[tuple[str, bool]] = []
    with holdfast.connect(api.url, namespace="first") as locks:
        retrier: Any = locks._session().backend._retrier  # type: ignore[attr-defined]
        call = retrier.call

        def record(*words: Any, repeat: bool = True, **options: Any) -> Any:
            repeats.append((words[1].partition("?")[0], repeat))
            return call(*words, repeat=repeat, **options)

        retrier.call = record
        with locks.multi([name, f"{name}-2"]) as lease:
            assert len(lease.tokens) == 2
    assert ("/v1/acquire", False) in repeats


def test_a_lease_ends_with_the_service_that_granted_it(api: Api, url: str, name: str) -> None:
    process = Process("--port", "0", "--url", url, "--namespace", "first")
    try:
        granting = process.api()
        grant = granting.acquire(name, ttl=6, owner="bound")
        # Another service says that it does not know the lease, and leaves it alone.
        elsewhere = api.lock(name, "renew", owner="bound", ttl=6)
        assert elsewhere.status_code == 410
        assert granting.lock(name, "renew", owner="bound", ttl=6).status_code == 200
        assert api.holders(name) == ["bound"]
        process.process.kill()
    finally:
        process.close()
    # Nobody else is granted the lock before the store has ended the session; then the next one is.
    eventually(lambda: not api.holders(name), limit=60.0)
    following = api.acquire(name)
    assert following["token"] > grant["token"]
