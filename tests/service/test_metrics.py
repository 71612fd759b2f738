"""`/metrics` of the service: what is counted of the verbs that pass, and who may read it."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import holdfast
import promtool
from holdfast.service import Settings, lease_watch
from holdfast.service.access_log import AccessLog, line_of
from holdfast.service.app import App, create_app
from holdfast.service.authority import Caller, Everything
from holdfast.service.hooks import Finished
from holdfast.service.lease_watch import LeaseWatch, WatchedBackend
from holdfast.stores._async.contract import Backend
from worlds.aio import eventually

_numbers = itertools.count()


class Scene:
    """A service on a store of its own, and a client of it."""

    def __init__(self, app: App, client: httpx.AsyncClient) -> None:
        self.app = app
        self.client = client

    async def post(self, path: str, **body: Any) -> httpx.Response:
        return await self.client.post(path, json=body)

    async def acquire(self, name: str, owner: str, **more: Any) -> httpx.Response:
        return await self.post(f"/v1/locks/{name}/acquire", owner=owner, **more)

    async def release(self, name: str, owner: str) -> httpx.Response:
        return await self.post(f"/v1/locks/{name}/release", owner=owner)

    async def values(self) -> dict[str, float]:
        answer = await self.client.get("/metrics")
        assert answer.status_code == 200
        return {
            " ".join([sample.name, *(f"{k}={v}" for k, v in sample.labels.items())]): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }


@asynccontextmanager
async def scene(authority: Any = None, **settings: Any) -> AsyncIterator[Scene]:
    settings.setdefault("url", f"memory://service-metrics-{next(_numbers)}")
    app = create_app(Settings(**settings), authority=authority)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        await app.service.open()
        try:
            yield Scene(app, client)
        finally:
            await app.service.close()


async def test_a_grant_and_its_release_are_counted() -> None:
    async with scene() as s:
        assert (await s.acquire("x", "a", ttl=30)).status_code == 200
        shown = await s.values()
        assert shown["holdfast_leases"] == 1
        assert shown["holdfast_attempts_total outcome=at_once"] == 1
        assert (await s.acquire("x", "b")).status_code == 409
        assert (await s.release("x", "a")).status_code == 200
        shown = await s.values()
        assert shown["holdfast_leases"] == 0
        assert shown["holdfast_attempts_total outcome=busy"] == 1
        assert shown["holdfast_hold_seconds_count"] == 1
        assert shown["holdfast_store_call_seconds_count verb=acquire"] == 2
        assert shown["holdfast_http_requests_total operation=acquire status=200"] == 1
        assert shown["holdfast_http_requests_total operation=acquire status=409"] == 1
        assert shown["holdfast_http_request_seconds_count operation=release"] == 1


async def test_a_grant_that_is_repeated_is_counted_once() -> None:
    async with scene() as s:
        for _ in range(3):
            assert (await s.acquire("x", "a")).status_code == 200
        shown = await s.values()
        assert shown["holdfast_attempts_total outcome=at_once"] == 1
        assert shown["holdfast_attempts_total outcome=after_waiting"] == 0


async def test_a_held_request_waits_and_is_granted() -> None:
    async with scene() as s:
        await s.acquire("x", "a")
        waiting = asyncio.create_task(s.acquire("x", "b", wait=20))
        await eventually(lambda: s.app.service.waiting)

        async def queued() -> bool:
            return (await s.values())["holdfast_waiters"] == 1

        await eventually(queued)
        assert (await s.values())["holdfast_http_held_requests"] == 1
        await s.release("x", "a")
        assert (await waiting).status_code == 200
        shown = await s.values()
        assert shown["holdfast_attempts_total outcome=after_waiting"] == 1
        assert shown["holdfast_wait_seconds_count outcome=granted"] == 2
        assert shown["holdfast_waiters"] == 0
        assert shown["holdfast_leases"] == 1


async def test_a_wait_in_vain_has_timed_out() -> None:
    async with scene() as s:
        await s.acquire("x", "a")
        assert (await s.acquire("x", "b", wait=0.05)).status_code == 409
        shown = await s.values()
        assert shown["holdfast_attempts_total outcome=timed_out"] == 1
        assert shown["holdfast_wait_seconds_count outcome=timed_out"] == 1
        assert shown["holdfast_waiters"] == 0


async def test_one_who_queues_without_a_held_request_is_counted_too() -> None:
    async with scene() as s:
        await s.acquire("x", "a")
        assert (await s.acquire("x", "b", queue=True)).status_code == 202
        assert (await s.values())["holdfast_waiters"] == 1
        await s.release("x", "a")
        claims = [{"name": "x", "owner": "b", "ttl": 30}]
        assert (await s.post("/v1/renew", claims=claims)).json()["outcomes"][0]["state"] == "held"
        assert (await s.post("/v1/renew", claims=claims)).status_code == 200
        shown = await s.values()
        assert shown["holdfast_attempts_total outcome=after_waiting"] == 1
        assert shown["holdfast_renewals_total outcome=in_time"] == 1


async def test_a_lease_that_has_ended_is_lost_once() -> None:
    async with scene() as s:
        await s.acquire("x", "a")
        assert (await s.client.delete("/v1/locks/x")).status_code == 200
        assert (await s.post("/v1/locks/x/renew", owner="a", ttl=30)).status_code == 410
        assert (await s.post("/v1/locks/x/renew", owner="a", ttl=30)).status_code == 410
        assert (await s.post("/v1/locks/x/renew", owner="stranger", ttl=30)).status_code == 410
        shown = await s.values()
        assert shown["holdfast_leases_lost_total reason=ended_at_store"] == 1
        assert shown["holdfast_forced_releases_total"] == 1


async def test_several_locks_are_counted_one_by_one() -> None:
    async with scene(metric_group=":") as s:
        names = [{"name": "a:1", "owner": "a"}, {"name": "b:1", "owner": "b"}]
        assert (await s.post("/v1/acquire", locks=names)).status_code == 200
        assert (await s.post("/v1/release", locks=names)).status_code == 200
        shown = await s.values()
        assert shown["holdfast_attempts_total outcome=at_once group=a"] == 1
        assert shown["holdfast_hold_seconds_count group=b"] == 1


async def test_a_stale_token_at_the_fence_is_counted(tmp_path: Path) -> None:
    async with scene(url=f"sqlite://{tmp_path}/locks.db") as s:
        assert (await s.post("/v1/fences/r/check", token=5)).status_code == 200
        assert (await s.post("/v1/fences/r/check", token=4)).status_code == 409
        assert (await s.values())["holdfast_stale_writes_refused_total reason=stale"] == 1


async def test_an_attempt_that_the_store_does_not_answer_has_failed() -> None:
    async with scene() as s:
        await s.acquire("x", "a")
        store = s.app.service.first_store
        watched: Any = store.backend

        async def fail(*args: object) -> None:
            raise holdfast.BackendUnavailable("no answer")

        watched._backend.acquire = fail
        assert (await s.acquire("y", "b")).status_code == 503
        assert (await s.values())["holdfast_attempts_total outcome=failed"] == 1


async def test_a_store_that_is_not_reached_is_counted() -> None:
    async with scene(url="redis://127.0.0.1:1", patience=0.5) as s:
        assert (await s.acquire("x", "a")).status_code == 503
        shown = await s.values()
        assert shown["holdfast_store_errors_total verb=open error=unavailable"] >= 1
        assert shown["holdfast_http_requests_total operation=acquire status=503"] == 1


async def test_of_too_many_owners_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_watch, "MOST", 20)
    async with scene() as s:
        for number in range(20):
            await s.acquire(f"x{number}", "a")
        await s.post("/v1/locks/x0/renew", owner="a", ttl=30)  # it stays the oldest
        assert (await s.values())["holdfast_leases"] == 20
        await s.acquire("one-more", "a")
        (watch,) = s.app.service.metrics._watches
        assert isinstance(watch, LeaseWatch)
        assert sorted(watch.names(held=True)) == sorted(
            ["one-more", *(f"x{number}" for number in range(2, 20))]
        )


def test_a_watched_verb_takes_what_the_contract_says() -> None:
    verbs = [name for name in vars(WatchedBackend) if not name.startswith("_")]
    assert "acquire" in verbs
    for verb in verbs:
        promised = inspect.signature(getattr(Backend, verb))
        assert inspect.signature(getattr(WatchedBackend, verb)) == promised, verb


@promtool.needed
async def test_promtool_finds_no_fault() -> None:
    async with scene(metric_group=":") as s:
        await s.acquire("job:1", "a")
        await s.client.get("/nowhere")
        promtool.check_metrics((await s.client.get("/metrics")).text)


async def test_a_client_may_have_openmetrics() -> None:
    async with scene() as s:
        plain = await s.client.get("/metrics")
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        accept = {"accept": "application/openmetrics-text; version=1.0.0"}
        answer = await s.client.get("/metrics", headers=accept)
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert answer.text.endswith("# EOF\n")


class Narrow(Everything):
    """Lets its callers see no metrics."""

    def may_see_metrics(self, caller: Caller) -> bool:
        return False


async def test_metrics_are_not_for_everybody() -> None:
    async with scene(Narrow()) as s:
        assert (await s.client.get("/metrics")).status_code == 403


# The access log.


async def test_each_request_has_a_line(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    async with scene(access_log=str(path)) as s:
        s.client.headers["authorization"] = "Bearer hf_secret"
        await s.acquire("in%2Fvoice", "a")
        await s.client.get("/v1/locks?prefix=secret-prefix")
        await s.client.get("/nowhere%0D%0A")
    first, second, third = [json.loads(line) for line in path.read_text().splitlines()]
    assert first["path"] == "/v1/locks/in%2Fvoice/acquire"
    assert (first["operation"], first["method"], first["status"]) == ("acquire", "POST", 200)
    assert first["seconds"] > 0
    assert first["at"].endswith("+00:00")
    assert second["path"] == "/v1/locks"
    assert (third["operation"], third["status"]) == ("", 404)
    assert "secret" not in path.read_text()
    assert path.stat().st_mode & 0o007 == 0


def finished(path: str = "/v1/locks") -> Finished:
    return Finished("listLocks", "GET", path, 200, 0.01, "", "127.0.0.1")


def test_a_line_is_one_line_of_ascii() -> None:
    line = line_of(finished("/a\n\u2028\x1b[31m" + "x" * 5000), 1_700_000_000.0)
    assert line.count(b"\n") == 1
    assert line.isascii()
    assert len(line) < 2000


async def test_a_log_that_is_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(str(path))
    log.start()
    try:
        log(finished("/first"))
        await eventually(lambda: path.stat().st_size)
        os.rename(path, tmp_path / "access.log.1")
        log._looked = 0.0
        log(finished("/second"))
        await eventually(lambda: path.exists() and path.stat().st_size)
    finally:
        log.close()
    assert "/second" in path.read_text()


def test_a_log_that_cannot_be_written_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / "access.log")
    with pytest.raises(holdfast.ConfigError, match="the access log cannot be written"):
        create_app(Settings(url="memory://access-log", access_log=path))


async def test_a_pipe_that_stands_still_holds_up_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(str(path))
    log.start()
    try:
        for _ in range(12_000):
            log(finished())
        assert log._dropped > 0
    finally:
        data = b""

        async def drained() -> bool:
            nonlocal data
            with suppress(BlockingIOError):
                data += os.read(reader, 1 << 20)
            return log._lines.empty()

        await eventually(drained)
        log(finished("/last"))

        async def told() -> bool:
            await drained()
            return b"/last" in data

        await eventually(told)
        log.close()
        os.close(reader)
    assert json.loads(data.splitlines()[-1])["dropped"] > 0
