"""Turns at a resource: nobody waits for himself, and a guard waits for whoever is inside."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.fences import FencingMiddleware, FileFence, MemoryFence, request_path


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], tuple[Any, str]]:
    """Returns a fence, and the name of a resource; each time a fence of its own, if it can have one."""
    memory = MemoryFence()
    if request.param == "memory":
        return lambda: (memory, "x")
    return lambda: (FileFence(), str(tmp_path / "x"))


Make = Callable[[], tuple[Any, str]]


def test_a_thread_does_not_wait_for_itself(make: Make) -> None:
    (fence, name), (other, _) = make(), make()
    with fence.hold(name, 34):
        with pytest.raises(holdfast.ConfigError, match="wait for itself"):
            other.hold(name, 35).__enter__()
        with pytest.raises(holdfast.ConfigError, match="wait for itself"):
            other.guard(name, 35)
        assert other.highest(name) == 34  # which waits for nobody
    fence.guard(name, 35)
    assert fence.highest(name) == 35


async def test_a_task_does_not_wait_for_itself(make: Make) -> None:
    fence, name = make()
    async with fence.hold(name, 34):
        with pytest.raises(holdfast.ConfigError, match="wait for itself"):
            async with fence.hold(name, 35):
                raise AssertionError("it has the turn itself")
    async with fence.hold(name, 35):
        assert fence.highest(name) == 35
    with fence.hold(name, 36), pytest.raises(holdfast.ConfigError, match="wait for itself"):
        async with fence.hold(name, 36):
            raise AssertionError("it has the turn itself")


async def test_a_loop_is_not_frozen_by_a_thread_that_waits_for_its_own_task(make: Make) -> None:
    fence, name = make()
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with fence.hold(name, 34):
            inside.set()
            await go_on.wait()

    task = asyncio.create_task(hold())
    await inside.wait()
    with pytest.raises(holdfast.ConfigError, match="in asyncio use"):
        fence.guard(name, 35)
    if isinstance(fence, FileFence):
        with pytest.raises(holdfast.ConfigError, match="in asyncio use"):
            fence.write(name, "late", 35)
    waiting = asyncio.create_task(asyncio.to_thread(fence.guard, name, 35))  # as it says
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(task, waiting)
    assert fence.highest(name) == 35


async def test_nor_by_one_that_waits_behind_a_task_of_its_own() -> None:
    """The turn is a thread's, which hands it to a task of this loop, which must be able to run."""
    fence = MemoryFence()
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with fence.hold("x", 34):
            inside.set()
            assert go_on.wait(60)

    async def next_one() -> None:
        async with fence.hold("x", 34):
            pass

    thread = threading.Thread(target=hold)
    thread.start()
    assert await asyncio.to_thread(inside.wait, 60)
    task = asyncio.create_task(next_one())
    await asyncio.sleep(0)
    assert fence._turns.waiting("x") == 1
    try:
        with pytest.raises(holdfast.ConfigError, match="in asyncio use"):
            fence.guard("x", 35)
    finally:
        go_on.set()
    await task
    await asyncio.to_thread(thread.join, 60)
    fence.guard("x", 35)


def test_a_guard_waits_for_whoever_is_inside(make: Make) -> None:
    """Otherwise 35 reads what 34, who passed before, has still to write."""
    fence, name = make()
    done = threading.Event()

    def guard() -> None:
        fence.guard(name, 35)
        done.set()

    with fence.hold(name, 34):
        thread = threading.Thread(target=guard)
        thread.start()
        assert not done.wait(0.2)
        assert fence.highest(name) == 34
    assert done.wait(60)
    thread.join(60)
    assert fence.highest(name) == 35


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_waits_for_its_parent(tmp_path: Path) -> None:
    """It is another process, though its thread has the same number."""
    fence, path = FileFence(), tmp_path / "x"
    with fence.hold(path, 34):
        pid = os.fork()
        if pid == 0:
            try:
                fence.write(path, "the child's", 35)
            finally:
                os._exit(0 if path.exists() else 1)
        done, _ = os.waitpid(pid, os.WNOHANG)
        assert done == 0 or not path.exists()
    _, status = os.waitpid(pid, 0)
    assert (os.waitstatus_to_exitcode(status), path.read_text()) == (0, "the child's")


def test_what_is_taken_back_was_never_there(make: Make) -> None:
    fence, name = make()
    for before in (0, 34):
        with fence.hold(name, 50) as nothing:
            assert nothing is None
        turn = fence.hold(name, 99)
        with turn:
            turn.retract()
        assert fence.highest(name) == 50
        fence.reset(name, by="a test", to=before)


class Chunks:
    """A response of an application, in pieces, which counts how often it is closed."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self.closed = 0

    def __iter__(self) -> Any:
        return iter(self._pieces)

    def close(self) -> None:
        self.closed += 1


def request(token: int) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "PUT",
        "PATH_INFO": "/x",
        "HTTP_FENCING_TOKEN": str(token),
        "wsgi.version": (1, 0),
    }


@pytest.mark.parametrize("memory", ["process", "folder"])
def test_a_response_that_nobody_closes(memory: str, tmp_path: Path) -> None:
    """As the test clients of web frameworks do: they take the first piece, and go on."""
    body = Chunks(b"ab", b"cd")
    headers = [("Content-Length", "2")]

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", headers)
        return body

    place: Any = {"fence": MemoryFence()} if memory == "process" else {"folder": tmp_path}
    made: Any = FencingMiddleware(app, resource=request_path, **place)
    for token in (33, 34):  # all that was promised has been handed over: the turn is over
        assert next(iter(made(request(token), lambda *_: None))) == b"ab"
    headers = []
    unread = made(request(35), lambda *_: None)
    assert next(iter(unread)) == b"ab"  # and of this nobody knows whether it is all
    with pytest.raises(holdfast.ConfigError, match="close it"):
        made(request(36), lambda *_: None)
    unread.close()
    assert body.closed == 3  # the first two, too, though nobody did: with their last bytes
    assert list(made(request(36), lambda *_: None)) == [b"ab", b"cd"]  # read to its end
    assert list(made(request(37), lambda *_: None)) == [b"ab", b"cd"]


def test_flasks_test_client() -> None:
    from flask import Flask

    app = Flask("app")
    app.add_url_rule("/x", view_func=lambda: "done", methods=["PUT"])
    app.add_url_rule("/empty", view_func=lambda: ("", 204), methods=["PUT"], endpoint="empty")
    fenced: Any = FencingMiddleware(app.wsgi_app, MemoryFence(), resource=request_path)
    app.wsgi_app = fenced  # type: ignore[method-assign]
    client = app.test_client()
    for path in ("/x", "/empty"):
        answers = []  # kept, and so not closed
        for token, status in ((34, (200, 204)), (35, (200, 204)), (34, (409,))):
            answers.append(client.put(path, headers={"Fencing-Token": str(token)}))
            assert answers[-1].status_code in status
