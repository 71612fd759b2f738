"""The verbs of one lock, and of several, over HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.checks import MAX_CAPACITY
from service.running import Api, eventually

NEVER = "never-there"


def test_a_grant_says_all_that_its_caller_needs(api: Api, name: str) -> None:
    grant = api.acquire(name, ttl=20)
    assert grant["name"] == name
    assert grant["state"] == "held"
    assert grant["token"] > 0
    assert grant["ttl"] == 20
    assert 19 < grant["remaining"] <= 20
    assert grant["waited"] < 5
    assert grant["age"] == 0
    assert len(grant["owner"]) == 24


def test_tokens_rise(api: Api, name: str) -> None:
    first = api.acquire(name)
    api.lock(name, "release", owner=first["owner"])
    assert api.acquire(name)["token"] > first["token"]


def test_a_lock_that_others_hold_is_refused_with_who_they_are(api: Api, name: str) -> None:
    grant = api.acquire(name, label="nightly")
    answer = api.lock(name, "acquire")
    assert answer.status_code == 409
    problem = answer.json()
    assert problem["type"] == "/problems/busy"
    (holder,) = problem["holders"]
    assert holder["owner"] == grant["owner"]
    assert holder["token"] == grant["token"]
    assert holder["label"]["text"] == "nightly"
    assert 0 < problem["remaining"] <= 30
    assert api.waiters(name) == []


def test_acquire_is_idempotent_by_owner(api: Api, name: str) -> None:
    first = api.acquire(name, owner="attempt-1")
    again = api.acquire(name, owner="attempt-1")
    assert again["token"] == first["token"]


def test_an_owner_serves_for_one_lock(api: Api, name: str) -> None:
    api.acquire(name, owner=f"{name}-x")
    answer = api.lock(f"{name}-other", "acquire", owner=f"{name}-x")
    if answer.status_code != 200:  # stores that know owners by lock do not see it
        assert answer.status_code == 422


def test_renew_keeps_a_lease_and_may_change_its_ttl(api: Api, name: str) -> None:
    grant = api.acquire(name, ttl=5)
    answer = api.lock(name, "renew", owner=grant["owner"], ttl=50)
    assert answer.status_code == 200
    renewed = answer.json()
    assert renewed["token"] == grant["token"]
    assert 49 < renewed["remaining"] <= 50
    assert api.state(name)["holders"][0]["remaining"] > 40


@pytest.mark.parametrize("verb", ["renew", "release", "detach", "amend"])
def test_an_owner_that_is_not_known_is_gone(api: Api, name: str, verb: str) -> None:
    body = {"owner": NEVER}
    body |= {"ttl": 5} if verb in ("renew", "detach") else {}  # type: ignore[dict-item]
    body |= {"text": "x"} if verb == "amend" else {}
    answer = api.post(f"/v1/locks/{name}/{verb}", body)
    assert answer.status_code == 410
    assert answer.json()["owner"] == NEVER


def test_only_the_owner_releases(api: Api, name: str) -> None:
    grant = api.acquire(name)
    assert api.lock(name, "release", owner=NEVER).status_code == 410
    assert api.lock(name, "release", owner=grant["owner"]).json() == {"released": True}
    assert api.lock(name, "release", owner=grant["owner"]).status_code == 410


def test_a_lease_ends_with_its_ttl(api: Api, name: str) -> None:
    grant = api.acquire(name, ttl=0.3)
    eventually(lambda: api.lock(name, "acquire").status_code == 200)
    assert api.lock(name, "renew", owner=grant["owner"], ttl=5).status_code == 410


def test_a_place_in_the_queue_is_kept_by_renewing(api: Api, name: str) -> None:
    holder = api.acquire(name)
    queued = api.lock(name, "acquire", queue=True)
    assert queued.status_code == 202
    owner = queued.json()["owner"]
    assert queued.json()["state"] == "waiting"
    assert api.waiters(name) == [owner]
    assert api.lock(name, "renew", owner=owner, ttl=20).status_code == 202
    api.lock(name, "release", owner=holder["owner"])
    renewed = api.lock(name, "renew", owner=owner, ttl=20)
    assert renewed.status_code == 200
    assert renewed.json()["token"] > holder["token"]


def test_who_waits_leaves_the_queue_by_release(api: Api, name: str) -> None:
    api.acquire(name)
    owner = api.lock(name, "acquire", queue=True).json()["owner"]
    assert api.lock(name, "release", owner=owner).status_code == 410
    assert api.waiters(name) == []


def test_a_request_that_comes_after_its_release_is_refused(api: Api, name: str) -> None:
    api.lock(name, "release", owner=f"{name}-late", doubtful=True)
    answer = api.lock(name, "acquire", owner=f"{name}-late")
    assert answer.status_code == 410
    assert api.holders(name) == []


def test_an_adopt_that_comes_after_its_release_is_refused(api: Api, name: str) -> None:
    giver = api.acquire(name)["owner"]
    api.lock(name, "release", owner=f"{name}-late", doubtful=True)
    answer = api.lock(name, "adopt", owner=f"{name}-late", giver=giver)
    assert answer.status_code == 410
    assert answer.json()["owner"] == f"{name}-late"
    assert api.holders(name) == [giver]
    assert api.lock(name, "renew", owner=giver, ttl=20).status_code == 200


def test_a_semaphore_has_as_many_holders_as_permits(api: Api, name: str) -> None:
    owners = [api.acquire(name, capacity=2)["owner"] for _ in range(2)]
    assert api.lock(name, "acquire", capacity=2).status_code == 409
    assert api.state(name)["kind"] == "semaphore"
    api.lock(name, "release", owner=owners[0])
    api.acquire(name, capacity=2)


def test_readers_hold_together_and_a_writer_alone(api: Api, name: str) -> None:
    readers = [api.acquire(name, kind="rwlock")["owner"] for _ in range(2)]
    assert api.lock(name, "acquire", kind="rwlock", weight=MAX_CAPACITY).status_code == 409
    for owner in readers:
        api.lock(name, "release", owner=owner)
    writer = api.acquire(name, kind="rwlock", weight=MAX_CAPACITY)
    assert api.lock(name, "acquire", kind="rwlock").status_code == 409
    assert api.lock(name, "amend", owner=writer["owner"], weight=1).status_code == 200
    api.acquire(name, kind="rwlock")


def test_a_lock_in_use_as_another_kind_is_refused(api: Api, name: str) -> None:
    api.acquire(name)
    answer = api.lock(name, "acquire", capacity=3)
    assert answer.status_code == 422
    assert "in use as a lock" in answer.json()["detail"]


def test_a_lease_is_taken_over_with_a_new_token(api: Api, name: str) -> None:
    giver = api.acquire(name)
    adopted = api.lock(name, "adopt", giver=giver["owner"])
    assert adopted.status_code == 200
    assert adopted.json()["token"] > giver["token"]
    assert api.lock(name, "renew", owner=giver["owner"], ttl=5).status_code == 410
    assert api.lock(name, "adopt", giver=NEVER).status_code == 410


def test_once_in_a_period_by_detaching(api: Api, name: str) -> None:
    grant = api.acquire(name, kind="once", ttl=20)
    answer = api.lock(name, "detach", owner=grant["owner"], ttl=3600)
    assert (answer.status_code, answer.json()) == (200, {})
    assert api.lock(name, "acquire", kind="once").status_code == 409
    assert api.state(name)["holders"][0]["remaining"] > 3000


def test_a_forced_release_raises_the_token(api: Api, name: str) -> None:
    grant = api.acquire(name)
    forced = api.http.delete(f"/v1/locks/{name}").json()
    assert forced["released"] is True
    assert forced["token"] > grant["token"]
    assert api.lock(name, "renew", owner=grant["owner"], ttl=5).status_code == 410
    assert api.http.delete(f"/v1/locks/{name}").json()["released"] is False


def test_a_batch_is_renewed_in_order(api: Api, name: str) -> None:
    held = api.acquire(name)["owner"]
    waiting = api.lock(name, "acquire", queue=True).json()["owner"]
    claims = [{"name": name, "owner": owner, "ttl": 20} for owner in (held, NEVER, waiting)]
    answer = api.post("/v1/renew", {"claims": claims})
    states = [outcome["state"] for outcome in answer.json()["outcomes"]]
    assert states == ["held", "gone", "waiting"]


def test_several_locks_are_granted_all_or_none(api: Api, name: str) -> None:
    names = [f"{name}-{letter}" for letter in "cab"]
    answer = api.post("/v1/acquire", {"locks": [{"name": one} for one in names]})
    grants = answer.json()["grants"]
    assert [grant["name"] for grant in grants] == names
    wanted = [{"name": f"{name}-x"}, {"name": names[1]}]
    refused = api.post("/v1/acquire", {"locks": wanted})
    assert refused.status_code == 409
    assert refused.json()["name"] == names[1]
    assert api.holders(f"{name}-x") == []
    pairs = [{"name": grant["name"], "owner": grant["owner"]} for grant in grants]
    pairs.append({"name": names[0], "owner": NEVER})
    released = api.post("/v1/release", {"locks": pairs}).json()
    assert released == {"released": [True, True, True, False]}


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("a%2Fb%2Facquire", "a/b/acquire"),
        ("~2e2e", ".."),
        ("%7E7e78", "~x"),
        ("%C3%A9%20%25", "é %"),
        ("~612f2f62", "a//b"),
    ],
)
def test_names_that_a_path_would_change(api: Api, path: str, real: str) -> None:
    grant = api.acquire(path)
    assert grant["name"] == real
    assert api.state(path)["name"] == real
    listed = api.get("/v1/locks", params={"prefix": real}).json()["locks"]
    assert [state["name"] for state in listed] == [real]
    assert api.lock(path, "release", owner=grant["owner"]).status_code == 200


def test_namespaces_are_apart(api: Api, name: str) -> None:
    api.acquire(name)
    assert api.post(f"/v1/locks/{name}/acquire?namespace=second").status_code == 200
    assert api.post(f"/v1/locks/{name}/acquire?namespace=first").status_code == 409
    assert api.get("/v1/locks?namespace=third").status_code == 404


def test_many_locks_are_listed_in_pages(api: Api) -> None:
    names = [f"page-{number:05}" for number in range(10_000)]

    def take(some: list[str]) -> int:
        locks = [{"name": one, "ttl": 3600} for one in some]
        return api.post("/v1/acquire?namespace=second", {"locks": locks}).status_code

    with ThreadPoolExecutor(4) as pool:
        batches = [names[i : i + 100] for i in range(0, len(names), 100)]
        assert set(pool.map(take, batches)) == {200}
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        query = {"prefix": "page-", "limit": "1000", "namespace": "second", **after}
        answer = api.get("/v1/locks", params=query)
        if answer.status_code == 503:
            continue  # a busy machine did not read ten thousand in time, and whoever asks may ask again
        page = answer.json()
        seen += [state["name"] for state in page["locks"]]
        if "next" not in page:
            break
        after = {"after": page["next"]}
    assert seen == names


def test_the_changes_of_an_election(api: Api, name: str) -> None:
    path = f"/v1/elections/{name}/changes"
    assert api.get(path).json() == {"changes": [], "remaining": 0}
    term = api.acquire(name, kind="election", label="10.0.0.1")
    (change,) = api.get(path).json()["changes"]
    assert change["owner"] == term["owner"]
    assert change["label"]["text"] == "10.0.0.1"
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(api.get, f"{path}?after={change['number']}&wait=20")
        api.lock(name, "amend", owner=term["owner"], text="10.0.0.2")
        (second,) = held.result().json()["changes"]
    assert second["label"]["text"] == "10.0.0.2"
    nothing = api.get(f"{path}?after={second['number']}&wait=0.1").json()
    assert nothing["changes"] == []


def test_what_can_be_known_of_the_store(api: Api) -> None:
    promised = api.get("/v1/guarantees").json()
    assert promised["store"] in ("sqlite", "redis")
    assert promised["heartbeat"] > 0
    assert promised["claim_window"] > 0
    assert promised["auto_release"].startswith("at the end of the TTL")
    findings = api.get("/v1/doctor").json()["findings"]
    assert {"level", "check", "what", "why", "mend", "server"} == set(findings[0])
    assert api.get("/v1/me").json()["role"] == "admin"
    assert api.get("/healthz").json() == api.get("/readyz").json() == {"status": "ok"}


def test_deadlocks_are_told(api: Api, name: str) -> None:
    one, two = f"{name}-a", f"{name}-b"
    for lock, label in ((one, "left"), (two, "right")):
        api.acquire(lock, label=label, owner=f"{lock}-holds")
    for lock, label in ((two, "left"), (one, "right")):
        api.lock(lock, "acquire", label=label, owner=f"{lock}-waits", queue=True)
    (found,) = api.get("/v1/deadlocks").json()["deadlocks"]
    assert {step["name"] for step in found["cycle"]} == {one, two}
    for lock in (one, two):
        api.lock(lock, "release", owner=f"{lock}-waits")
    assert api.get("/v1/deadlocks").json() == {"deadlocks": []}
