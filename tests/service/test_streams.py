"""Streams: events of locks, and wake-ups of those who wait without a held request."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast.service import Settings, lock_texts, watcher
from holdfast.service.app import create_app
from holdfast.service.store import Store
from service.running import Api, Sse, eventually, running

Open = Callable[..., Sse]


@pytest.fixture
def listen(api: Api) -> Iterator[Open]:
    """Returns a function that opens a stream of the service."""
    opened: list[Sse] = []

    def open_(path: str, **headers: str) -> Sse:
        stream = Sse(
            api.url + path, {key.replace("_", "-"): value for key, value in headers.items()}
        )
        opened.append(stream)
        return stream

    yield open_
    for stream in opened:
        with suppress(Exception):
            stream.close()


def test_what_happens_to_locks_is_told_in_order(api: Api, name: str, listen: Open) -> None:
    stream = listen("/v1/events")
    stream.find("ready")
    grant = api.acquire(name, label="one")
    _, first, data = stream.find("granted", name=name)
    assert data["token"] == grant["token"]
    assert data["label"]["text"] == "one"
    queued = api.lock(name, "acquire", queue=True).json()["owner"]
    stream.find("queued", name=name, owner=queued)
    api.lock(name, "release", owner=queued)
    stream.find("left", name=name, owner=queued)
    api.lock(name, "release", owner=grant["owner"])
    _, last, _ = stream.find("released", name=name, owner=grant["owner"])
    assert first != last
    assert first.partition("-")[0] == last.partition("-")[0]  # of the same process


def test_what_one_look_finds_may_be_one_event(api: Api, name: str, listen: Open) -> None:
    """And whoever comes back with its id goes on behind all of it."""
    single, stream = listen("/v1/events"), listen(f"/v1/events?together=true&prefix={name}")
    stream.find("ready")
    grant = api.acquire(name)
    other = api.acquire(f"{name}-2")
    _, _, alone = single.find("granted", name=name)
    told = eventually(lambda: len(found := pairs_in(stream, "granted")) == 2 and found)
    assert told[0] == alone
    assert [data["owner"] for data in told] == [grant["owner"], other["owner"]]
    again = listen(f"/v1/events?together=true&prefix={name}", last_event_id=stream.events[-1][1])
    api.lock(name, "release", owner=grant["owner"])
    eventually(lambda: pairs_in(again, "released"))
    assert pairs_in(again, "granted") == []


def test_a_stream_begins_with_all_locks_and_the_last_of_them_have_its_id(
    api: Api, name: str, listen: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So whoever is cut off before has no id, and begins anew."""
    monkeypatch.setattr(lock_texts, "FIRST", 2)
    monkeypatch.setattr(lock_texts, "AT_ONCE", 3)
    names = [f"{name}-{number}" for number in range(6)]
    owners = {one: api.acquire(one)["owner"] for one in names}
    waiter = api.lock(names[3], "acquire", queue=True).json()["owner"]
    streams: list[Sse] = []

    def begins_with_all() -> bool:  # and not as the store was when others listened a moment ago
        streams.append(listen(f"/v1/events?list=true&prefix={name}"))
        _, _, data = streams[-1].find("ready")
        return (data["number"], data["waiting"]) == (6, 1)

    eventually(begins_with_all)
    stream = streams[-1]
    eventually(lambda: [kind for kind, *_ in stream.events[:3]] == ["ready", "more", "more"])
    (_, first, begun), (_, second, more), (_, third, rest) = stream.events[:3]
    assert (first, second) == ("", "")
    assert [begun[key] for key in ("number", "held", "waiting")] == [6, 6, 1]
    parts = [[lock["name"] for lock in one["locks"]] for one in (begun, more, rest)]
    assert [len(part) for part in parts] == [2, 3, 1]
    assert parts[0][0] == names[3]
    assert sorted(itertools.chain(*parts)) == names
    again = listen(f"/v1/events?prefix={name}", last_event_id=third)
    granted = api.acquire(f"{name}-new")
    again.find("granted", owner=granted["owner"])
    assert not {"ready", "reset"} & {kind for kind, *_ in again.events}
    api.lock(names[3], "release", owner=waiter)
    for one, owner in {**owners, f"{name}-new": granted["owner"]}.items():
        api.lock(one, "release", owner=owner)  # others are told of it when they listen


def pairs_in(stream: Sse, kind: str) -> list[Any]:
    """Returns the data of all events of a kind that were told together with others."""
    pairs = [pair for name, _, data in stream.events if name == "events" for pair in data]
    return [data for name, data in pairs if name == kind]


def test_how_a_lease_ended_through_another_service_is_told(redis_url: str, name: str) -> None:
    with running(redis_url, look_every=0.1) as (one, _), running(redis_url) as (two, _):
        stream = Sse(f"{one.url}/v1/events")
        try:
            stream.find("ready")
            owners = {}
            for part in "ab":
                owners[part] = one.acquire(f"{name}-{part}")["owner"]
                stream.find("granted", owner=owners[part])
            two.http.delete(f"/v1/locks/{name}-a")
            stream.find("forced", owner=owners["a"])
            two.lock(f"{name}-b", "release", owner=owners["b"])
            stream.find("released", owner=owners["b"])
        finally:
            stream.close()


def test_how_a_lease_ended_is_told(api: Api, name: str, listen: Open) -> None:
    stream = listen("/v1/events")
    stream.find("ready")
    short = api.acquire(name, ttl=3.0)["owner"]  # long enough to be there at one look
    stream.find("granted", owner=short)
    stream.find("expired", owner=short)
    forced = api.acquire(f"{name}-f")["owner"]
    stream.find("granted", owner=forced)
    api.http.delete(f"/v1/locks/{name}-f")
    stream.find("forced", owner=forced)


def test_only_what_begins_with_the_prefix_is_told(api: Api, name: str, listen: Open) -> None:
    stream = listen(f"/v1/events?prefix={name}-x")
    stream.find("ready")
    api.acquire(name)
    api.acquire(f"{name}-x1")
    stream.find("granted", name=f"{name}-x1")
    assert [event[2].get("name") for event in stream.events] == [None, f"{name}-x1"]


@pytest.mark.parametrize("by_header", [True, False])
def test_who_comes_back_gets_what_was_missed(
    api: Api, name: str, listen: Open, by_header: bool
) -> None:
    keeper = listen("/v1/events")  # somebody listens all the time
    keeper.find("ready")
    api.acquire(name)
    _, cursor, _ = keeper.find("granted", name=name)
    api.acquire(f"{name}-missed")
    keeper.find("granted", name=f"{name}-missed")
    headers = {"last_event_id": cursor} if by_header else {}
    again = listen("/v1/events" if by_header else f"/v1/events?cursor={cursor}", **headers)
    again.find("granted", name=f"{name}-missed")
    assert again.events[0][2]["name"] == f"{name}-missed"


def test_an_id_that_is_not_known_leads_to_a_reset(api: Api, listen: Open) -> None:
    for cursor in ("00000000-7", "nonsense", "x-x-x"):
        stream = listen(f"/v1/events?cursor={cursor}")
        stream.find("reset")
        assert stream.events[0][0] == "reset"


def test_who_reads_too_slowly_is_dropped_with_a_word(redis_url: str, name: str) -> None:
    app = create_app(Settings(url=redis_url, look_every=0.05, events_kept=5))
    with running(redis_url, app) as (api, _):
        stream = Sse(f"{api.url}/v1/events")
        stream.find("ready")
        locks = [{"name": f"{name}-{number}"} for number in range(50)]
        api.post("/v1/acquire", {"locks": locks})
        stream.find("dropped")
        assert stream.ended.wait(20)
        stream.close()


def test_a_gap_in_the_watching_is_told(
    redis_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Store.list
    failing: list[None] = []
    app = create_app(Settings(url=redis_url, look_every=0.05))

    def list_or_fail(self: Store, prefix: str) -> Any:
        if failing and self is app.service.first_store:
            failing.pop()
            raise RuntimeError("as no store should")
        return real(self, prefix)

    monkeypatch.setattr(Store, "list", list_or_fail)
    with running(redis_url, app) as (api, _):
        stream = Sse(f"{api.url}/v1/events")
        _, cursor, _ = stream.find("ready")
        failing.append(None)
        stream.find("dropped")
        assert stream.ended.wait(20)
        stream.close()
        again = Sse(f"{api.url}/v1/events?cursor={cursor}")
        again.find("reset")
        owner = api.acquire(name)["owner"]
        again.find("granted", owner=owner)
        again.close()


def test_the_store_is_watched_only_while_somebody_listens(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "LINGER", 0.1)
    app = create_app(Settings(url=redis_url, look_every=0.05))
    looks: list[str] = []
    app.service.first_store.locks.on_call(lambda call: looks.append(call.verb))
    with running(redis_url, app) as (api, _):
        streams = [Sse(f"{api.url}/v1/events") for _ in range(20)]
        for stream in streams:
            stream.find("ready")
        before = looks.count("list")
        eventually(lambda: looks.count("list") >= before + 5)
        for stream in streams:
            stream.close()
        one = app.service.watcher(app.service.first_store)
        eventually(lambda: not len(one) and one._routine is None)
        after = looks.count("list")
        api.get("/readyz")
        assert looks.count("list") == after


def test_a_waiter_is_told_of_its_hand_over(api: Api, name: str, listen: Open) -> None:
    session = f"{api.url[-4:]}{name}"[-10:].rjust(10, "0")
    owner = f"{session}-waiter"
    stream = listen(f"/v1/wakeups?session={session}")
    stream.find("ready")
    grant = api.acquire(name)
    api.lock(name, "acquire", queue=True, owner=owner)
    api.lock(name, "release", owner=grant["owner"])
    _, _, told = stream.find("wakeup", owner=owner)
    assert told["name"] == name
    if "token" in told:
        assert told["handed"] is True
        assert told["token"] > grant["token"]
    assert api.lock(name, "renew", owner=owner, ttl=9).status_code == 200


def test_an_owner_may_name_the_session_that_is_told(api: Api, name: str, listen: Open) -> None:
    stream = listen("/v1/wakeups?session=zzzzzzzzzz")
    stream.find("ready")
    grant = api.acquire(name)
    api.lock(name, "acquire", queue=True, owner=f"own-{name}", session="zzzzzzzzzz")
    api.lock(name, "release", owner=grant["owner"])
    stream.find("wakeup", owner=f"own-{name}")


def test_an_observer_of_an_election_is_woken(api: Api, name: str, listen: Open) -> None:
    stream = listen("/v1/wakeups?session=observer00")
    stream.find("ready")
    path = f"/v1/elections/{name}/changes"
    api.get(f"{path}?owner=observer00-{name}")
    api.acquire(name, kind="election")
    stream.find("wakeup", owner=f"observer00-{name}")
    assert api.http.delete(f"{path}?owner=observer00-{name}").status_code == 200
