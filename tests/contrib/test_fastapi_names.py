"""FastAPI: a lock's name takes the value that the endpoint gets, however the path spells it."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NewType
from uuid import UUID

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Path
from pydantic import AfterValidator, StringConstraints
from starlette.requests import Request

from holdfast import ConfigError
from holdfast.aio import Lease
from holdfast.contrib.fastapi import hold, lock

from .fastapi_clients import served

Id = NewType("Id", int)


async def find(number: int) -> int:
    return number


async def find_deeper(found: Annotated[int, Depends(find)]) -> int:
    return found


class Endpoint:
    async def __call__(self, number: int) -> int:
        return number


async def plain(number: int) -> int:
    return number


async def new_type(number: Id) -> int:
    return number


async def optional(number: int | None) -> int | None:
    return number


async def aliased(one: Annotated[int, Path(alias="number")]) -> int:
    return one


async def in_a_dependency(found: Annotated[int, Depends(find_deeper)]) -> int:
    return found


NUMBERS = [plain, new_type, optional, aliased, in_a_dependency, Endpoint()]


def seen_names(app: FastAPI) -> list[str]:
    """Has the application note which lock each request holds."""
    seen: list[str] = []
    template = lock("invoice:{number}")

    async def note(lease: Annotated[Lease, Depends(template)]) -> None:
        seen.append(lease.name)

    app.router.dependencies.append(Depends(note))
    return seen


@pytest.mark.parametrize("endpoint", NUMBERS)
@pytest.mark.parametrize("included", [False, True])
async def test_the_name_takes_the_value_that_the_endpoint_gets(
    endpoint: Any, included: bool
) -> None:
    app = FastAPI()
    seen = seen_names(app)
    if included:
        inner, outer = APIRouter(), APIRouter()
        inner.add_api_route("/{number}", endpoint)
        outer.include_router(inner, prefix="/inner")
        app.include_router(outer, prefix="/outer")
    else:
        app.add_api_route("/outer/inner/{number}", endpoint)
    async with served(app) as (client, _):
        for spelling in ("7", "07", "+7", "%207"):
            assert (await client.get(f"/outer/inner/{spelling}")).json() == 7
        assert seen == ["invoice:7"] * 4
        wrong = await client.get("/outer/inner/seven")
        assert (wrong.status_code, wrong.json()["detail"][0]["loc"]) == (422, ["path", "number"])
        assert len(seen) == 4


async def test_a_dependency_of_the_router_that_includes_the_endpoint_is_looked_at_too() -> None:
    app, router = FastAPI(), APIRouter()

    @router.get("/{number}", dependencies=[Depends(lock("invoice:{number}"))])
    async def work(number: str) -> None: ...

    app.include_router(router, prefix="/out")
    async with served(app) as (client, _):
        app.include_router(router, prefix="/in", dependencies=[Depends(find)])
        with pytest.raises(ConfigError, match="as an int and as a str"):
            await client.get("/in/7")
        assert (await client.get("/out/7")).status_code == 200
    with pytest.raises(ConfigError, match=r"'/in/{number}' is read as an int and as a str"):
        async with served(app):
            pass


async def test_an_application_that_is_mounted_looks_at_its_own_endpoints() -> None:
    app, mounted = FastAPI(), FastAPI()
    seen = seen_names(mounted)
    mounted.add_api_route("/{number}", plain)
    app.mount("/mounted", mounted)
    async with served(mounted) as (_, locks):
        app.state.locks = locks
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.get("/mounted/07")).json() == 7
    assert seen == ["invoice:7"]


class Kind(Enum):
    CAT = "cat"


@pytest.mark.parametrize(
    ("kind", "spellings", "name"),
    [
        (str, ["07"], "07"),
        (Kind, ["cat"], "cat"),
        (Annotated[str, Path(min_length=2)], ["ab"], "ab"),
        (Annotated[str, StringConstraints(to_lower=True)], ["ab", "AB"], "ab"),
        (
            UUID,
            ["0F8FAD5BD9CB469FA16570867728950E", "0f8fad5b-d9cb-469f-a165-70867728950e"],
            "0f8fad5b-d9cb-469f-a165-70867728950e",
        ),
    ],
)
async def test_each_value_has_one_name(kind: Any, spellings: list[str], name: str) -> None:
    async def work(number: kind) -> None: ...

    app = FastAPI()
    seen = seen_names(app)
    app.add_api_route("/{number}", work)
    async with served(app) as (client, _):
        for spelling in spellings:
            assert (await client.get(f"/{spelling}")).status_code == 200
    assert seen == [f"invoice:{name}"] * len(spellings)


@pytest.mark.parametrize("kind", [float, Decimal, datetime])
async def test_a_value_that_has_several_texts_is_refused(kind: Any) -> None:
    async def work(number: kind) -> None: ...

    app = FastAPI()
    seen = seen_names(app)
    async with served(app) as (client, _):
        app.add_api_route("/{number}", work)  # too late for being refused at the start
        with pytest.raises(ConfigError, match="function"):
            await client.get("/7")
    assert not seen
    with pytest.raises(ConfigError, match=r"'/{number}' is read as a .*function"):
        async with served(app):
            pass


class Ratio(float, Enum):
    HALF = 0.5


@pytest.mark.parametrize(
    "kind", [NewType("Ratio", float), float | None, Ratio, Annotated[float, Path(gt=0)]]
)
@pytest.mark.parametrize("websocket", [False, True])
async def test_a_declared_type_with_several_texts_is_refused_at_the_start(
    kind: Any, websocket: bool
) -> None:
    async def work(number: kind, lease: Annotated[Lease, Depends(lock("x:{number}"))]) -> None: ...

    app = FastAPI()
    if websocket:
        app.add_api_websocket_route("/{number}", work)
    else:
        app.add_api_route("/{number}", work)
    with pytest.raises(ConfigError, match=r"'/{number}' is read as a float"):
        async with served(app):
            pass


@pytest.mark.parametrize("kind", [int | str, Annotated[float, AfterValidator(int)], Any])
async def test_what_a_declaration_does_not_tell_is_looked_at_later(kind: Any) -> None:
    async def work(number: kind) -> None: ...

    app = FastAPI()
    seen = seen_names(app)
    app.add_api_route("/{number}", work)
    async with served(app) as (client, _):
        assert (await client.get("/7")).status_code == 200
    assert seen == ["invoice:7"]


async def test_a_dependency_that_is_overridden_is_looked_at_in_its_place() -> None:
    app = FastAPI()
    seen = seen_names(app)

    @app.get("/{number}")
    async def work(found: Annotated[int, Depends(find_deeper)]) -> str:
        return str(found)

    async def find_text(number: str) -> str:
        return number

    async def find_float(number: float) -> float:
        return number

    async with served(app) as (client, _):
        assert (await client.get("/07")).json() == "7"
        app.dependency_overrides[find] = find_text
        assert (await client.get("/07")).json() == "07"
        app.dependency_overrides[find] = find_float
        with pytest.raises(ConfigError, match="as a float"):
            await client.get("/7")
    assert seen == ["invoice:7", "invoice:07"]
    with pytest.raises(ConfigError, match="as a float"):
        async with served(app):
            pass


async def test_a_lock_that_cannot_see_the_endpoints_parameters_is_refused() -> None:
    request = Request({"type": "http", "app": FastAPI(), "path_params": {"number": "7"}})
    with pytest.raises(ConfigError, match="does not say which parameters"):
        await anext(lock("invoice:{number}")(request))


async def test_hold_takes_the_value_that_the_endpoint_gets() -> None:
    app = FastAPI()

    @app.get("/{number}")
    async def work(request: Request, number: int) -> str:
        async with hold(request, "invoice:{number}") as lease:
            return lease.name

    async with served(app) as (client, _):
        assert (await client.get("/07")).json() == "invoice:7"


def application(name: Callable[..., Any]) -> FastAPI:
    """Returns an application that answers with the name of the lock which the function names."""
    app = FastAPI()

    @app.post("/{number}")
    async def work(lease: Annotated[Lease, Depends(lock(name))]) -> str:
        return lease.name

    return app


async def test_a_function_makes_the_name_of_what_fastapi_has_checked() -> None:
    def name(number: int, tenant: str = "all") -> str:
        return f"{tenant}:{number}"

    async with served(application(name)) as (client, _):
        assert (await client.post("/07?tenant=a")).json() == "a:7"
        assert (await client.post("/seven")).status_code == 422


async def test_the_function_may_be_async_and_ask_for_the_request() -> None:
    async def name(request: Request, number: int) -> str:
        return f"{request.method}:{number}"

    async with served(application(name)) as (client, _):
        assert (await client.post("/07")).json() == "POST:7"


async def test_a_function_that_returns_no_name_is_an_error_of_the_application() -> None:
    app = FastAPI()
    nothing: Any = lambda number: None  # noqa: E731

    @app.post("/{number}", dependencies=[Depends(lock(nothing))])
    async def work() -> None: ...

    async with served(app) as (client, _):
        with pytest.raises(ConfigError, match="returned None"):
            await client.post("/7")


@pytest.mark.parametrize("function", [lambda *names: "x", lambda **names: "x", lambda name, /: "x"])
def test_a_function_that_fastapi_cannot_call_is_refused(function: Any) -> None:
    with pytest.raises(ConfigError, match="cannot fill in"):
        lock(function)
