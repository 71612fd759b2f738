"""Elections through the service, on each store: observers are woken, and told of every change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from service.running import Api, Sse, eventually, running
from stores import STORES

MOST_NUMBER = 2**63 - 1


@pytest.fixture(
    scope="module",
    params=["etcd", "mariadb", "memory", "postgres", "redis", "redlock", "sqlite", "zookeeper"],
    name="url",
)
def _url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("store")
    with STORES[request.param](folder) as store_url:
        yield store_url


@pytest.fixture(scope="module")
def api(url: str) -> Iterator[Api]:
    with running(url) as (api, _):
        yield api


def test_an_observer_that_has_asked_again_is_woken(api: Api, name: str) -> None:
    """Each of its requests is told by a ticket of its own."""
    path = f"/v1/elections/{name}/changes?owner=observer00-{name}"
    stream = Sse(f"{api.url}/v1/wakeups?session=observer00", {})
    try:
        stream.find("ready")
        for _ in range(2):
            assert api.get(path).json()["changes"] == []
        grant = api.acquire(name, kind="election", label="one")
        stream.find("wakeup", owner=f"observer00-{name}")
        (change,) = api.get(path).json()["changes"]
        assert change["owner"] == grant["owner"]
        assert api.get(f"{path}&after={change['number']}").json()["changes"] == []
        api.lock(name, "release", owner=grant["owner"])
        stream.find("wakeup", owner=f"observer00-{name}")
        (change,) = api.get(f"{path}&after={change['number']}").json()["changes"]
        assert change["owner"] == ""
    finally:
        stream.close()


def test_the_library_observes_every_change(api: Api, name: str) -> None:
    seen: list[str | None] = []
    with (
        holdfast.connect(api.url, namespace="first") as locks,
        holdfast.connect(api.url, namespace="first") as others,
    ):

        def observe() -> None:
            try:
                for state in others.election(name).observe():
                    seen.append(state and state.holders[0].label.text)
            except holdfast.LockError as error:
                seen.append(str(error))

        thread = threading.Thread(target=observe)
        thread.start()
        expected: list[str | None] = [None]
        eventually(lambda: seen == expected)
        for value in ("a", "b"):
            term = locks.election(name, value).campaign()
            for expected_next in (value, f"{value}2"):
                if expected_next != value:
                    term.set_value(expected_next)
                expected.append(expected_next)
                eventually(lambda: seen == expected, f"{seen} {expected}")
            term.resign()
            expected.append(None)
            eventually(lambda: seen == expected, f"{seen} {expected}")
        others.close()
        thread.join()


@pytest.mark.parametrize("number", [MOST_NUMBER - 1, MOST_NUMBER, MOST_NUMBER + 1, 2**80 - 1])
def test_a_number_that_no_change_has_does_no_harm(api: Api, name: str, number: int) -> None:
    """A caller who may only read must not decide on the numbers of changes to come."""
    name = f"{name}-{number}"
    path = f"/v1/elections/{name}/changes"
    answer = api.get(f"{path}?after={number}")
    assert answer.status_code == 200, answer.text
    if not api.get("/v1/guarantees").json()["every_change"]:
        return  # there is no memory of changes that could be spoilt
    numbers = [1]
    for _ in range(3):
        grant = api.acquire(name, kind="election")
        api.lock(name, "release", owner=grant["owner"])
        changes = api.get(f"{path}?after={numbers[-1]}").json()["changes"]
        numbers += [change["number"] for change in changes]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 3
    assert api.get(f"{path}?after={MOST_NUMBER + 1}").json()["changes"] == []
