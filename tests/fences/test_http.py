"""HTTP: what is answered, who overtakes whom, and the client's side."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

import holdfast
from holdfast.fences import (
    FencingMiddleware,
    MemoryFence,
    SqlFence,
    fenced,
    fencing_headers,
    raise_for_stale,
    request_path,
    verify_fenced,
)
from servers import web


class App:
    """Takes everything, in both interfaces; a PUT to /slow waits until it is let go."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.entered, self.go_on = threading.Event(), threading.Event()

    def wsgi(self, environ: Any, start_response: Any) -> list[bytes]:
        path = environ["PATH_INFO"]
        if path == "/slow" and environ["HTTP_FENCING_TOKEN"] == "33":
            self.entered.set()
            assert self.go_on.wait(20)
        self.log.append((environ["REQUEST_METHOD"], environ.get("HTTP_FENCING_TOKEN", "")))
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"done"]

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        from asyncio import to_thread

        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["path"] == "/slow" and headers["fencing-token"] == "33":
            self.entered.set()
            assert await to_thread(self.go_on.wait, 20)
        self.log.append((scope["method"], headers.get("fencing-token", "")))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


@pytest.fixture(params=["asgi", "wsgi"])
def interface(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@contextmanager
def serving(interface: str, app: App, **options: Any) -> Iterator[str]:
    if "folder" not in options:
        options.setdefault("fence", MemoryFence())
    options.setdefault("resource", request_path)
    made = FencingMiddleware(getattr(app, interface), **options)
    with getattr(web, interface)(made) as url:
        yield url


def test_what_is_answered(interface: str) -> None:
    app = App()
    with serving(interface, app) as url, httpx.Client(base_url=url, trust_env=False) as client:
        assert client.put("/x", headers={"Fencing-Token": "34"}).text == "done"
        refused = client.put("/x", headers={"fencing-token": "33"})
        assert refused.status_code == 409
        assert refused.headers["Fencing-Highest"] == "34"
        assert refused.headers["Content-Type"] == "application/json"
        assert refused.json() == {
            "error": "the fencing token was refused",
            "detail": refused.json()["detail"],
            "resource": "/x",
            "token": 33,
            "highest": 34,
            "reason": "stale",
        }
        assert client.put("/y", headers={"Fencing-Token": "1"}).status_code == 200
        assert client.get("/x").text == "done"  # changes nothing
        missing = client.post("/x")
        assert missing.status_code == 428
        assert "Fencing-Token" in missing.json()["error"]
        for bad in ("", "x", "-1", "0", "1.5", "9" * 30, "\u0669"):
            answer = client.put("/x", headers={b"Fencing-Token": bad.encode()})
            assert answer.status_code == 400, bad
            assert "error" in answer.json()
        assert client.put("/x", headers={"Fencing-Token": "34"}).status_code == 200
    assert app.log == [("PUT", "34"), ("PUT", "1"), ("GET", ""), ("PUT", "34")]


def test_a_token_may_be_left_out_where_that_is_allowed(interface: str) -> None:
    app = App()
    with serving(interface, app, required=False) as url:
        assert httpx.put(f"{url}/x", trust_env=False).status_code == 200
        assert (
            httpx.put(f"{url}/x", headers={"Fencing-Token": "3"}, trust_env=False).status_code
            == 200
        )
        assert (
            httpx.put(f"{url}/x", headers={"Fencing-Token": "2"}, trust_env=False).status_code
            == 409
        )


def test_who_passed_is_not_overtaken(interface: str) -> None:
    """33 is let in and is slow; 34 comes; 33 may not write after it."""
    app = App()
    fence = MemoryFence()
    with serving(interface, app, fence=fence) as url:
        answers: dict[str, int] = {}

        def put(token: str) -> None:
            headers = {"Fencing-Token": token}
            response = httpx.put(f"{url}/slow", headers=headers, timeout=30, trust_env=False)
            answers[token] = response.status_code

        slow = threading.Thread(target=put, args=("33",))
        slow.start()
        assert app.entered.wait(20)
        late = threading.Thread(target=put, args=("34",))
        late.start()
        # Until it waits for its turn; or has come through, which it must not.
        while late.is_alive() and not app.log and not fence._turns.waiting("/slow"):
            late.join(0.001)
        assert app.log == []
        app.go_on.set()
        slow.join(20)
        late.join(20)
        assert answers == {"33": 200, "34": 200}
        assert app.log == [("PUT", "33"), ("PUT", "34")]
        put("33")
        assert answers["33"] == 409


def test_the_resource_is_what_you_say(interface: str) -> None:
    app = App()
    fence = MemoryFence()
    with serving(interface, app, fence=fence, resource=lambda request: "the account") as url:
        for path, token, status in (("/a", "34", 200), ("/b", "33", 409)):
            headers = {"Fencing-Token": token}
            answer = httpx.put(url + path, headers=headers, trust_env=False)
            assert answer.status_code == status
    assert fence.highest("the account") == 34


def test_paths_of_any_kind_are_resources(interface: str) -> None:
    app = App()
    with serving(interface, app) as url, httpx.Client(base_url=url, trust_env=False) as client:
        for path in ("/" + "x" * 3000, "/%00%0a", "/é", "/%FF"):
            assert client.put(path, headers={"Fencing-Token": "34"}).status_code == 200
            assert client.put(path, headers={"Fencing-Token": "33"}).status_code == 409


def test_clients_add_the_header_and_hear_the_refusal(interface: str) -> None:
    with holdfast.connect("memory://") as locks, serving(interface, App()) as url:
        first = locks.lock("x").acquire()
        first.release()
        lease = locks.lock("x").acquire()
        other = locks.lock("y").acquire()
        with requests.Session() as session, httpx.Client(trust_env=False) as client:
            for one in (session, client):
                with fenced(one, lease):
                    assert one.put(f"{url}/x").status_code == 200
                with fenced(one, first), pytest.raises(holdfast.StaleToken) as caught:
                    one.put(f"{url}/x")
                error = caught.value
                assert (error.token, error.highest) == (first.token, lease.token)
                assert (error.name, error.reason) == ("x", "stale")
                assert error.resource == f"{url}/x"
                with fenced(one, other), pytest.raises(holdfast.StaleToken, match="belongs to"):
                    one.put(f"{url}/x")
                assert one.put(f"{url}/x").status_code == 428  # outside nothing is added
        response = httpx.put(f"{url}/x", headers=fencing_headers(first), trust_env=False)
        with pytest.raises(holdfast.StaleToken):
            raise_for_stale(response)
        raise_for_stale(httpx.put(f"{url}/x", headers=fencing_headers(lease), trust_env=False))


async def test_an_asynchronous_client(tmp_path: Path) -> None:
    app: Any = FencingMiddleware(App().asgi, folder=tmp_path, resource=request_path)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        await verify_fenced(client, "/x")
        with fenced(client, 34):
            assert (await client.put("/x")).status_code == 200
        with fenced(client, 33), pytest.raises(holdfast.StaleToken, match="34"):
            await client.put("/x")


def test_is_there_a_fence_at_all(interface: str, tmp_path: Path) -> None:
    app = App()
    with serving(interface, app, folder=tmp_path) as url:
        for client in (requests, httpx):
            verify_fenced(client, f"{url}/x")
    assert app.log == []
    with (
        getattr(web, interface)(getattr(app, interface)) as url,
        pytest.raises(holdfast.GuaranteeError, match="no FencingMiddleware answered"),
    ):
        verify_fenced(httpx, f"{url}/x")


def test_a_conflict_of_somebody_elses_is_left_alone() -> None:
    request = httpx.Request("PUT", "http://x")
    raise_for_stale(httpx.Response(409, request=request))
    raise_for_stale(httpx.Response(409, headers={"Fencing-Highest": "no"}, request=request))


def test_the_handler_gives_what_was_shown_to_its_database(tmp_path: Path) -> None:
    """A service on several machines has one database, where they meet."""
    database = sqlite3.connect(tmp_path / "app.db", check_same_thread=False)
    fence = SqlFence(database)

    database.execute("CREATE TABLE paid (who)")
    database.commit()

    def app(environ: Any, start_response: Any) -> list[bytes]:
        try:
            fence.guard(database, "account", environ["holdfast.fencing"])
            database.execute("INSERT INTO paid VALUES ('somebody')")
            if environ["PATH_INFO"] == "/crash":
                raise ZeroDivisionError
            database.commit()
            start_response("204 No Content", [])
        except holdfast.StaleToken:
            database.rollback()
            start_response("409 Conflict", [])
        except ZeroDivisionError:
            database.rollback()
            raise
        return [b""]

    def paid() -> int:
        found: int = database.execute("SELECT count(*) FROM paid").fetchone()[0]
        return found

    # Two machines, each with a memory of its own.
    one, two = (FencingMiddleware(app, MemoryFence(), resource=request_path) for _ in range(2))
    with web.wsgi(one) as first, web.wsgi(two) as second, holdfast.connect("memory://") as locks:
        old = locks.lock("x").acquire()
        old.release()
        lease = locks.lock("x").acquire()
        with requests.Session() as session:
            with fenced(session, lease):
                assert session.put(first).status_code == 204
            with fenced(session, old):
                assert session.put(second).status_code == 409
            with fenced(session, locks.lock("y").acquire()):
                assert session.put(f"{second}/other").status_code == 409
            assert (paid(), fence.highest(database, "account")) == (1, lease.token)
            # A crash between its check and its write leaves neither.
            lease.release()
            newest = locks.lock("x").acquire()
            with fenced(session, newest):
                assert session.put(f"{first}/crash").status_code == 500
            assert (paid(), fence.highest(database, "account")) == (1, lease.token)
            with fenced(session, newest):
                assert session.put(f"{second}/again").status_code == 204
            assert (paid(), fence.highest(database, "account")) == (2, newest.token)
    database.close()


async def test_what_is_not_http_passes() -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    middleware: Any = FencingMiddleware(app, MemoryFence(), resource=request_path)
    for kind in ("lifespan", "websocket"):
        await middleware({"type": kind}, None, None)
    assert seen == ["lifespan", "websocket"]


def test_wrong_parts_are_refused(tmp_path: Path) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("one of the two", {"resource": request_path}),
        ("one of the two", {"resource": request_path, "fence": MemoryFence(), "folder": tmp_path}),
        ("must be a MemoryFence", {"resource": request_path, "fence": SqlFence()}),
        ("single_use", {"resource": request_path, "fence": MemoryFence(), "single_use": True}),
        ("what a request writes to", {"folder": tmp_path}),
        ("most must be", {"resource": request_path, "folder": tmp_path, "most": 0}),
    ]
    for message, options in wrong:
        for app in (App().wsgi, App().asgi):
            with pytest.raises(holdfast.ConfigError, match=message):
                FencingMiddleware(app, **options)
    with pytest.raises(holdfast.ConfigError, match="httpx"), fenced(object(), 1):
        pass
