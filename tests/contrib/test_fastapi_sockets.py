"""FastAPI and Starlette: a lock for a WebSocket, and what is answered there."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from holdfast import LeaseLost
from holdfast.aio import Lease
from holdfast.contrib.fastapi import hold, lock

from .fastapi_clients import served
from .programs import LIMIT


class Socket:
    """A client of a WebSocket, as a server shows it to the application."""

    def __init__(self, app: Any, path: str) -> None:
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._said.put_nowait({"type": "websocket.connect"})
        scope = {
            "type": "websocket",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [],
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        self._task = asyncio.create_task(app(scope, self._said.get, self._hear))

    async def _hear(self, message: Any) -> None:
        self._heard.put_nowait(dict(message))

    async def hears(self, kind: str) -> dict[str, Any]:
        """Returns the next message of this kind."""
        async with asyncio.timeout(LIMIT):
            while (message := await self._heard.get())["type"] != f"websocket.{kind}":
                pass
        return message

    def unheard(self) -> list[str]:
        """Returns the kinds of the messages that were not asked for yet."""
        return [self._heard.get_nowait()["type"] for _ in range(self._heard.qsize())]

    async def end(self) -> None:
        """Goes away, and waits for the application."""
        self._said.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await self._task

    async def ended(self) -> None:
        """Waits until the application has ended by itself."""
        await self._task


def site(kind: str) -> Any:
    """Returns an application whose WebSockets hold a lock until they hear something."""

    async def say(socket: WebSocket, lease: Lease) -> None:
        await socket.accept()
        await socket.send_text(f"{lease.name} {lease.held}")
        with suppress(KeyError):  # which Starlette raises for a client that goes away
            await socket.receive_text()

    async def with_hold(socket: WebSocket) -> None:
        async with hold(socket, "room:{number}", timeout=0.0) as lease:
            await say(socket, lease)

    if kind == "starlette":
        return Starlette(routes=[WebSocketRoute("/{number:int}", with_hold)])
    app = FastAPI()

    @app.websocket("/{number}")
    async def talk(
        socket: WebSocket,
        number: int,
        lease: Annotated[Lease, Depends(lock("room:{number}", timeout=0.0))],
    ) -> None:
        await say(socket, lease)

    return app


@pytest.mark.parametrize("kind", ["fastapi", "starlette"])
async def test_a_socket_holds_its_lock_and_a_second_one_is_409(kind: str) -> None:
    app = site(kind)
    async with served(app) as (_, locks):
        first = Socket(app, "/7")
        assert (await first.hears("send"))["text"] == "room:7 True"
        second = Socket(app, "/07")
        refused = await second.hears("http.response.start")
        assert refused["status"] == 409
        assert (b"retry-after", b"1") in refused["headers"]
        await second.ended()
        with suppress(Exception):
            await first.end()
        assert not (await locks.inspect("room:7")).held


@pytest.mark.parametrize("kind", ["fastapi", "starlette"])
async def test_a_socket_whose_lease_is_lost_is_closed(kind: str) -> None:
    app = site(kind)
    async with served(app) as (_, locks):
        socket = Socket(app, "/7")
        await socket.hears("send")
        await locks.force_release("room:7")
        assert (await socket.hears("close"))["code"] == 1013
        await socket.ended()


async def test_a_path_that_the_endpoint_would_refuse_is_refused() -> None:
    app = site("fastapi")
    async with served(app):
        socket = Socket(app, "/seven")
        assert (await socket.hears("close"))["code"] == 1008
        await socket.ended()


@pytest.mark.parametrize("who", ["application", "client"])
async def test_a_socket_that_is_closed_is_told_nothing_more(who: str) -> None:
    """What went wrong comes out as it is, not as a message that nobody can be sent."""

    async def work(socket: WebSocket) -> None:
        await socket.accept()
        async with hold(socket, "room", timeout=0.0):
            if who == "application":
                await socket.close()
            else:
                await socket.receive()
            await socket.app.state.locks.force_release("room")
            await asyncio.sleep(LIMIT)

    app = Starlette(routes=[WebSocketRoute("/", work)])
    async with served(app):
        socket = Socket(app, "/")
        await socket.hears("accept")
        with pytest.raises(LeaseLost):
            await (socket.end() if who == "client" else socket.ended())
        assert socket.unheard() == (["websocket.close"] if who == "application" else [])
