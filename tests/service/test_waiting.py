"""Requests that wait: granted, given up, left, and nothing of them left behind."""

from __future__ import annotations

import json
import socket
import time
from urllib.parse import urlsplit

import pytest

from service.running import Api, Later, Sse, eventually, running


def test_a_request_waits_until_the_lock_is_free(api: Api, name: str) -> None:
    grant = api.acquire(name)
    later = api.later(name, wait=20, ttl=15)
    eventually(lambda: api.waiters(name), "a waiter")
    api.lock(name, "release", owner=grant["owner"])
    answer = later.answer()
    assert answer.status_code == 200
    granted = answer.json()
    assert granted["token"] > grant["token"]
    assert 14 < granted["remaining"] <= 15
    assert api.holders(name) == [granted["owner"]]
    assert api.state(name)["holders"][0]["remaining"] > 14  # and not for the claim window only


def test_a_wait_that_is_over_has_left_the_queue(api: Api, name: str) -> None:
    grant = api.acquire(name)
    answer = api.lock(name, "acquire", wait=0.2)
    assert answer.status_code == 409
    assert answer.json()["holders"][0]["owner"] == grant["owner"]
    assert api.waiters(name) == []


def test_waiters_come_in_the_order_of_their_arrival(api: Api, name: str) -> None:
    owner = api.acquire(name)["owner"]
    waits: list[Later] = []
    for number in range(5):
        waits.append(api.later(name, wait=25, owner=f"{name}-{number}"))
        eventually(lambda count=number + 1: len(api.waiters(name)) == count)  # type: ignore[misc]
    tokens = []
    for later in waits:
        api.lock(name, "release", owner=owner)
        granted = later.answer().json()
        owner = granted["owner"]
        tokens.append(granted["token"])
    assert tokens == sorted(tokens)


def test_a_waiter_outlives_many_heartbeats(api: Api, name: str) -> None:
    grant = api.acquire(name, ttl=60)
    later = api.later(name, wait=25)
    eventually(lambda: api.waiters(name))
    time.sleep(6)  # longer than a place is kept without a heartbeat
    assert len(api.waiters(name)) == 1
    api.lock(name, "release", owner=grant["owner"])
    assert later.answer().status_code == 200


def test_a_waiter_gets_the_lock_when_a_lease_runs_out(api: Api, name: str) -> None:
    api.acquire(name, ttl=0.5)
    answer = api.lock(name, "acquire", wait=20)
    assert answer.status_code == 200
    assert answer.json()["waited"] < 10


def asking(api: Api, name: str, body: bytes) -> socket.socket:
    """Returns a connection on which a lock was asked for."""
    where = urlsplit(api.url)
    assert where.hostname is not None
    connection = socket.create_connection((where.hostname, where.port or 80))
    head = (
        f"POST /v1/locks/{name}/acquire HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    )
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def test_a_client_that_goes_away_leaves_no_ghost(api: Api, name: str) -> None:
    for round_ in range(5):
        grant = api.acquire(name)
        connection = asking(api, name, b'{"wait": 60}')
        eventually(lambda: api.waiters(name), "a waiter")
        connection.close()
        eventually(lambda: not api.waiters(name), f"an empty queue in round {round_}")
        assert api.holders(name) == [grant["owner"]]
        api.lock(name, "release", owner=grant["owner"])


def test_a_client_that_goes_away_in_the_moment_of_the_grant(api: Api, name: str) -> None:
    for _ in range(10):
        grant = api.acquire(name)
        connection = asking(api, name, b'{"wait": 60, "ttl": 60}')
        eventually(lambda: api.waiters(name), "a waiter")
        connection.close()
        api.lock(name, "release", owner=grant["owner"])
        # Nobody has it for long: what was granted to the client that is gone is handed on.
        later = api.lock(name, "acquire", wait=20)
        assert later.status_code == 200
        assert later.json()["waited"] < 5
        api.lock(name, "release", owner=later.json()["owner"])
    eventually(lambda: not api.holders(name))


def test_two_requests_for_the_same_owner_are_one_attempt(api: Api, name: str) -> None:
    grant = api.acquire(name)
    lost = asking(api, name, f'{{"wait": 60, "owner": "{name}-same"}}'.encode())
    eventually(lambda: api.waiters(name))
    assert api.app is not None
    waiter = api.app.service.first_store.waits._waiters[f"{name}-same"]
    later = api.later(name, wait=20, owner=f"{name}-same")
    eventually(lambda: waiter._interested == 2, "the second request has joined the first")
    lost.close()
    eventually(lambda: waiter._interested == 1, "the first client is gone")
    assert api.waiters(name) == [f"{name}-same"]
    api.lock(name, "release", owner=grant["owner"])
    assert later.answer().json()["owner"] == f"{name}-same"
    assert api.holders(name) == [f"{name}-same"]


def test_each_of_two_requests_for_the_same_owner_waits_for_its_own_time(
    api: Api, name: str
) -> None:
    holder = api.acquire(name)["owner"]
    owner = f"{name}-same"
    first = api.later(name, wait=3, owner=owner)
    eventually(lambda: api.waiters(name) == [owner])
    second = api.later(name, wait=25, owner=owner)
    third = api.later(name, wait=0.5, owner=owner)
    assert first.answer().status_code == third.answer().status_code == 409
    assert api.waiters(name) == [owner]  # it goes on for the second
    api.lock(name, "release", owner=holder)
    assert second.answer().json()["owner"] == owner
    assert api.holders(name) == [owner]
    assert api.app is not None
    assert api.app.service.waiting == 0


def test_nothing_is_left_when_all_requests_for_an_owner_are_over(api: Api, name: str) -> None:
    api.acquire(name)
    owner = f"{name}-same"
    waits = [api.later(name, wait=wait, owner=owner) for wait in (0.3, 0.6, 0.6, 0.9)]
    assert [wait.answer().status_code for wait in waits] == [409] * 4
    assert api.waiters(name) == []
    assert api.app is not None
    assert api.app.service.waiting == 0


def test_the_same_owner_cannot_wait_for_something_else(api: Api, name: str) -> None:
    grant = api.acquire(name)
    later = api.later(name, wait=20, owner=f"{name}-o")
    eventually(lambda: api.waiters(name))
    other = api.lock(name, "acquire", wait=5, owner=f"{name}-o", capacity=2)
    assert other.status_code == 422
    api.lock(name, "release", owner=grant["owner"])
    assert later.answer().status_code == 200


@pytest.mark.parametrize("count", [300])
def test_many_requests_wait_at_once(api: Api, name: str, count: int) -> None:
    grant = api.acquire(name)
    connections = [asking(api, name, b'{"wait": 60, "ttl": 30}') for _ in range(count)]
    eventually(lambda: len(api.waiters(name)) == count, "all in the queue")
    for connection in connections:
        connection.close()
    eventually(lambda: not api.waiters(name), "an empty queue")
    assert api.holders(name) == [grant["owner"]]


def test_two_services_on_one_store_are_one(redis_url: str, name: str) -> None:
    with running(redis_url) as (one, _), running(redis_url) as (two, _):
        grant = one.acquire(name)
        assert two.lock(name, "acquire").status_code == 409
        assert two.lock(name, "renew", owner=grant["owner"], ttl=20).status_code == 200
        later = two.later(name, wait=20)
        eventually(lambda: one.waiters(name))
        assert one.lock(name, "release", owner=grant["owner"]).status_code == 200
        granted = later.answer().json()
        assert one.lock(name, "renew", owner=granted["owner"], ttl=20).status_code == 200
        queued = one.lock(name, "acquire", queue=True).json()
        assert two.lock(name, "renew", owner=queued["owner"], ttl=20).status_code == 202
        assert one.lock(name, "release", owner=granted["owner"]).status_code == 200
        assert two.lock(name, "renew", owner=queued["owner"], ttl=20).status_code == 200


def test_an_attempt_that_was_given_up_is_refused_by_the_other_service_too(
    redis_url: str, name: str
) -> None:
    """What the first one still releases must not be what the second one has granted."""
    with running(redis_url) as (one, _), running(redis_url) as (two, _):
        holder = one.acquire(name)["owner"]
        owner = f"{name}-cut"
        connection = asking(one, name, f'{{"wait": 60, "owner": "{owner}"}}'.encode())
        eventually(lambda: two.waiters(name) == [owner])
        connection.close()
        eventually(lambda: two.waiters(name) == [])
        assert one.lock(name, "release", owner=holder).status_code == 200
        for api in (one, two):
            assert api.lock(name, "acquire", owner=owner).status_code == 410
            assert api.lock(name, "acquire", owner=owner, wait=5).status_code == 410
        assert two.holders(name) == []


@pytest.mark.parametrize("wait", [0, 5])
def test_what_is_answered_as_granted_is_held_though_a_wait_of_its_owner_was_cut(
    api: Api, name: str, wait: int
) -> None:
    """Stands for a client that lost its connection while it waited, and asks again at once."""
    for number in range(10):
        _cut_and_ask_again(api, f"{name}-{number}", f"{name}-{number}", wait)


def _cut_and_ask_again(api: Api, lock: str, owner: str, wait: int) -> None:
    holder = api.acquire(lock)["owner"]
    port = int(api.url.rpartition(":")[2])
    body = json.dumps({"owner": owner, "wait": 20})
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            f"POST /v1/locks/{lock}/acquire HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        eventually(lambda: api.waiters(lock) == [owner])
    again = api.later(lock, owner=owner, wait=wait)
    api.lock(lock, "release", owner=holder)
    answer = again.answer()
    assert answer.status_code in (200, 409, 410), answer.text
    if answer.status_code == 200:
        assert api.lock(lock, "renew", owner=owner, ttl=30).status_code == 200
        assert api.lock(lock, "release", owner=owner).status_code == 200
    eventually(lambda: not api.holders(lock) and not api.waiters(lock))


@pytest.mark.parametrize("field", ["wait", "ttl", "delay"])
def test_a_number_beyond_all_bounds_is_refused(api: Api, name: str, field: str) -> None:
    body = f'{{"{field}": {"9" * 400}}}'
    headers = {"content-type": "application/json"}
    answer = api.http.post(f"/v1/locks/{name}/acquire", content=body, headers=headers)
    assert answer.status_code == 422, answer.text


def test_one_owner_id_at_two_locks_is_two_waiters(redis_url: str, name: str) -> None:
    """Whatever becomes of one of them, the other is woken, keeps its place, and ends in time."""
    with running(redis_url) as (api, app):
        locks = [f"{name}-{number}" for number in range(3)]
        owner = f"{name}-same"
        holders = {lock: api.acquire(lock)["owner"] for lock in locks}
        soon = api.later(locks[0], wait=4, owner=owner)
        eventually(lambda: api.waiters(locks[0]) == [owner])
        others = [api.later(lock, wait=25, owner=owner) for lock in locks[1:]]
        for lock in locks[1:]:
            eventually(lambda lock=lock: api.waiters(lock) == [owner])  # type: ignore[misc]
        assert soon.answer().status_code == 409  # in its own time
        assert api.waiters(locks[0]) == []
        api.lock(locks[1], "release", owner=holders[locks[1]])
        granted = others[0].answer()
        assert granted.json()["name"] == locks[1]
        assert api.holders(locks[1]) == [owner]
        assert api.waiters(locks[2]) == [owner]
        assert api.lock(locks[1], "release", owner=owner).status_code == 200
        api.lock(locks[2], "release", owner=holders[locks[2]])
        assert others[1].answer().json()["name"] == locks[2]
        assert app.service.waiting == 0


def test_a_wake_up_is_that_of_its_own_lock(redis_url: str, name: str) -> None:
    """The store's wake-ups name no lock: what one is granted, the other must not take for its own."""
    with running(redis_url) as (api, _):
        session = f"{name}-listener"
        locks = [f"{name}-{number}" for number in range(2)]
        owner = f"{name}-same"
        holders = {lock: api.acquire(lock)["owner"] for lock in locks}
        stream = Sse(f"{api.url}/v1/wakeups?session={session}")
        try:
            stream.find("ready")
            for lock in (*locks, locks[0]):  # the first asks again, as if its answer had been lost
                place = api.lock(lock, "acquire", queue=True, owner=owner, session=session)
                assert place.status_code == 202
            api.lock(locks[1], "release", owner=holders[locks[1]])
            stream.find("wakeup", owner=owner, name=locks[1])
            assert api.lock(locks[1], "renew", owner=owner, ttl=30).status_code == 200
            assert api.lock(locks[0], "renew", owner=owner, ttl=30).status_code == 202
            api.lock(locks[0], "release", owner=holders[locks[0]])
            stream.find("wakeup", owner=owner, name=locks[0])
            for kind, _, told in stream.events:
                if kind == "wakeup" and "token" in told:
                    assert told["token"] == api.state(told["name"])["token"], stream.events
        finally:
            stream.close()


def test_an_owner_id_in_use_for_very_many_locks_is_refused(redis_url: str, name: str) -> None:
    with running(redis_url) as (api, _):
        owner = f"{name}-same"
        statuses = []
        for number in range(10):
            api.acquire(f"{name}-{number}")
            answer = api.lock(f"{name}-{number}", "acquire", queue=True, owner=owner)
            statuses.append(answer.status_code)
        assert statuses == [202] * 8 + [422] * 2
        released = api.lock(f"{name}-9", "release", owner=owner)
        assert released.status_code == 410
        assert api.lock(f"{name}-0", "release", owner=owner).status_code == 410  # out of the queue
        again = api.lock(f"{name}-9", "acquire", queue=True, owner=owner)
        assert again.status_code == 202
