"""Bad input of every field is refused before anything is sent, and says which field it is."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from holdfast.service import Settings
from holdfast.service.tables import operations_of
from service.running import Api

NO_NUMBERS: list[Any] = ["1", None, True, [], {}, 1e400]
NO_TEXTS: list[Any] = [7, None, True, [], {}]
NO_OWNERS = [*NO_TEXTS, "", "x" * 65, "with space", "é", "a/b", "a\n", "\u0000"]
NO_NAMES = [*NO_TEXTS, "", "x" * 1025, "a\n", "\u2028", "\ud800", "é" * 513]

BAD: dict[str, list[Any]] = {
    "owner": NO_OWNERS,
    "giver": NO_OWNERS,
    "session": NO_OWNERS,
    "name": NO_NAMES,
    "ttl": [*NO_NUMBERS, 0, -1, 366 * 86400 + 1, 10**400],
    "wait": [*NO_NUMBERS, -1, 3601],
    "delay": [*NO_NUMBERS, -1, 366 * 86400 + 1],
    "weight": [*NO_NUMBERS, 0, -1, 1.5, 2**31],
    "capacity": [*NO_NUMBERS, 0, -1, 1.5, 2**31],
    "kind": [*NO_TEXTS, "", "mutex"],
    "fair": [0, 1, "true", [], {}],
    "renew": [0, 1, None, "true"],
    "queue": [0, 1, None, "true"],
    "doubtful": [0, 1, None, "true"],
    "label": [
        7,
        True,
        [],
        "a\n",
        "x" * 257,
        {"host": 7},
        {"host": "x" * 256},
        {"pid": -1},
        {"pid": "1"},
        {"pid": 2**31},
        {"text": "\u0007"},
        {"more": 1},
    ],
    "text": [7, True, [], "a\n", "x" * 257],
    "token": [*NO_NUMBERS, 0, -1, 1.5, 2**63],
    "lock": [7, True, [], "", "a\n"],
    "slot": ["1", True, [], {}, 1e400, -1, 1.5, 10**400],
    "reads": [0, 1, None, "true"],
    "claims": [7, None, {}, [], [7], [{}], [{"name": "a", "owner": "b", "ttl": 1, "x": 1}]],
    "locks": [7, None, {}, [], [7], [{}], [{"name": "a"}] * 1001],
}
GOOD: dict[str, Any] = {
    "owner": "somebody",
    "giver": "another",
    "ttl": 5,
    "token": 5,
    "claims": [{"name": "a", "owner": "b", "ttl": 1}],
    "locks": [{"name": "bad-input", "owner": "b"}],
}
NULL_IS_NO_VALUE = {"label", "fair"}


def bodies() -> list[tuple[str, str, str, Any]]:
    """Returns, for each field of each body, the path and what must not be in it."""
    found = []
    for operation in operations_of(Settings()):
        for field in operation.body.fields if operation.body else ():
            path = operation.path.replace("{name}", "bad-input").replace("{resource}", "bad")
            found.append((operation.id, path, field.name, BAD[field.name]))
    return found


@pytest.mark.parametrize(
    ("path", "field", "values"),
    [pytest.param(*rest, id=f"{name}-{rest[1]}") for name, *rest in bodies()],
)
def test_a_bad_value_is_refused(api: Api, path: str, field: str, values: list[Any]) -> None:
    operation = next(
        one
        for one in operations_of(Settings())
        if one.method == "POST"
        and one.path.rpartition("/")[2] == path.rpartition("/")[2]
        and one.path.count("/") == path.count("/")
    )
    needed = {one.name for one in (operation.body.fields if operation.body else ())}
    good = {name: value for name, value in GOOD.items() if name in needed}
    for value in values:
        if "inf" in repr(value).lower():
            continue  # not JSON at all
        answer = api.http.post(
            path,
            content=json.dumps({**good, field: value}),
            headers={"content-type": "application/json"},
        )
        assert answer.status_code == 422, (value, answer.text)
        problem = answer.json()
        assert problem["type"] == "/problems/bad-input"
        assert problem["detail"]
        if not isinstance(value, list):
            assert problem.get("field", field).partition("[")[0] == field
    assert api.holders("bad-input") == api.waiters("bad-input") == []


def test_a_field_that_is_missing_or_not_known(api: Api) -> None:
    missing = api.post("/v1/locks/a/renew", {"owner": "x"})
    assert (missing.status_code, missing.json()["field"]) == (422, "ttl")
    unknown = api.post("/v1/locks/a/acquire", {"timeout": 5})
    assert unknown.status_code == 422
    assert "unknown field 'timeout'" in unknown.json()["detail"]
    assert api.post("/v1/locks/a/acquire", [1]).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        {"weight": 2},
        {"kind": "lock", "capacity": 2},
        {"kind": "semaphore", "capacity": 2, "weight": 3},
        {"ttl": 5, "delay": 5},
        {"kind": "election", "capacity": 3},
    ],
)
def test_fields_that_do_not_fit_together(api: Api, body: dict[str, Any]) -> None:
    assert api.post("/v1/locks/bad-input/acquire", body).status_code == 422


def test_several_locks_that_do_not_fit_together(api: Api) -> None:
    twice = api.post("/v1/acquire", {"locks": [{"name": "a"}, {"name": "a"}]})
    assert twice.status_code == 422
    shared = [{"name": "a", "owner": "x"}, {"name": "b", "owner": "x"}]
    assert api.post("/v1/acquire", {"locks": shared}).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nope",
        b"\xff",
        b'{"ttl": NaN}',
        b'{"ttl": Infinity}',
        b'{"ttl": 30, "ttl": 60}',
        b'{"label": {"host": "a", "host": "b"}}',
        b"[" * 100_000,
        b'{"ttl": ' + b"1" * 5000 + b"}",
    ],
)
def test_what_is_not_json(api: Api, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = api.http.post("/v1/locks/a/acquire", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_said_to_be_json(api: Api, kind: str) -> None:
    headers = {"content-type": kind} if kind else {}
    answer = api.http.post("/v1/locks/a/acquire", content=b"{}", headers=headers)
    assert answer.status_code == 415


def test_a_body_that_is_too_large(api: Api) -> None:
    answer = api.post("/v1/locks/a/acquire", {"label": "x" * (1 << 20)})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=",
        "limit=1&limit=2",
        "prefix=%00",
        "prefix=%ff",
        "after=%0a",
        "more=1",
        "namespace=first&namespace=second",
        "x=" + "y" * 9000,
        "&".join(f"a{number}=1" for number in range(30)),
    ],
)
def test_a_bad_query(api: Api, query: str) -> None:
    assert api.get(f"/v1/locks?{query}").status_code == 422


@pytest.mark.parametrize(
    "path",
    ["%00", "%ff", "%", "%zz", "~zz", "~6", "~ff", "~", "a%0a", "x" * 1025, "%E2%80%A8"],
)
def test_a_bad_name_in_a_path(api: Api, path: str) -> None:
    answer = api.get(f"/v1/locks/{path}")
    assert answer.status_code == 422, answer.text


def test_paths_and_methods_that_there_are_not(api: Api) -> None:
    for path in ("/nothing", "/v1/locks/a/b", "/v1/locks/", "/v1/locks//acquire", "/v1/"):
        answer = api.get(path)
        assert answer.status_code == 404, path
        assert answer.headers["content-type"] == "application/problem+json"
    answer = api.http.put("/v1/locks/a")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS"
    assert answer.json()["status"] == 405
    assert api.get("/v1/locks/a/acquire").status_code == 405
    options = api.http.options("/v1/locks/a/acquire")
    assert (options.status_code, options.headers["allow"]) == (204, "OPTIONS, POST")
    assert api.http.head("/v1/events").status_code == 405
    head = api.http.head("/v1/locks/a")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 10


def test_a_mistake_of_ours_is_a_problem_too(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from holdfast.service import locks

    def fail(*args: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(locks, "state_view", fail)
    answer: httpx.Response = api.get("/v1/locks/a")
    assert answer.status_code == 500
    assert answer.json()["type"] == "/problems/internal"
    assert "secret" not in answer.text
    assert "ZeroDivisionError" in caplog.text
