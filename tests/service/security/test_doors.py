"""Requests that come by way of a browser: other hosts and other origins are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.security.served import Served, make_token, problem, serve


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that answers to one more name."""
    folder: Path = tmp_path_factory.mktemp("doors")
    make_token(folder / "tokens.json")
    with serve(folder, allowed_hosts=("Locks.Example",)) as running:
        yield running


@pytest.fixture(scope="module")
def client(guarded: Served) -> Iterator[httpx.Client]:
    with guarded.as_(guarded.token("admin")) as one:
        yield one


def test_names_that_are_ours(guarded: Served, client: httpx.Client) -> None:
    port = guarded.port
    for host in (
        f"127.0.0.1:{port}",
        f"localhost:{port}",
        f"LOCALHOST:{port}",
        "localhost",
        "localhost.",
        f"[::1]:{port}",
        "locks.example",
        "locks.example:443",
        "10.1.2.3:7420",
    ):
        assert client.get("/v1/locks", headers={"host": host}).status_code == 200, host


def test_a_name_that_was_made_to_point_at_us_is_refused(
    guarded: Served, client: httpx.Client
) -> None:
    for host in (
        "evil.example",
        f"evil.example:{guarded.port}",
        "localhost.evil.example",
        "evil.example@127.0.0.1",
        "127.0.0.1@evil.example",
        "127.0.0.1.evil.example",
        "locks.example.evil",
        "sub.locks.example",
        "locks.example:x",
        "locks.example:",
        "0.0.0.0",
        "[::]",
        "0x7f.1",
        "2130706433",
        "localhost#",
        "localhost/",
        "local host",
        "",
    ):
        answer = client.get("/v1/locks", headers={"host": host})
        assert answer.status_code in (400, 421), host
        assert client.get("/", headers={"host": host}).status_code in (400, 421), host
        # Whoever probes us may call us as it likes, and learns that we work.
        if answer.status_code == 421:
            assert client.get("/healthz", headers={"host": host}).status_code == 200
        assert "evil" not in answer.text


def test_two_hosts_or_none_are_refused(guarded: Served) -> None:
    for lines in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
        head = b"GET /v1/locks HTTP/1.1\r\nConnection: close\r\n"
        assert guarded.raw(head + lines + b"\r\n").split()[1] == b"400"


OTHERS = [
    "http://evil.example",
    "https://127.0.0.1:{port}",
    "http://127.0.0.1",
    "http://127.0.0.1:3000",
    "http://localhost:{port}",
    "http://127.0.0.1:{port}.evil.example",
    "http://127.0.0.1:{port}@evil.example",
    "null",
    "",
    "http://",
    "127.0.0.1:{port}",
    "file://",
]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "HEAD"])
def test_pages_of_other_origins_are_refused(
    guarded: Served, client: httpx.Client, method: str
) -> None:
    for origin in OTHERS:
        headers = {"origin": origin.format(port=guarded.port)}
        for path in ("/v1/locks", "/v1/locks/x", "/v1/session", "/", "/openapi.json"):
            answer = client.request(method, path, headers=headers)
            assert answer.status_code == 403, (origin, path)
            assert not [name for name in answer.headers if name.startswith("access-control")]


def test_our_own_page_is_let_in(guarded: Served, client: httpx.Client) -> None:
    headers = {"origin": guarded.url, "sec-fetch-site": "same-origin"}
    assert client.get("/v1/locks", headers=headers).status_code == 200
    named = {"host": "locks.example", "origin": "http://locks.example:80"}
    assert client.get("/v1/locks", headers=named).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_other_sites_embed_is_refused(client: httpx.Client, site: str) -> None:
    for mode, dest in (("no-cors", "image"), ("no-cors", "script"), ("navigate", "iframe")):
        headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
        for path in ("/", "/v1/locks", "/v1/events", "/openapi.json"):
            assert client.get(path, headers=headers).status_code == 403
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/v1/locks", headers=link).status_code == 403
    assert client.post("/", headers=link).status_code == 403
    assert client.get("/", headers=link).status_code != 403  # a link to the page


def test_every_answer_has_its_headers(guarded: Served, client: httpx.Client) -> None:
    answers = [client.get(path) for path in ("/", "/v1/locks", "/healthz", "/nowhere")]
    answers += [
        client.get("/v1/locks", headers={"authorization": "Bearer x"}),
        client.get("/v1/locks", headers={"host": "evil.example"}),
        client.get("/v1/locks", headers={"origin": "http://evil.example"}),
        client.post("/v1/locks/x/acquire", content="{"),
        client.request("PUT", "/v1/locks"),
    ]
    for answer in answers:
        told = answer.headers
        policy = dict(
            part.strip().partition(" ")[::2] for part in told["content-security-policy"].split(";")
        )
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in told["content-security-policy"]
        assert told["x-content-type-options"] == "nosniff"
        assert told["x-frame-options"] == "DENY"
        assert told["referrer-policy"] == "no-referrer"
        assert told["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in told
    for answer in answers[1:]:
        assert answer.headers["cache-control"] == "no-store"


def test_without_tokens_no_proxy_is_served(tmp_path: Path) -> None:
    with serve(tmp_path) as open_house, open_house.as_() as client:
        assert client.get("/v1/locks").status_code == 200
        for name in ("x-forwarded-for", "forwarded", "via", "x-real-ip"):
            answer = client.get("/v1/locks", headers={name: "1.2.3.4"})
            assert answer.status_code == 403
            assert "no proxy" in problem(answer)["detail"]
        # Nor a page that a browser on this machine has open.
        headers = {"origin": "http://evil.example"}
        assert client.post("/v1/locks/x/acquire", json={}, headers=headers).status_code == 403
        assert client.get("/v1/locks", headers={"host": "evil.example"}).status_code == 421
        # With the first token, it is closed to those who have none.
        token = open_house.token("admin")
        assert client.get("/v1/locks").status_code == 401
        with open_house.as_(token) as known:
            assert known.get("/v1/locks").status_code == 200


def test_what_a_proxy_says_of_a_caller_counts_only_behind_one(tmp_path: Path) -> None:
    make_token(tmp_path / "tokens.json")
    # The bucket of an address lets ten by; another address has one of its own.
    for behind, known in ((False, 429), (True, 401)):
        options = {"behind_tls_proxy": behind, "failures_per_second": 1e-3 if behind else 0.1}
        with serve(tmp_path, **options) as running, running.as_() as client:
            statuses = [
                client.get("/v1/locks", headers={"x-forwarded-for": f"10.0.0.{i}"}).status_code
                for i in range(3)
            ]
            assert statuses[-1] == known
