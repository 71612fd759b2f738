"""Two services on one store: what one of them gives up is never what the other has just granted."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.errors import BackendUnavailable
from holdfast.service.store import Store
from service.running import LIMIT, NAMESPACES, Api, eventually, running


@pytest.fixture(scope="module")
def pair(redis_url: str) -> Iterator[tuple[Api, Api]]:
    """Returns two services on one store."""
    with running(redis_url) as (one, _), running(redis_url) as (two, _):
        yield one, two


def store_of(api: Api) -> Store:
    assert api.app is not None
    return api.app.service.stores[NAMESPACES[0]]


@pytest.fixture
def unanswered(pair: tuple[Api, Api]) -> Iterator[Api]:
    """Returns a service whose store takes several locks, and does not answer."""
    api, _ = pair
    own = store_of(api).backend.__dict__
    acquire_all = own["acquire_all"]

    async def lose(*words: Any) -> Any:
        await acquire_all(*words)
        raise BackendUnavailable("no answer")

    own["acquire_all"] = lose
    yield api
    own["acquire_all"] = acquire_all


def test_what_was_not_answered_is_not_freed_behind_a_repeat_elsewhere(
    pair: tuple[Api, Api], unanswered: Api, name: str
) -> None:
    _, other = pair
    store = store_of(unanswered)
    own = store.backend.__dict__

    async def lose(*words: Any) -> Any:
        raise BackendUnavailable("no answer")

    names = [f"{name}-{number}" for number in range(3)]
    body = {"locks": [{"name": one, "owner": f"owner-of-{one}"} for one in names]}
    own["release"] = lose
    try:
        assert unanswered.post("/v1/acquire", body).status_code == 503
        granted = other.post("/v1/acquire", body)
    finally:
        del own["release"]
    assert granted.status_code == 200
    session = store._session
    assert session is not None
    eventually(lambda: not session.pending_releases)
    for one, grant in zip(names, granted.json()["grants"], strict=True):
        (holder,) = other.state(one)["holders"]
        assert (holder["owner"], holder["token"]) == (f"owner-of-{one}", grant["token"])


def test_owners_that_nobody_knows_are_freed(
    pair: tuple[Api, Api], unanswered: Api, name: str
) -> None:
    _, other = pair
    names = [f"{name}-{number}" for number in range(3)]
    answer = unanswered.post("/v1/acquire", {"locks": [{"name": one} for one in names]})
    assert answer.status_code == 503
    for one in names:
        assert not other.holders(one)


def test_a_wait_that_is_repeated_elsewhere_ends_with_the_first(
    pair: tuple[Api, Api], name: str
) -> None:
    """A wait belongs to one service. The second is told that it has no place."""
    one, two = pair
    holder = one.acquire(name)["owner"]
    body = json.dumps({"owner": f"waiter-of-{name}", "wait": LIMIT}).encode()
    head = (
        f"POST /v1/locks/{name}/acquire HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    )
    host, _, port = one.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), LIMIT) as first:
        first.sendall(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        eventually(lambda: one.waiters(name))
        repeated = two.later(name, owner=f"waiter-of-{name}", wait=LIMIT)
        eventually(lambda: len(store_of(two).waits))
    answer = repeated.answer()
    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/gone")
    assert not one.waiters(name)
    assert one.lock(name, "release", owner=holder).status_code == 200
    assert not one.holders(name)
