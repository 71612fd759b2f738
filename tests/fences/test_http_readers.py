"""HTTP: readers who show their lease, what is remembered of them, and who waits for whom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
from holdfast.fences import FencingMiddleware, FileFence, HttpFence, MemoryFence, request_path
from servers import web

READER = {"Fencing-Compare": "?1"}


class App:
    """Answers as it is told; a request with `X-Slow` is told to wait, before or behind its status."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.entered, self.go_on = threading.Event(), threading.Event()

    def wait(self, slow: str, where: str) -> None:
        if slow == where:
            self.entered.set()
            assert self.go_on.wait(60)

    def wsgi(self, environ: Any, start_response: Any) -> Iterator[bytes]:
        self.seen.append(environ.get("holdfast.fencing"))
        slow = environ.get("HTTP_X_SLOW", "")
        self.wait(slow, "before")
        start_response(f"{environ.get('HTTP_X_ANSWER', '200')} Whatever", [])
        yield b"first"
        self.wait(slow, "behind")
        yield b"second"

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        from asyncio import to_thread

        self.seen.append(scope.get("holdfast.fencing"))
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        slow = headers.get("x-slow", "")
        await to_thread(self.wait, slow, "before")
        status = int(headers.get("x-answer", "200"))
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await to_thread(self.wait, slow, "behind")
        await send({"type": "http.response.body", "body": b"second"})


@pytest.fixture(params=["asgi-process", "wsgi-process", "asgi-folder", "wsgi-folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    interface, memory = request.param.split("-")
    return interface, {"fence": MemoryFence()} if memory == "process" else {"folder": tmp_path}


@contextmanager
def serving(place: Any, app: App, **options: Any) -> Iterator[httpx.Client]:
    interface, memory = place
    options.setdefault("readers", True)
    made = FencingMiddleware(getattr(app, interface), resource=request_path, **memory, **options)
    with (
        getattr(web, interface)(made) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=60) as client,
    ):
        yield client


def get(client: httpx.Client, token: int, **headers: str) -> int:
    shown = {"Fencing-Token": str(token), **READER, **headers}
    return client.get("/x", headers=shown).status_code


def put(client: httpx.Client, token: int) -> int:
    return client.put("/x", headers={"Fencing-Token": str(token)}).status_code


def test_a_reader_is_remembered_and_told_to_the_handler(place: Any) -> None:
    app = App()
    with serving(place, app) as client:
        assert put(client, 33) == 200
        assert get(client, 32) == 409
        assert get(client, 35) == 200
        assert (app.seen[-1].token, app.seen[-1].shared) == (35, True)
        assert get(client, 34) == 200  # readers do not shut each other out
        refused = client.put("/x", headers={"Fencing-Token": "34"})
        assert (refused.status_code, refused.headers["Fencing-Highest"]) == (409, "35")
        head = client.head("/x", headers={"Fencing-Token": "36", **READER})
        assert head.status_code == 200
        assert put(client, 35) == 409
        assert put(client, 36) == 200


@pytest.mark.parametrize("answer", [400, 401, 403, 405, 407, 422, 429])
def test_a_reader_who_is_refused_is_not_remembered(place: Any, answer: int) -> None:
    with serving(place, App()) as client:
        assert put(client, 33) == 200
        assert get(client, 2**63 - 1, **{"X-Answer": str(answer)}) == answer
        assert put(client, 33) == 200


@pytest.mark.parametrize("answer", [200, 206, 404, 410, 500])
def test_a_reader_who_has_read_is_remembered(place: Any, answer: int) -> None:
    """Also that there is nothing: an older writer must not make it under the reader."""
    with serving(place, App()) as client:
        assert get(client, 35, **{"X-Answer": str(answer)}) == answer
        assert put(client, 34) == 409
        assert put(client, 35) == 200


def test_a_refused_reader_takes_nothing_back_that_another_has_shown(place: Any) -> None:
    """Both show the same lease at once; one is answered 403 and the other 200."""
    app = App()
    with serving(place, app) as client:
        answers: list[int] = []

        def refused() -> None:
            answers.append(get(client, 35, **{"X-Slow": "before", "X-Answer": "403"}))

        first = threading.Thread(target=refused)
        first.start()
        assert app.entered.wait(60)
        second = threading.Thread(target=lambda: answers.append(get(client, 35)))
        second.start()
        app.go_on.set()
        first.join(60)
        second.join(60)
        assert sorted(answers) == [200, 403]
        assert put(client, 34) == 409


def test_a_reader_waits_for_the_writer_who_is_inside(place: Any) -> None:
    """It passed before the reader came, and writes; the reader reads what it has written."""
    app = App()
    with serving(place, app) as client:
        order: list[str] = []

        def write() -> None:
            shown = {"Fencing-Token": "33", "X-Slow": "before"}
            assert client.put("/x", headers=shown).status_code == 200
            order.append("written")

        def read() -> None:
            assert get(client, 34) == 200
            order.append("read")

        writer, reader = threading.Thread(target=write), threading.Thread(target=read)
        writer.start()
        assert app.entered.wait(60)
        reader.start()
        reader.join(0.1)  # long enough to come first, if it does not wait
        assert len(app.seen) == 1
        app.go_on.set()
        writer.join(60)
        reader.join(60)
        assert sorted(order) == ["read", "written"]
        assert [token.token for token in app.seen] == [33, 34]


@pytest.mark.parametrize("where", ["before", "behind"])
def test_readers_do_not_wait_for_each_other(place: Any, where: str) -> None:
    """One who has been remembered reads beside the others, and a long body keeps nobody waiting."""
    app = App()
    with serving(place, app) as client:
        assert where == "behind" or get(client, 35) == 200
        slow = threading.Thread(target=get, args=(client, 35), kwargs={"X-Slow": where})
        slow.start()
        assert app.entered.wait(60)
        assert get(client, 35) == 200
        assert get(client, 34) == 200
        assert put(client, 34) == 409
        assert put(client, 36) == 200  # the newer one is not kept waiting, either
        app.go_on.set()
        slow.join(60)


def test_where_readers_are_not_remembered_they_are_refused(place: Any) -> None:
    """Many services let strangers read: one could shut out every writer by a token that he made up."""
    with serving(place, App(), readers=False) as client:
        answer = client.get("/x", headers={"Fencing-Token": str(2**63 - 1), **READER})
        assert answer.status_code == 403
        assert "readers=True" in answer.json()["error"]
        assert client.get("/x").status_code == 200
        assert put(client, 33) == 200


def test_reads_that_show_no_readers_lease_pass(place: Any) -> None:
    app = App()
    with serving(place, app) as client:
        assert put(client, 35) == 200
        for headers in (
            {},
            READER,
            {"Fencing-Token": "33"},
            {"Fencing-Token": "what"},
            {"Fencing-Token": "33", "Fencing-Compare": "?0"},
        ):
            assert client.get("/x", headers=headers).status_code == 200, headers
        assert app.seen[1:] == [None] * 5
        for headers in (
            {"Fencing-Token": "what", **READER},
            {"Fencing-Token": "36", "Fencing-Compare": "yes"},
        ):
            assert client.get("/x", headers=headers).status_code == 400, headers
        assert client.options("/x", headers={"Fencing-Token": "36", **READER}).status_code == 200
        assert put(client, 35) == 200


def test_a_lock_for_correctness_with_readers_over_http(tmp_path: Path) -> None:
    app = App()
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    with (
        serving(("asgi", {"folder": tokens}), app) as client,
        holdfast.connect(f"sqlite://{tmp_path}/locks.db") as locks,
    ):
        fence = HttpFence()
        fence.verify(client, str(client.base_url))
        book = locks.rwlock("book", purpose="correctness", protects=fence)
        late = book.write().acquire()
        with late.guard(client):
            assert client.put("/x").status_code == 200
        late.release()
        with book.read() as reader, reader.guard(client):
            assert client.get("/x").status_code == 200
            assert client.put("/x").status_code == 403
        with late.guard(client), pytest.raises(holdfast.StaleToken) as caught:
            client.put("/x")
        assert caught.value.highest == reader.token
        with book.write() as writer, writer.guard(client):
            assert client.put("/x").status_code == 200
        with reader.guard(client), pytest.raises(holdfast.StaleToken):
            client.get("/x")
    assert FileFence().prune(tokens, 1e-9) == 1
