"""What goes on by itself: events, wake-ups, deadlocks and fences tell nothing that is not covered."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import httpx
import pytest

from holdfast.service.hidden_numbers import HiddenNumbers
from holdfast.service.security import token_file
from service.running import eventually
from service.security.served import LIMIT, Served, make_token, serve


class Stream:
    """A stream of events, read by a thread."""

    def __init__(self, client: httpx.Client, path: str) -> None:
        self._client = client
        self._path = path
        self.heard: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.ids: list[str] = []
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        name = ""
        try:
            with self._client.stream("GET", self._path) as answer:
                assert answer.status_code == 200, answer.read()
                for line in answer.iter_lines():
                    key, _, value = line.partition(": ")
                    if key == "event":
                        name = value
                    elif key == "id":
                        self.ids.append(value)
                    elif key == "data":
                        self.heard.put((name, json.loads(value)))
        except (httpx.HTTPError, OSError):
            pass
        finally:
            self.ended.set()

    def expect(self, kind: str) -> Any:
        """Returns the data of the next event, which has to be of that kind."""
        found = self.heard.get(timeout=LIMIT)
        assert found[0] == kind, found
        return found[1]

    def join(self) -> None:
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()


@contextmanager
def listening(served: Served, token: str, path: str) -> Iterator[Stream]:
    """Listens until the end of the block, which cuts the connection."""
    with served.as_(token) as client:
        stream = Stream(client, path)
        try:
            yield stream
        finally:
            served.cut_streams()
            stream.join()


@pytest.fixture(scope="module")
def brisk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that looks at its locks often."""
    folder = tmp_path_factory.mktemp("streams")
    make_token(folder / "tokens.json")
    with serve(folder, look_every=0.05) as running:
        yield running


def acquire(client: httpx.Client, name: str, **body: Any) -> httpx.Response:
    return client.post(f"/v1/locks/{name}/acquire", json=body)


def test_events_of_others_are_not_heard(brisk: Served) -> None:
    admin = brisk.token("admin")
    with (
        brisk.as_(admin) as client,
        listening(brisk, brisk.token("read", "mine:"), "/v1/events") as mine,
        listening(brisk, brisk.token("read", "mine:"), "/v1/events?prefix=theirs:") as nothing,
        listening(brisk, admin, "/v1/events") as everything,
    ):
        for stream in (mine, nothing, everything):
            stream.expect("ready")
        acquire(client, "theirs:1", owner="e-1")
        assert everything.expect("granted")["name"] == "theirs:1"
        acquire(client, "mine:1", owner="e-2")
        assert everything.expect("granted")["name"] == "mine:1"
        # The first that is heard of is the second that happened.
        assert mine.expect("granted")["name"] == "mine:1"
        assert nothing.heard.empty()
        # And nobody can count what it does not hear.
        numbers = [int(one.partition("-")[2], 16) for one in everything.ids]
        assert all(abs(a - b) > 1000 for a, b in pairwise(numbers))


def test_a_cursor_of_another_does_not_open_more(brisk: Served) -> None:
    admin = brisk.token("admin")
    with brisk.as_(admin) as client, listening(brisk, admin, "/v1/events") as everything:
        everything.expect("ready")
        acquire(client, "theirs:2", owner="c-1")
        everything.expect("granted")
        path = f"/v1/events?cursor={everything.ids[0]}"
        with listening(brisk, brisk.token("read", "mine:"), path) as mine:
            acquire(client, "mine:2", owner="c-2")
            assert mine.expect("granted")["name"] == "mine:2"


def test_hidden_numbers_come_back() -> None:
    numbers = HiddenNumbers()
    some = [*range(1000), 2**32, 2**64 - 1]
    texts = [numbers.hide(one) for one in some]
    assert len(set(texts)) == len(some)
    assert [numbers.reveal(one) for one in texts] == some
    for text in ("", "1", "x" * 16, "0" * 17, "A" * 16, "٣" * 16):
        assert numbers.reveal(text) is None


def test_wakeups_of_a_session_are_for_its_token(brisk: Served) -> None:
    session = "sessionAAA"
    token, thief = brisk.token("hold", "w:"), brisk.token("hold", "w:")
    with (
        brisk.as_(token) as client,
        brisk.as_(thief) as other,
        listening(brisk, token, f"/v1/wakeups?session={session}") as own,
        listening(brisk, thief, f"/v1/wakeups?session={session}") as stolen,
    ):
        own.expect("ready")
        stolen.expect("ready")
        assert acquire(client, "w:1", owner=f"{session}0").status_code == 200
        assert acquire(client, "w:1", owner=f"{session}1", queue=True).status_code == 202
        # One who uses the same session id with another token has another session.
        assert acquire(other, "w:2", owner=f"{session}2").status_code == 200
        assert acquire(other, "w:2", owner=f"{session}3", queue=True).status_code == 202
        client.post("/v1/locks/w:1/release", json={"owner": f"{session}0"})
        assert own.expect("wakeup")["owner"] == f"{session}1"
        other.post("/v1/locks/w:2/release", json={"owner": f"{session}2"})
        assert stolen.expect("wakeup")["owner"] == f"{session}3"
        assert own.heard.empty()
        assert stolen.heard.empty()


def test_a_wakeup_cannot_be_ordered_for_another_session(brisk: Served) -> None:
    token, thief = brisk.token("hold", "x:"), brisk.token("hold", "x:")
    with (
        brisk.as_(thief) as other,
        listening(brisk, token, "/v1/wakeups?session=victim") as own,
        listening(brisk, thief, "/v1/wakeups?session=victim") as theirs,
    ):
        own.expect("ready")
        theirs.expect("ready")
        assert acquire(other, "x:1", owner="a").status_code == 200
        assert acquire(other, "x:1", owner="b", queue=True, session="victim").status_code == 202
        other.post("/v1/locks/x:1/release", json={"owner": "a"})
        theirs.expect("wakeup")
        assert own.heard.empty()


def test_a_token_that_is_revoked_ends_its_streams_and_waits(brisk: Served) -> None:
    token = brisk.token("hold", "r:")
    with brisk.as_(brisk.token("admin")) as admin, brisk.as_(token) as client:
        assert acquire(admin, "r:1", owner="r-0").status_code == 200
        ends: list[object] = []

        def wait() -> None:
            try:
                ends.append(acquire(client, "r:1", owner="r-1", wait=600))
            except httpx.HTTPError as error:
                ends.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        with listening(brisk, token, "/v1/events") as stream:
            stream.expect("ready")
            eventually(lambda: admin.get("/v1/locks/r:1").json()["waiters"], "it waits")
            token_file.remove(str(brisk.token_file), [token.split("_")[1]])
            assert stream.ended.wait(LIMIT)
        thread.join(LIMIT)
        assert isinstance(ends[0], httpx.HTTPError)
        # It has left the queue: nothing is granted to it later.
        eventually(lambda: not admin.get("/v1/locks/r:1").json()["waiters"], "it has left")


def test_deadlocks_that_pass_through_what_is_not_covered_are_not_shown(brisk: Served) -> None:
    with brisk.as_(brisk.token("admin")) as admin:
        for name, owner in (("dead:1", "partyAAAAA1"), ("ly:2", "partyBBBBB1")):
            label = {"host": owner[:10], "pid": 1}
            assert acquire(admin, name, owner=owner, ttl=600, label=label).status_code == 200
        for name, owner in (("ly:2", "partyAAAAA2"), ("dead:1", "partyBBBBB2")):
            label = {"host": owner[:10], "pid": 1}
            answer = acquire(admin, name, owner=owner, ttl=600, queue=True, label=label)
            assert answer.status_code == 202
        (found,) = admin.get("/v1/deadlocks").json()["deadlocks"]
        assert {step["name"] for step in found["cycle"]} == {"dead:1", "ly:2"}
    with brisk.as_(brisk.token("read", "dead:")) as client:
        assert client.get("/v1/deadlocks").json() == {"deadlocks": []}
    with brisk.as_(brisk.token("read", "dead:", "ly:")) as client:
        assert len(client.get("/v1/deadlocks").json()["deadlocks"]) == 1


def test_fences(brisk: Served) -> None:
    with brisk.as_(brisk.token("hold")) as all_names:
        path = "/v1/fences/{}/check"
        for resource in ("mine:row", "theirs:row"):
            body = {"token": 100, "lock": "theirs:lock"}
            assert all_names.post(path.format(resource), json=body).status_code == 200
        with brisk.as_(brisk.token("hold", "mine:")) as client:
            for resource in ("theirs:row", "theirs:nothing"):
                answer = client.post(path.format(resource), json={"token": 1})
                assert answer.status_code == 403
                assert "100" not in answer.text
            # The resource is covered, the lock that it belongs to is not: it is not named.
            body = {"token": 101, "lock": "mine:lock"}
            answer = client.post(path.format("mine:row"), json=body)
            assert answer.status_code == 409
            assert "theirs" not in answer.text
            body = {"token": 101, "lock": "theirs:lock"}
            assert client.post(path.format("mine:row"), json=body).status_code == 403
        with brisk.as_(brisk.token("read", "mine:")) as client:
            assert client.post(path.format("mine:row"), json={"token": 101}).status_code == 403


def test_elections(brisk: Served) -> None:
    with brisk.as_(brisk.token("admin")) as admin:
        assert acquire(admin, "lead:1", owner="l-1", kind="election").status_code == 200
        path = "/v1/elections/lead:1/changes"
        assert admin.get(path).json()["changes"]
        with brisk.as_(brisk.token("read", "mine:")) as client:
            for name in ("lead:1", "lead:none"):
                assert client.get(f"/v1/elections/{name}/changes").status_code == 403
                assert client.get(f"/v1/elections/{name}/changes?wait=9").status_code == 403


def test_the_doctor_is_for_those_who_see_all(brisk: Served) -> None:
    with brisk.as_(brisk.token("admin", "mine:")) as client:
        assert client.get("/v1/doctor").status_code == 403
    with brisk.as_(brisk.token("read")) as client:
        assert client.get("/v1/doctor").status_code == 200


def test_namespaces_are_not_listed_for_everybody(served: Served) -> None:
    with served.as_() as client:
        assert "billing" not in client.get("/openapi.json").text
