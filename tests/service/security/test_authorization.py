"""Nobody is let in without a good token, and a token opens what it covers and nothing else."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.chaos.servers.ports import free_port
from holdfast.service.security import token_file
from service.security.served import Served, make_token, problem, serve

SECRET = "of:others"
"""A lock that the callers of these tests do not cover."""


def acquire(client: httpx.Client, name: str, **body: Any) -> httpx.Response:
    return client.post(f"/v1/locks/{name}/acquire", json=body)


def test_without_a_token_nothing_is_told(served: Served) -> None:
    with served.as_() as client:
        for method, path in (
            ("GET", "/v1/locks"),
            ("GET", "/v1/locks/x"),
            ("POST", "/v1/locks/x/acquire"),
            ("DELETE", "/v1/locks/x"),
            ("POST", "/v1/renew"),
        ):
            answer = client.request(method, path)
            assert answer.status_code == 401, path
            assert problem(answer)["type"] == "/problems/unauthorized"
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert client.get("/healthz").status_code == 200


def test_without_a_token_it_is_not_told_where_the_store_is(tmp_path: Path) -> None:
    port = free_port()
    make_token(tmp_path / "tokens.json")
    with serve(tmp_path, url=f"redis://127.0.0.1:{port}/0", patience=1.0) as running:
        with running.as_(running.token()) as client:
            answer = client.get("/v1/locks/x")
            assert answer.status_code == 503
            assert str(port) in answer.text
        with running.as_() as client:
            answer = client.get("/readyz")
            assert problem(answer)["type"] == "/problems/unavailable"
            assert str(port) not in answer.text


def test_a_good_token_lets_in(served: Served) -> None:
    with served.as_(served.token("hold", "mine:")) as client:
        granted = acquire(client, "mine:1", owner="a-1")
        assert granted.status_code == 200
        assert client.get("/v1/locks/mine:1").json()["holders"][0]["owner"] == "a-1"
        assert client.post("/v1/locks/mine:1/release", json={"owner": "a-1"}).status_code == 200


def test_every_other_header_is_refused_in_the_same_words(served: Served) -> None:
    """Near misses of a good token, and noise."""
    good = served.token("admin")
    revoked = served.token("admin")
    token_file.remove(str(served.token_file), [revoked.split("_")[1]])
    expired = served.token("admin", expires=time.time() - 1)
    stranger = served.token("admin")
    swapped = f"{good[:20]}{stranger[20:]}"
    chance = random.Random(20)
    noise = ["".join(chr(chance.randrange(33, 126)) for _ in range(69)) for _ in range(50)]
    near = [good[:at] + chance.choice("abcXYZ09") + good[at + 1 :] for at in range(0, 69, 3)]
    near = [one for one in near if one != good]
    shown = [
        *(f"Bearer {one}" for one in (revoked, expired, swapped, *near, *noise)),
        *(f"Bearer {good}x", f"Bearer {good[:-1]}", f"Bearer  x {good}", f"Bearer {good} {good}"),
        *("Bearer", "Bearer ", good, f"Basic {good}", f"Bearer,{good}", f"Bearer\t{good}", " "),
        f'Bearer "{good}"',
        f"Bearer {good.swapcase()}",
        "Bearer " + "holdfast_" * 900,
    ]
    told = {answer_to(served, f"Authorization: {value}") for value in ["", *shown]}
    told.add(answer_to(served, "X-Authorization: none"))
    assert [status for status, _ in told] == [401]
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert answer_to(served, f"Authorization: {scheme} {good}")[0] == 200


def answer_to(served: Served, *lines: str) -> tuple[int, bytes]:
    """Returns the status and the body of the answer to a request with these headers."""
    head = ["GET /v1/locks HTTP/1.1", "Host: localhost", "Connection: close", *lines]
    answer = served.raw("\r\n".join([*head, "", ""]).encode("latin-1"))
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


def test_two_tokens_at_once_are_none(served: Served) -> None:
    line = f"Authorization: Bearer {served.token('admin')}"
    assert answer_to(served, line)[0] == 200
    assert answer_to(served, line, line)[0] == 401
    assert answer_to(served, line, "Authorization: Bearer x")[0] == 401


def test_a_token_in_the_address_is_none(served: Served) -> None:
    good = served.token("admin")
    with served.as_() as client:
        for name in ("token", "access_token", "authorization"):
            assert client.get("/v1/locks", params={name: good}).status_code == 401


def test_a_revoked_token_is_refused_by_the_next_request(served: Served) -> None:
    text = served.token("hold")
    with served.as_(text) as client:
        assert client.get("/v1/locks").status_code == 200
        token_file.remove(str(served.token_file), [text.split("_")[1]])
        assert client.get("/v1/locks").status_code == 401


VERBS: dict[str, dict[str, Any]] = {
    "acquire": {"owner": "thief"},
    "renew": {"owner": "owner-1", "ttl": 60},
    "release": {"owner": "owner-1"},
    "amend": {"owner": "owner-1", "text": "mine"},
    "detach": {"owner": "owner-1", "ttl": 60},
    "adopt": {"owner": "thief", "giver": "owner-1"},
}


@pytest.fixture(scope="module")
def held(served: Served) -> str:
    """A lock that is held by the owner `owner-1`, which the callers below do not cover."""
    with served.as_(served.token("admin")) as client:
        answer = acquire(client, SECRET, owner="owner-1", ttl=600)
        assert answer.status_code == 200
        return str(answer.json()["token"])


def same_for_both(client: httpx.Client, method: str, path: str, **options: Any) -> dict[str, Any]:
    """Asks for the lock that is there, and for one that is not; returns the one answer to both."""
    answers = []
    for name in (SECRET, "of:nobody"):
        answer = client.request(method, path.format(name=name), **options)
        told = problem(answer)
        told = {key: str(value).replace(name, "NAME") for key, value in told.items()}
        headers = {
            key: value
            for key, value in answer.headers.items()
            if key not in ("date", "content-length")
        }
        answers.append((told, headers))
    assert answers[0] == answers[1]
    return answers[0][0]


@pytest.mark.parametrize("role", ["hold", "admin"])
@pytest.mark.parametrize("verb", list(VERBS))
def test_owner_ids_of_others_open_nothing(served: Served, held: str, role: str, verb: str) -> None:
    with served.as_(served.token(role, "mine:")) as client:
        path = f"/v1/locks/{{name}}/{verb}"
        assert same_for_both(client, "POST", path, json=VERBS[verb])["status"] == "403"
    with served.as_(served.token("admin")) as client:
        (holder,) = client.get(f"/v1/locks/{SECRET}").json()["holders"]
        assert (holder["owner"], str(holder["token"])) == ("owner-1", held)
        assert holder["remaining"] > 60


def test_what_is_not_covered_is_not_seen(served: Served, held: str) -> None:
    with served.as_(served.token("admin", "mine:")) as client:
        assert same_for_both(client, "GET", "/v1/locks/{name}")["status"] == "403"
        assert same_for_both(client, "DELETE", "/v1/locks/{name}")["status"] == "403"
        for prefix in ("", "of:", "of:others", "o", "mine:"):
            answer = client.get("/v1/locks", params={"prefix": prefix})
            assert answer.json()["locks"] == []
            assert "next" not in answer.json()


def test_batches_are_refused_as_a_whole(served: Served, held: str) -> None:
    with served.as_(served.token("hold", "mine:")) as client:
        mine = {"name": "mine:batch", "owner": "b-1"}
        theirs = {"name": SECRET, "owner": "owner-1"}
        for path, field, more in (
            ("/v1/acquire", "locks", {}),
            ("/v1/renew", "claims", {"ttl": 30}),
            ("/v1/release", "locks", {}),
        ):
            body = {field: [{**mine, **more}, {**theirs, **more}]}
            assert client.post(path, json=body).status_code == 403
        assert client.get("/v1/locks/mine:batch").json()["holders"] == []


def test_waiting_for_what_is_not_covered_begins_no_wait(served: Served, held: str) -> None:
    with served.as_(served.token("hold", "mine:")) as client:
        assert acquire(client, SECRET, wait=30, owner="thief").status_code == 403
        assert acquire(client, SECRET, queue=True, owner="thief").status_code == 403
    with served.as_(served.token("read")) as client:
        assert client.get(f"/v1/locks/{SECRET}").json()["waiters"] == []


@pytest.mark.parametrize("spelling", ["of%3Aothers", "~6f663a6f7468657273", "%6ff%3aothers"])
def test_another_spelling_is_the_same_name(served: Served, held: str, spelling: str) -> None:
    with served.as_(served.token("admin", "mine:")) as client:
        assert client.get(f"/v1/locks/{spelling}").status_code == 403
    with served.as_(served.token("read", "of:")) as client:
        assert client.get(f"/v1/locks/{spelling}").json()["name"] == SECRET


@pytest.mark.parametrize("path", ["mine:/../of:others", "mine:%2F..%2Fof:others", "./of:others"])
def test_dots_lead_nowhere(served: Served, held: str, path: str) -> None:
    token = served.token("admin", "mine:").encode()
    answer = served.raw(
        f"GET /v1/locks/{path} HTTP/1.1\r\n".encode()
        + b"Host: localhost\r\nConnection: close\r\nAuthorization: Bearer "
        + token
        + b"\r\n\r\n"
    )
    assert b"owner-1" not in answer
    assert answer.split()[1] in (b"200", b"403", b"404")


def test_roles(served: Served) -> None:
    name = "roles:1"
    with served.as_(served.token("read", "roles:")) as client:
        assert client.get(f"/v1/locks/{name}").status_code == 200
        assert acquire(client, name).status_code == 403
        assert client.delete(f"/v1/locks/{name}").status_code == 403
        assert client.post("/v1/renew", json={"claims": []}).status_code in (403, 422)
    with served.as_(served.token("hold", "roles:")) as client:
        assert acquire(client, name, owner="r-1").status_code == 200
        assert client.delete(f"/v1/locks/{name}").status_code == 403
    with served.as_(served.token("metrics", "roles:")) as client:
        assert client.get(f"/v1/locks/{name}").status_code == 404
        assert client.get("/v1/locks").status_code == 404
    with served.as_(served.token("admin", "roles:")) as client:
        assert client.delete(f"/v1/locks/{name}").json()["released"] is True


@pytest.mark.parametrize(
    ("role", "prefix", "status"),
    [
        ("metrics", "roles:", 200),
        ("metrics", "", 200),
        ("admin", "", 200),
        ("admin", "roles:", 403),
        ("hold", "", 403),
        ("read", "", 403),
    ],
)
def test_who_may_read_metrics(served: Served, role: str, prefix: str, status: int) -> None:
    with served.as_(served.token(role, prefix)) as client:
        assert client.get("/metrics").status_code == status


def test_metrics_want_a_token(served: Served) -> None:
    with served.as_(None) as client:
        answer = client.get("/metrics")
        assert answer.status_code == 401
        assert "holdfast_attempts" not in answer.text


def test_several_prefixes_some_inside_others(served: Served) -> None:
    with served.as_(served.token("hold", "p:a", "p:ab", "q:")) as client:
        for name in ("p:a1", "p:ab1", "q:1"):
            assert acquire(client, name, owner=f"o-{name[:3].replace(':', '.')}").status_code == 200
        assert acquire(client, "p:b").status_code == 403
        names = [one["name"] for one in client.get("/v1/locks").json()["locks"]]
        assert names == ["p:a1", "p:ab1", "q:1"]


def test_a_namespace_that_is_not_covered_is_as_one_that_is_not_there(served: Served) -> None:
    with served.as_(served.token("admin", namespace="billing")) as client:
        answers = [
            client.get("/v1/locks", params={"namespace": name}) for name in ("holdfast", "nowhere")
        ]
        told = [
            {key: str(value).replace(name, "N") for key, value in problem(answer).items()}
            for name, answer in zip(("holdfast", "nowhere"), answers, strict=True)
        ]
        assert told[0] == told[1]
        assert acquire(client, "in-billing", owner="n-1").status_code == 200
        answer = client.get("/v1/locks", params={"namespace": "billing"})
        assert [one["name"] for one in answer.json()["locks"]] == ["in-billing"]
    with served.as_(served.token("admin", namespace="holdfast")) as client:
        assert client.get("/v1/locks/in-billing").json()["holders"] == []
