"""Whoever may only look at an election disturbs nobody who waits, whatever id it gives itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from service.running import Later, Sse, eventually
from service.security.served import LIMIT, Served, serve

LOCK = "/v1/locks/boss"
CHANGES = "/v1/elections/boss/changes"
ELECTION = {"kind": "election", "ttl": 3600}
SESSION = "candidates"
SLOW = "heartbeat=60"
"""The query of clients that ask of themselves so seldom that a wake-up must have told them."""


class Scene:
    """A leader, and a caller with a token that lets it read."""

    def __init__(self, served: Served, stack: ExitStack) -> None:
        self.served = served
        self.token = served.token("hold")
        self.holder = stack.enter_context(served.as_(self.token))
        self.reader = stack.enter_context(served.as_(served.token("read")))
        self._stack = stack
        taken = self.holder.post(f"{LOCK}/acquire?{SLOW}", json={**ELECTION, "owner": "leader"})
        assert taken.status_code == 200

    def listen(self, client: httpx.Client) -> Sse:
        """Returns the wake-ups of the session, as that client hears them."""
        headers = {"authorization": client.headers["authorization"]}
        stream = Sse(f"{self.served.url}/v1/wakeups?session={SESSION}&{SLOW}", headers)
        self._stack.callback(stream.close)
        stream.find("ready")
        return stream

    def look(self, client: httpx.Client, owner: str) -> None:
        params = {"owner": owner, "session": SESSION, "heartbeat": "60"}
        assert client.get(CHANGES, params=params).status_code == 200

    def look_no_more(self, client: httpx.Client, owner: str) -> None:
        params = {"owner": owner, "heartbeat": "60"}
        assert client.delete(CHANGES, params=params).status_code == 200

    def queue(self, owner: str) -> None:
        body = {**ELECTION, "owner": owner, "queue": True, "session": SESSION}
        assert self.holder.post(f"{LOCK}/acquire?{SLOW}", json=body).status_code == 202

    def resign(self) -> None:
        released = self.holder.post(f"{LOCK}/release?{SLOW}", json={"owner": "leader"})
        assert released.status_code == 200


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with serve(tmp_path) as served, ExitStack() as stack:
        yield Scene(served, stack)


def test_one_who_queues_is_woken_though_another_observes_by_its_id(scene: Scene) -> None:
    mine, theirs = scene.listen(scene.holder), scene.listen(scene.reader)
    scene.queue("candidate")
    scene.look(scene.reader, "candidate")
    scene.resign()
    mine.find("wakeup", owner="candidate", name="boss", state="held")
    theirs.find("wakeup", owner="candidate", name="boss")
    assert all("token" not in told for _, _, told in theirs.events)


def test_one_who_queues_is_woken_though_another_says_that_it_has_gone(scene: Scene) -> None:
    mine = scene.listen(scene.holder)
    scene.queue("candidate")
    scene.look_no_more(scene.reader, "candidate")
    scene.resign()
    mine.find("wakeup", owner="candidate", name="boss", state="held")


@pytest.mark.parametrize("gone", [False, True])
def test_a_held_request_is_woken_though_another_observes_by_its_id(
    scene: Scene, gone: bool
) -> None:
    body = {**ELECTION, "owner": "candidate", "wait": 20}
    headers = {"authorization": f"Bearer {scene.token}"}
    url = f"{scene.served.url}{LOCK}/acquire?{SLOW}"
    later = Later(lambda: httpx.post(url, json=body, headers=headers, timeout=LIMIT))
    eventually(lambda: scene.holder.get(LOCK).json()["waiters"])
    scene.look(scene.reader, "candidate")
    if gone:
        scene.look_no_more(scene.reader, "candidate")
    scene.resign()
    answer = later.answer()
    assert answer.status_code == 200, answer.text
    assert answer.json()["owner"] == "candidate"


def test_two_callers_observe_by_one_id_and_each_ends_its_own(scene: Scene) -> None:
    mine, theirs = scene.listen(scene.holder), scene.listen(scene.reader)
    for client in (scene.holder, scene.reader):
        scene.look(client, "observer")
    scene.resign()
    for stream in (mine, theirs):
        stream.find("wakeup", owner="observer", name="boss")
    scene.look_no_more(scene.reader, "observer")
    before = len(mine.events), len(theirs.events)
    again = scene.holder.post(f"{LOCK}/acquire?{SLOW}", json={**ELECTION, "owner": "next"})
    assert again.status_code == 200
    eventually(lambda: len(mine.events) > before[0])
    assert len(theirs.events) == before[1]
