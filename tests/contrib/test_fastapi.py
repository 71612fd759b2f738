"""FastAPI and Starlette: a lock for a request, one leader of many processes, and what is answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path as File
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from holdfast import ConfigError, StaleToken, aio
from holdfast.aio import Lease
from holdfast.contrib.fastapi import hold, lock

from .fastapi_clients import new_url, served
from .programs import LIMIT, program, said_without, until


def site(dependency: Any) -> FastAPI:
    app = FastAPI()

    @app.post("/invoices/{number:int}/pay")
    async def pay(number: int, lease: Annotated[Lease, Depends(dependency)]) -> dict[str, Any]:
        return {"name": lease.name, "held": lease.held}

    return app


async def test_a_request_holds_the_lock_that_its_path_names() -> None:
    async with served(site(lock("invoice:{number}"))) as (client, locks):
        answer = await client.post("/invoices/042/pay")
        assert answer.json() == {"name": "invoice:42", "held": True}
        assert not (await locks.inspect("invoice:42")).held


async def test_a_lock_that_others_hold_is_409_with_retry_after() -> None:
    async with served(site(lock("invoice:{number}", timeout=0.0, retry_after=7))) as (
        client,
        locks,
    ):
        async with locks.lock("invoice:42"):
            answer = await client.post("/invoices/42/pay")
            assert (answer.status_code, answer.headers["retry-after"]) == (409, "7")
            assert (await client.post("/invoices/43/pay")).status_code == 200
        assert (await client.post("/invoices/42/pay")).status_code == 200


async def test_the_status_may_be_423() -> None:
    app = site(lock("one", timeout=0.0, busy=HTTPStatus.LOCKED))
    async with served(app) as (client, locks), locks.lock("one"):
        assert (await client.post("/invoices/42/pay")).status_code == 423


async def test_a_lost_lease_cancels_the_request_and_is_503() -> None:
    app, under_way, stopped = FastAPI(), asyncio.Event(), asyncio.Event()

    @app.post("/{name}", dependencies=[Depends(lock("{name}"))])
    async def work() -> None:
        under_way.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with served(app) as (client, locks):
        request = asyncio.create_task(client.post("/report"))
        await under_way.wait()
        await locks.force_release("report")
        answer = await request
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert stopped.is_set()


@pytest.mark.parametrize(("scope", "ensures"), [("request", True), ("function", False)])
async def test_an_endpoint_that_swallows_its_cancellation_can_be_503_all_the_same(
    scope: Any, ensures: bool
) -> None:
    app, under_way = FastAPI(), asyncio.Event()

    @app.post("/report")
    async def work(lease: Annotated[Lease, Depends(lock("report"), scope=scope)]) -> None:
        under_way.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if ensures:
            lease.ensure()

    async with served(app) as (client, locks):
        request = asyncio.create_task(client.post("/report"))
        await under_way.wait()
        await locks.force_release("report")
        assert (await request).status_code == 503


async def test_a_store_that_cannot_be_reached_is_503() -> None:
    app = site(lock("one", timeout=0.0))
    nowhere = aio.connect("redis://127.0.0.1:1/0")
    async with served(app) as (client, _):
        kept, app.state.locks = app.state.locks, nowhere
        answer = await client.post("/invoices/42/pay")
        app.state.locks = kept
        await nowhere.close()
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_a_stale_token_is_409_and_other_errors_are_the_applications_own() -> None:
    app = FastAPI()

    @app.post("/{name}", dependencies=[Depends(lock("one"))])
    async def work(name: str) -> None:
        raise StaleToken("row", 1, 2) if name == "stale" else KeyError(name)

    async with served(app) as (client, locks):
        assert (await client.post("/stale")).status_code == 409
        with pytest.raises(KeyError):
            await client.post("/other")
        assert not (await locks.inspect("one")).held


async def test_a_path_that_makes_no_name_is_422() -> None:
    app = FastAPI()

    @app.post("/{name}", dependencies=[Depends(lock("{name}"))])
    async def work(name: str) -> None: ...

    async with served(app) as (client, _):
        assert (await client.post("/%00")).status_code == 422


async def test_what_holds_is_entered_once_at_a_time() -> None:
    app = Starlette()
    async with served(app) as (_, locks):
        request = Request({"type": "http", "app": app, "path_params": {}})
        holding = hold(request, "x")
        async with holding:
            with pytest.raises(ConfigError, match="entered already"):
                await holding.__aenter__()
            assert len((await locks.inspect("x")).holders) == 1
        async with holding as lease:
            assert lease.held
        assert (await locks.inspect("x")).holders == ()


async def test_starlette_alone() -> None:
    async def pay(request: Request) -> PlainTextResponse:
        async with hold(request, "invoice:{number}", timeout=0.0) as lease:
            return PlainTextResponse(lease.name)

    app = Starlette(routes=[Route("/{number:int}", pay)])
    async with served(app) as (client, locks):
        assert (await client.get("/42")).text == "invoice:42"
        async with locks.lock("invoice:42"):
            assert (await client.get("/42")).status_code == 409


async def test_an_application_without_a_manager_says_how_to_get_one() -> None:
    app = site(lock("one"))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        with pytest.raises(ConfigError, match="lifespan"):
            await client.post("/invoices/42/pay")


@pytest.mark.parametrize(
    "wrong",
    [
        {"busy": 200},
        {"busy": "423"},
        {"retry_after": 1.5},
        {"ttl": 0},
        {"name": "{a.b}"},
        {"name": 7},
        {"name": ""},
        {"name": "x" * 2000},
    ],
)
def test_bad_input_is_refused_where_it_is_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        lock(**{"name": "x", **wrong})


def test_generators_that_hold_are_closed_quietly_when_the_loop_ends() -> None:
    noise: list[Any] = []
    kept: list[Any] = []

    async def suspend() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, found: noise.append(found))
        app = FastAPI()
        app.state.locks = aio.connect(new_url())
        request = Request({"type": "http", "app": app, "path_params": {}})

        async def generate(name: str) -> AsyncIterator[Lease]:
            async with hold(request, name) as lease:
                yield lease

        for number in range(50):  # they are closed in no certain order
            kept.append(generate(f"lock-{number}"))
            await anext(kept[-1])

    asyncio.run(suspend())
    assert not noise


def test_processes_share_locks_and_have_one_leader(tmp_path: File) -> None:
    words = "-m", "contrib.fastapi_site", f"sqlite://{tmp_path}/locks.db", str(tmp_path)
    with program(*words) as one, program(*words) as other:
        ports = [running.says("port").split()[1] for running in (one, other)]

        async def ask() -> list[dict[str, int]]:
            async with httpx.AsyncClient(timeout=LIMIT) as client:
                paths = [f"http://127.0.0.1:{port}/counters/7" for port in ports * 10]
                answers = await asyncio.gather(*[client.post(path) for path in paths])
                return [answer.json() for answer in answers]

        counted = sorted(asyncio.run(ask()), key=lambda answer: answer["count"])
        assert [answer["count"] for answer in counted] == list(range(1, 21))
        tokens = [answer["token"] for answer in counted]
        assert tokens == sorted(set(tokens))

        def leaders() -> list[bool]:
            return [any("leading" in line for line in running.seen) for running in (one, other)]

        until(lambda: any(leaders()))
        leads = leaders()
        assert leads in ([True, False], [False, True])
        leader, standby = (one, other) if leads[0] else (other, one)
        leader.kill()
        standby.says("leading")


def test_without_starlette_it_says_what_to_install() -> None:
    said = said_without("starlette", "holdfast.contrib.fastapi")
    assert "pip install 'holdfast-locks[fastapi]'" in said
