"""HTTP: headers that come twice, clients inside clients, redirects, and secrets in addresses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

import holdfast
from fences.scenes import StoreLease
from holdfast.fences import (
    FencingMiddleware,
    HttpFence,
    MemoryFence,
    fenced,
    fencing_headers,
    raise_for_stale,
    request_path,
    verify_fenced,
)
from holdfast.fences.http import read_headers
from holdfast.model import lock_realm
from servers import web


def wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("204 No Content", [])
    return [b""]


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture(params=["asgi", "wsgi"])
def interface(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@contextmanager
def serving(interface: str, **options: Any) -> Iterator[str]:
    app = asgi if interface == "asgi" else wsgi
    options.setdefault("fence", MemoryFence())
    made = FencingMiddleware(app, resource=request_path, **options)
    with getattr(web, interface)(made) as url:
        yield url


def status(url: str, path: str, *headers: str) -> int:
    """Returns the response to a PUT with these very headers, as no client library would send them."""
    host, port = url.removeprefix("http://").split(":")
    lines = [f"PUT {path} HTTP/1.1", f"Host: {host}", "Content-Length: 0", "Connection: close"]
    with socket.create_connection((host, int(port)), 20) as sock:
        sock.sendall("\r\n".join([*lines, *headers, "", ""]).encode("latin-1"))
        return int(sock.makefile("rb").readline().split()[1])


def test_a_header_that_comes_twice_is_refused(interface: str) -> None:
    fence = MemoryFence()
    with serving(interface, fence=fence) as url:
        for twice in (
            ("Fencing-Token: 33", "Fencing-Token: 35"),
            ("Fencing-Token: 35", "fencing-token: 35"),
            ("Fencing-Token: 35, 36",),
            ("Fencing-Token: " + "9" * 5000,),
            ("Fencing-Token: 35", "Fencing-Lock: redis:a/b", "Fencing-Lock: redis:a/c"),
            ("Fencing-Token: 35", "Fencing-Compare: ?0", "Fencing-Compare: ?1"),
        ):
            assert status(url, "/x", *twice) == 400, twice
        assert fence.highest("/x") == 0
        assert status(url, "/x", "Fencing-Token: 34", "X-Other: a", "X-Other: b") == 204


def test_every_method_that_may_change_something_is_checked(interface: str) -> None:
    with serving(interface) as url, httpx.Client(base_url=url, trust_env=False) as client:
        for method in ("PUT", "POST", "PATCH", "DELETE", "PURGE"):
            shown = {"Fencing-Token": "34"}
            assert client.request(method, "/x", headers=shown).status_code == 204
            assert client.request(method, "/x").status_code == 428
            late = client.request(method, "/x", headers={"Fencing-Token": "33"})
            assert late.status_code == 409
        for method in ("GET", "HEAD", "OPTIONS", "TRACE"):
            assert client.request(method, "/x").status_code == 204


def test_what_is_no_comparison_is_refused(interface: str) -> None:
    with serving(interface) as url:
        for word, expected in (("?1", 403), ("?0", 204), ("1", 400), ("true", 400)):
            headers = ("Fencing-Token: 34", f"Fencing-Compare: {word}")
            assert status(url, "/x", *headers) == expected, word


def test_a_lease_inside_another_is_shown_alone(interface: str) -> None:
    """A writer inside a reader must not be taken for a reader, nor a number for the other's lock."""
    fence = MemoryFence()
    with (
        serving(interface, fence=fence) as url,
        holdfast.connect("memory://") as locks,
        requests.Session() as session,
        httpx.Client(trust_env=False) as client,
    ):
        reader = locks.rwlock("book").read().acquire()
        writer = locks.lock("page").acquire()
        clients: list[Any] = [session, client]
        for number, one in enumerate(clients):
            path = f"/x{number}"
            with fenced(one, reader):
                with fenced(one, writer):
                    assert one.put(url + path).status_code == 204
                assert fence.highest(path) == writer.token
                with fenced(one, writer.token + 1):
                    assert one.put(url + path).status_code == 204
                assert one.put(url + path).status_code == 403  # the reader's again


def test_outside_of_fenced_a_refusal_is_only_an_answer(interface: str) -> None:
    with (
        serving(interface) as url,
        requests.Session() as session,
        httpx.Client(trust_env=False) as client,
    ):
        clients: list[Any] = [session, client]
        for one in clients:
            with fenced(one, 34):
                one.put(f"{url}/x")
            assert one.put(f"{url}/x", headers=fencing_headers(33)).status_code == 409
            assert one.put(f"{url}/x").status_code == 428


def test_a_lock_of_any_name_is_shown_and_named_in_the_refusal(interface: str) -> None:
    with serving(interface) as url, holdfast.connect("memory://", namespace="a, b/c") as locks:
        lock = locks.lock("счёт, 42/%20#1")
        late = lock.acquire()
        late.release()
        with requests.Session() as session, lock as lease:
            with fenced(session, lease):
                assert session.put(f"{url}/x").status_code == 204
            with fenced(session, late), pytest.raises(holdfast.StaleToken) as caught:
                session.put(f"{url}/x")
            assert caught.value.name == "счёт, 42/%20#1"


def test_a_probe_is_answered_by_its_own_number() -> None:
    def parrot(environ: Any, start_response: Any) -> list[bytes]:
        start_response("204 No Content", [("Fencing-Probe", "1234567890abcdef")])
        return [b""]

    with web.wsgi(parrot) as url, pytest.raises(holdfast.GuaranteeError, match="no Fencing"):
        verify_fenced(httpx, url)


def test_a_redirect_loses_nothing(interface: str) -> None:
    """To another server, too: a token is no secret, and without it the fence there would refuse."""
    fence = MemoryFence()
    with serving(interface, fence=fence) as there:

        def elsewhere(environ: Any, start_response: Any) -> list[bytes]:
            location = there.replace("127.0.0.1", "localhost") + "/x"
            start_response("307 Temporary Redirect", [("Location", location)])
            return [b""]

        with (
            web.wsgi(elsewhere) as here,
            requests.Session() as session,
            httpx.Client(trust_env=False, follow_redirects=True) as client,
        ):
            session.trust_env = False
            for token, one in ((34, session), (35, client)):
                with fenced(one, token):
                    assert one.put(here).status_code == 204
                assert fence.highest("/x") == token
                with fenced(one, 33), pytest.raises(holdfast.StaleToken):
                    one.put(here)


@pytest.mark.parametrize("library", ["httpx", "requests"])
def test_no_error_has_a_password(interface: str, library: str) -> None:
    with serving(interface) as url:
        secret = url.replace("http://", "http://ada:hunter2@") + "/x?key=hunter3"
        client: Any = {"httpx": httpx, "requests": requests}[library]
        client.put(secret, headers=fencing_headers(34))
        refused = client.put(secret, headers=fencing_headers(33))
        with pytest.raises(holdfast.StaleToken) as caught:
            raise_for_stale(refused)
        assert caught.value.resource == f"{url}/x"
        assert "hunter" not in f"{caught.value} {caught.value!r} {caught.value.__dict__}"
    with getattr(web, interface)(asgi if interface == "asgi" else wsgi) as url:
        secret = url.replace("http://", "http://ada:hunter2@") + "/x?key=hunter3"
        with pytest.raises(holdfast.GuaranteeError) as found:
            verify_fenced(client, secret)
    assert "hunter" not in str(found.value)


def test_paths_that_are_no_text_are_not_taken_for_one_another() -> None:
    with serving("wsgi") as url:
        assert status(url, "/%FE", "Fencing-Token: 34") == 204
        assert status(url, "/%FF", "Fencing-Token: 33") == 204
        assert status(url, "/%FE", "Fencing-Token: 33") == 409


async def test_a_resource_that_is_no_name_is_refused_and_not_let_in() -> None:
    passed = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope)

    nameless: Any = lambda scope: None  # noqa: E731
    middleware: Any = FencingMiddleware(app, MemoryFence(), resource=nameless)
    scope = {"type": "http", "method": "PUT", "path": "/", "headers": [(b"fencing-token", b"3")]}
    with pytest.raises(holdfast.ConfigError, match="resource must answer a str, not NoneType"):
        await middleware(scope, None, None)
    assert passed == []


def test_a_folder_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(holdfast.ConfigError, match="no such folder"):
        FencingMiddleware(wsgi, folder=tmp_path / "missing", resource=request_path)


async def test_a_lock_for_correctness_over_http(interface: str, tmp_path: Path) -> None:
    """`protects=` takes this for a service: its clients' side of the fence."""
    fence = HttpFence()
    memory = MemoryFence()
    with (
        serving(interface, fence=memory) as url,
        holdfast.connect(f"sqlite://{tmp_path}/locks.db") as locks,
        httpx.Client(trust_env=False) as client,
    ):
        fence.verify(client, url, shared=False)
        lock = locks.lock("x", purpose="correctness", protects=fence)
        late = lock.acquire()
        late.release()
        with lock as lease, lease.guard(client):
            assert client.put(f"{url}/x").status_code == 204
        with pytest.raises(holdfast.StaleToken), late.guard(client):
            client.put(f"{url}/x")
        answer = client.put(f"{url}/x", headers=lease.guard.headers())
        assert answer.status_code == 204
        assert memory.highest("/x") == lease.token
        async with httpx.AsyncClient(trust_env=False) as other:
            await fence.verify(other, url, shared=False)
            with lease.guard(other):
                assert (await other.put(f"{url}/x")).status_code == 204


def test_the_longest_lock_that_there_can_be_is_taken() -> None:
    lease = StoreLease("redis", 34)
    lease.lock_id = f"{lock_realm('redis', 'é' * 512)}#99999/{'é' * 512}"
    headers = {name.lower(): value for name, value in fencing_headers(lease).items()}
    shown = read_headers(headers)
    assert shown is not None
    assert shown.lock_id == lease.lock_id
