"""What an authority does not let its caller do, nobody does; and the hooks that metrics hang on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from holdfast.service import Settings
from holdfast.service.app import create_app
from holdfast.service.authority import Anybody, Caller, Role, Weight
from holdfast.service.hooks import Finished, Hooks
from holdfast.service.problems import Problem
from service.running import Api, Sse, eventually, running


class Strict:
    """An authority that knows a caller by the header `x-caller`, and lets it use its own prefix."""

    def __init__(self) -> None:
        self.under_way: list[str] = []

    def identify(self, scope: Any) -> Caller:
        for name, value in scope["headers"]:
            if name == b"x-caller":
                caller = Anybody()
                caller.title = value.decode()
                return caller
        raise Problem(
            "unauthorized", "say who you are", headers=((b"www-authenticate", b"Bearer"),)
        )

    def may(self, caller: Caller, role: Role, namespace: str, name: str) -> bool:
        return name.startswith(caller.title) and role != "admin" and namespace == "first"

    def prefixes(self, caller: Caller, namespace: str) -> Sequence[str]:
        return (caller.title,) if namespace == "first" else ()

    def namespace(self, caller: Caller) -> str | None:
        return None

    def limit_places(self, caller: Caller, places: int) -> None:
        pass

    def begin(self, caller: Caller, weight: Weight) -> None:
        if weight != "request" and self.under_way.count(weight) >= 1:
            raise Problem("too-many", "one at a time", headers=((b"retry-after", b"5"),))
        self.under_way.append(weight)

    def end(self, caller: Caller, weight: Weight) -> None:
        self.under_way.remove(weight)

    def may_see_metrics(self, caller: Caller) -> bool:
        return True

    def describe(self, caller: Caller) -> dict[str, Any]:
        return {"caller": caller.title}


@pytest.fixture(scope="module")
def strict() -> Strict:
    return Strict()


@pytest.fixture(scope="module")
def hooks() -> Hooks:
    return Hooks()


@pytest.fixture(scope="module")
def ann(redis_url: str, strict: Strict, hooks: Hooks) -> Iterator[Api]:
    """Returns the requests of a caller who may use names that begin with `ann`."""
    settings = Settings(url=redis_url, namespaces=("first", "second"), look_every=0.1)
    app = create_app(settings, authority=strict, hooks=hooks)
    with running(redis_url, app) as (api, _):
        api.http.headers["x-caller"] = "ann"
        yield api


def test_who_is_not_known_is_told_nothing(ann: Api) -> None:
    refused = httpx.get(f"{ann.url}/v1/locks")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert httpx.get(f"{ann.url}/healthz").status_code == 200


def test_names_of_others_are_refused_by_every_verb(ann: Api) -> None:
    owner = {"owner": "x", "ttl": 5}
    for path, body in [
        ("/v1/locks/bob/acquire", {}),
        ("/v1/locks/bob/renew", owner),
        ("/v1/locks/bob/release", {"owner": "x"}),
        ("/v1/locks/bob/amend", {"owner": "x", "text": "y"}),
        ("/v1/locks/bob/detach", owner),
        ("/v1/locks/bob/adopt", {"giver": "x"}),
        ("/v1/renew", {"claims": [{"name": "ann", **owner}, {"name": "bob", **owner}]}),
        ("/v1/acquire", {"locks": [{"name": "ann"}, {"name": "bob"}]}),
        ("/v1/release", {"locks": [{"name": "bob", "owner": "x"}]}),
        ("/v1/fences/bob/check", {"token": 1}),
    ]:
        assert ann.post(path, body).status_code == 403, path
    for path in ("/v1/locks/bob", "/v1/elections/bob/changes"):
        assert ann.get(path).status_code == 403, path
    assert ann.get("/v1/locks/ann?namespace=second").status_code == 404
    assert ann.http.delete("/v1/locks/ann").status_code == 403
    assert ann.get("/v1/doctor").status_code == 403


def test_lists_and_streams_show_ones_own(ann: Api) -> None:
    bob = Api(ann.url)
    bob.http.headers["x-caller"] = "bob"
    mine = Sse(f"{ann.url}/v1/events", {"x-caller": "ann"})
    try:
        mine.find("ready")
        bob.acquire("bob-1")
        ann.acquire("ann-1")
        mine.find("granted", name="ann-1")
        assert {event[2].get("name") for event in mine.events} <= {None, "ann-1"}
        for query in ("", "?prefix=a", "?prefix=ann-", "?prefix="):
            listed = ann.get(f"/v1/locks{query}").json()["locks"]
            assert [state["name"] for state in listed] == ["ann-1"]
        assert ann.get("/v1/locks?prefix=bob").json()["locks"] == []
        assert ann.get("/v1/locks?namespace=second").status_code == 404
    finally:
        mine.close()
        bob.http.close()


def test_what_was_begun_is_ended(ann: Api, strict: Strict) -> None:
    grant = ann.acquire("ann-w")
    other = Api(ann.url)
    other.http.headers["x-caller"] = "ann"
    first = threading.Thread(target=lambda: other.lock("ann-w", "acquire", wait=20))
    first.start()
    eventually(lambda: "wait" in strict.under_way)
    refused = ann.lock("ann-w", "acquire", wait=5)
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "5"
    ann.lock("ann-w", "release", owner=grant["owner"])
    first.join()
    other.http.close()
    eventually(lambda: not strict.under_way)


def test_hooks_are_told(ann: Api, hooks: Hooks) -> None:
    finished: list[Finished] = []
    kinds: list[str] = []
    hooks.finished.append(finished.append)
    hooks.finished.append(lambda told: 1 // 0)  # a broken metric breaks nothing
    remove = hooks.events.add(lambda event: kinds.append(event.kind))
    try:
        grant = ann.acquire("ann-hook")
        ann.lock("ann-hook", "renew", owner=grant["owner"], ttl=5)
        ann.lock("ann-hook", "release", owner=grant["owner"])
        ann.get("/nothing")
        eventually(lambda: len(finished) == 4)
    finally:
        hooks.finished.clear()
        remove()
    assert [one.operation for one in finished] == ["acquire", "renew", "release", ""]
    assert [one.status for one in finished] == [200, 200, 200, 404]
    assert finished[0].caller == "ann"
    assert finished[0].name == "ann-hook"
    assert finished[0].namespace == "first"
    assert kinds == ["acquired", "renewed", "released"]
