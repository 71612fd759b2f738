"""Logging in to the page: a cookie that scripts cannot read and other pages cannot use."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path

import httpx
import pytest

from holdfast.service.security import session_key, token_file
from holdfast.service.security.badge import Badge
from holdfast.service.security.bearer import parse
from holdfast.service.security.logged_out import LoggedOut
from holdfast.service.security.roster import Roster
from holdfast.service.security.sessions import LIFETIME, Sessions
from service.security.served import Served, make_token, problem, serve

SESSION = "/v1/session"


def log_in(served: Served, token: str, **headers: str) -> httpx.Response:
    with served.as_(headers=headers) as client:
        return client.post(SESSION, json={"token": token})


def cookie_of(answer: httpx.Response) -> tuple[str, str]:
    """Returns the name and the value of the cookie that an answer sets."""
    assert answer.status_code == 200, answer.text
    ((name, morsel),) = SimpleCookie(answer.headers["set-cookie"]).items()
    return name, morsel.value


@pytest.fixture
def page(served: Served) -> Iterator[httpx.Client]:
    """Our page in a browser, logged in as an admin of `page:`."""
    name, value = cookie_of(log_in(served, served.token("admin", "page:")))
    headers = {"cookie": f"{name}={value}", "origin": served.url, "holdfast-request": "1"}
    with served.as_(headers=headers) as client:
        yield client


def test_a_session_is_as_good_as_its_token(page: httpx.Client) -> None:
    me = page.get("/v1/me").json()
    assert (me["role"], me["prefixes"], me["session"]) == ("admin", ["page:"], True)
    assert page.get("/v1/locks").status_code == 200
    assert page.get("/v1/locks/other").status_code == 403
    granted = page.post("/v1/locks/page:1/acquire", json={"owner": "p-1"})
    assert granted.status_code == 200
    assert page.delete("/v1/locks/page:1").json()["released"] is True


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(served: Served) -> None:
    token = served.token("read")
    answer = log_in(served, token)
    shown = answer.headers["set-cookie"]
    parts = [part.strip().lower() for part in shown.split(";")[1:]]
    assert {"httponly", "samesite=strict", "path=/"} <= set(parts)
    assert not [part for part in parts if part.startswith("domain")]
    assert token[20:] not in shown + answer.text
    badge = parse(token)
    assert badge is not None
    assert badge.digest not in shown


def test_what_changes_something_needs_more_than_the_cookie(
    served: Served, page: httpx.Client
) -> None:
    """A page of another origin can make a browser send the cookie at the most."""
    cookie = page.headers["cookie"]
    custom, own = {"holdfast-request": "1"}, {"origin": served.url}
    for headers in ({}, custom, own, {"sec-fetch-site": "same-origin"}):
        with served.as_(headers={"cookie": cookie, **headers}) as client:
            answer = client.post("/v1/locks/page:2/acquire", json={})
            assert answer.status_code == 403, headers
            assert client.delete("/v1/locks/page:2").status_code == 403
            assert client.delete(SESSION).status_code == 403
            assert client.get("/v1/locks").status_code == 200
    for headers in ({**custom, **own}, {**custom, "sec-fetch-site": "same-origin"}):
        with served.as_(headers={"cookie": cookie, **headers}) as client:
            assert client.post("/v1/locks/page:2/acquire", json={}).status_code in (200, 409)
    with served.as_(
        headers={"cookie": cookie, **custom, "origin": "http://evil.example"}
    ) as client:
        assert client.delete("/v1/locks/page:2").status_code == 403


def test_each_log_in_makes_another_session(served: Served) -> None:
    token = served.token("read")
    name, first = cookie_of(log_in(served, token))
    # A browser that has a session already, prepared by somebody else perhaps, gets a new one; and the
    # one before is over.
    again, second = cookie_of(log_in(served, token, cookie=f"{name}={first}"))
    assert (again, first) != (name, second)
    for value, status in ((first, 401), (second, 200)):
        with served.as_(headers={"cookie": f"{name}={value}"}) as client:
            assert client.get("/v1/me").status_code == status
    # A cookie that we did not make is not taken over.
    chosen = log_in(served, token, cookie=f"{name}=chosen-by-somebody-else")
    assert cookie_of(chosen)[1] != "chosen-by-somebody-else"


def test_log_out(served: Served, page: httpx.Client) -> None:
    answer = page.delete(SESSION)
    assert answer.status_code == 200
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    # Somebody may have kept the cookie: it is over, in a service beside this one too.
    assert page.get("/v1/me").status_code == 401
    assert page.delete(SESSION).status_code == 200
    roster = Roster(str(served.token_file))
    key = session_key.ensure(str(served.token_file))
    beside = Sessions(key, roster, LoggedOut(str(served.token_file)), False)
    assert beside.find(page.headers["cookie"]) is None


def test_a_session_ends_with_its_token(served: Served) -> None:
    token = served.token("read")
    name, value = cookie_of(log_in(served, token))
    with served.as_(headers={"cookie": f"{name}={value}"}) as client:
        assert client.get("/v1/me").status_code == 200
        token_file.remove(str(served.token_file), [token.split("_")[1]])
        assert client.get("/v1/me").status_code == 401


def test_cookies_that_we_did_not_sign(served: Served) -> None:
    name, value = cookie_of(log_in(served, served.token("read")))
    other = cookie_of(log_in(served, served.token("admin")))[1]
    token_id, ends, number, signature = value.split(".")
    forged = [
        f"{other.split('.')[0]}.{ends}.{number}.{signature}",
        f"{token_id}.{int(ends) + 9999}.{number}.{signature}",
        f"{token_id}.{ends}.{'0' * 32}.{signature}",
        f"{token_id}.{ends}.{number}.{'0' * 64}",
        f"{token_id}.{ends}.{number}.",
        f"{token_id}.{ends}.{number}",
        f"{value}0",
        f" {value} x",
        "",
        "%00",
        "." * 2000,
        value.upper(),
    ]
    for one in forged:
        with served.as_(headers={"cookie": f"{name}={one}"}) as client:
            assert client.get("/v1/me").status_code == 401, one
    # Two of that name: one was put there by another service of the same host.
    for pair in (f"{name}={value}; {name}={other}", f"{name}=x; {name}={value}"):
        with served.as_(headers={"cookie": pair}) as client:
            assert client.get("/v1/me").status_code == 401
    with served.as_(headers={"cookie": f"a=b; {name}={value}; c"}) as client:
        assert client.get("/v1/me").status_code == 200


def test_a_token_goes_before_a_cookie(served: Served, page: httpx.Client) -> None:
    headers = {"authorization": "Bearer wrong"}
    assert page.get("/v1/me", headers=headers).status_code == 401
    headers = {"authorization": f"Bearer {served.token('read', 'other:')}"}
    assert page.get("/v1/me", headers=headers).json()["prefixes"] == ["other:"]


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        ('{"token": "TOKEN"}', "text/plain", 415),
        ("token=TOKEN", "application/x-www-form-urlencoded", 415),
        ('{"token": "TOKEN", "more": 1}', "application/json", 422),
        ('{"token": ["TOKEN"]}', "application/json", 422),
        ('["TOKEN"]', "application/json", 422),
        ('{"token": "TOKEN"', "application/json", 400),
        ("[" * 1000, "application/json", 400),
        ('{"token": "TOKEN", "x": "' + "y" * 2000 + '"}', "application/json", 413),
        ('{"token": "TOKENx"}', "application/json", 401),
        ('{"token": ""}', "application/json", 401),
        ('{"token": "x", "token": "TOKEN"}', "application/json", 400),
    ],
)
def test_log_ins_that_are_refused(
    served: Served, body: str, content_type: str, status: int
) -> None:
    token = served.token("admin")
    with served.as_() as client:
        answer = client.post(
            SESSION, content=body.replace("TOKEN", token), headers={"content-type": content_type}
        )
        assert answer.status_code == status
        assert "set-cookie" not in answer.headers
        assert token[20:] not in answer.text
        problem(answer)


def test_a_log_in_from_another_page_is_refused(served: Served) -> None:
    """Nobody is logged in to a session of somebody else by following a link."""
    answer = log_in(served, served.token("read"), origin="http://evil.example")
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    with served.as_() as client:
        token = served.token("read")
        assert client.get(SESSION, params={"token": token}).status_code == 405
        assert client.post(f"{SESSION}?token={token}", json={}).status_code == 422


def test_log_ins_of_one_token_are_counted(served: Served) -> None:
    body = {"token": served.token("read")}
    with served.as_() as client:
        statuses = [client.post(SESSION, json=body).status_code for _ in range(60)]
    assert statuses[:20] == [200] * 20
    assert 429 in statuses


def test_a_service_that_starts_again_knows_its_sessions(tmp_path: Path) -> None:
    token = make_token(tmp_path / "tokens.json", "read")
    with serve(tmp_path) as first:
        name, value = cookie_of(log_in(first, token))
    headers = {"cookie": f"{name}={value}"}
    with serve(tmp_path) as second, second.as_(headers=headers) as client:
        assert client.get("/v1/me").status_code == 200
    # With another key there is another cookie, and no session.
    Path(session_key.path_beside(str(tmp_path / "tokens.json"))).unlink()
    with serve(tmp_path) as third, third.as_(headers=headers) as client:
        assert client.get("/v1/me").status_code == 401


def test_without_tokens_nobody_need_log_in(tmp_path: Path) -> None:
    with serve(tmp_path) as open_house:
        answer = log_in(open_house, "anything")
        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers
        assert answer.json()["caller"] == "anybody"
    assert not (tmp_path / "session.key").exists()


def sessions_at(folder: Path, now: list[float], secure: bool) -> tuple[Sessions, Badge]:
    text = make_token(folder / "tokens.json", expires=now[0] + 2 * LIFETIME)
    roster = Roster(str(folder / "tokens.json"), lambda: now[0])
    badge = roster.recognise(text)
    assert badge is not None
    logged_out = LoggedOut(str(folder / "tokens.json"), lambda: now[0])
    return Sessions(bytes(32), roster, logged_out, secure, lambda: now[0]), badge


def test_a_session_ends_by_itself(tmp_path: Path) -> None:
    now = [time.time()]
    sessions, badge = sessions_at(tmp_path, now, secure=False)
    cookie = sessions.begin(badge).partition(";")[0]
    now[0] += LIFETIME - 2
    assert sessions.find(cookie) is not None
    later = sessions.begin(badge).partition(";")[0]
    now[0] += 2
    assert sessions.find(cookie) is None
    assert sessions.find(later) is not None
    now[0] += LIFETIME  # and a session never lasts longer than its token
    assert sessions.find(later) is None


def test_under_tls_the_cookie_is_for_tls_and_this_host_alone(tmp_path: Path) -> None:
    now = [time.time()]
    sessions, badge = sessions_at(tmp_path, now, secure=True)
    header = sessions.begin(badge)
    assert header.startswith("__Host-")
    assert header.endswith("; Secure")


def test_what_was_logged_out_is_forgotten_in_the_end(tmp_path: Path) -> None:
    now = [1000.0]
    path = str(tmp_path / "tokens.json")
    logged_out = LoggedOut(path, lambda: now[0])
    logged_out.add("a", 2000.0)
    assert "a" in LoggedOut(path, lambda: now[0])
    now[0] = 2000.0
    logged_out.add("b", 3000.0)
    assert list(json.loads((tmp_path / "logged-out.json").read_text())) == ["b"]
    # Where it cannot be written, the service itself still knows.
    (tmp_path / "file").touch()
    alone = LoggedOut(str(tmp_path / "file" / "tokens.json"), lambda: now[0])
    alone.add("c", 3000.0)
    assert "c" in alone
