"""The fence as a service: the same that `holdfast fence check` asks."""

from __future__ import annotations

import time

import httpx

from holdfast.chaos.servers.redis import RedisServer
from service.running import LIMIT, Api, Later, eventually, running


def check(api: Api, resource: str, **body: object) -> tuple[int, dict[str, object]]:
    answer = api.post(f"/v1/fences/{resource}/check", body)
    return answer.status_code, answer.json()


def test_an_older_token_is_refused_with_the_highest(api: Api, name: str) -> None:
    assert check(api, name, token=7) == (200, {"highest": 7})
    assert check(api, name, token=7) == (200, {"highest": 7})
    status, problem = check(api, name, token=6)
    assert status == 409
    assert problem["highest"] == 7
    assert problem["type"] == "/problems/stale-token"
    assert check(api, name, token=8)[0] == 200


def test_the_token_of_a_lease(api: Api, name: str) -> None:
    first = api.acquire(name)
    assert check(api, name, token=first["token"], lock=name)[0] == 200
    api.lock(name, "release", owner=first["owner"])
    second = api.acquire(name)
    assert check(api, name, token=second["token"], lock=name)[0] == 200
    assert check(api, name, token=first["token"], lock=name)[0] == 409


def test_tokens_of_another_lock_do_not_compare(api: Api, name: str) -> None:
    grant = api.acquire(name)
    assert check(api, name, token=grant["token"], lock=name)[0] == 200
    status, problem = check(api, name, token=grant["token"] + 1, lock=f"{name}-other")
    assert status == 409
    assert problem["reason"] == "other-lock"


def test_a_resource_may_be_any_text(api: Api) -> None:
    assert check(api, "~" + b"s3://bucket/key".hex(), token=3)[0] == 200
    assert check(api, "s3%3A%2F%2Fbucket%2Fkey", token=2)[0] == 409


def test_each_slot_of_a_semaphore_is_a_lock_of_its_own(api: Api, name: str) -> None:
    assert check(api, name, token=11, lock=name, slot=0)[0] == 200
    status, problem = check(api, name, token=12, lock=name, slot=1)
    assert (status, problem["reason"]) == (409, "other-lock")
    assert check(api, name, token=12, lock=name)[0] == 409
    assert check(api, f"{name}-1", token=10, lock=name, slot=1)[0] == 200
    assert check(api, name, token=12, lock=name, slot=0)[0] == 200
    assert check(api, name, token=11, lock=name, slot=0)[0] == 409
    assert check(api, name, token=13, slot=0)[0] == 422


def test_readers_do_not_shut_each_other_out(api: Api, name: str) -> None:
    assert check(api, name, token=10, lock=name)[0] == 200
    assert check(api, name, token=12, lock=name, reads=True)[0] == 200
    assert check(api, name, token=11, lock=name, reads=True)[0] == 200
    assert check(api, name, token=11, lock=name)[0] == 409  # under a reader who still holds
    assert check(api, name, token=9, lock=name, reads=True)[0] == 409
    assert check(api, name, token=13, lock=name)[0] == 200
    assert check(api, f"{name}-bare", token=12, reads=True)[0] == 200
    assert check(api, f"{name}-bare", token=11)[0] == 409


def test_a_silent_store_costs_its_patience_however_many_ask(name: str) -> None:
    server = RedisServer()
    try:
        with running(server.url, patience=1.0) as (api, _):
            server.pause()
            began = time.monotonic()
            path = f"{api.url}/v1/fences/{name}/check"
            checks = [
                Later(lambda: httpx.post(path, json={"token": 1}, timeout=LIMIT)) for _ in range(24)
            ]
            answers = [one.answer() for one in checks]
            assert time.monotonic() - began < 20  # and not ten seconds for each eight of them
            assert {one.json()["type"] for one in answers} == {"/problems/unavailable"}
            server.resume()

            def passes() -> bool:
                return check(api, name, token=1)[0] == 200

            eventually(passes)
    finally:
        server.resume()
        server.stop()
