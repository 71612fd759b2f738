"""HTTP: what the middleware remembers, of whom, and in which of several workers."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
from holdfast.fences import (
    FencingMiddleware,
    HttpFence,
    MemoryFence,
    fencing_headers,
    request_path,
    verify_fenced,
)
from servers import web

HUGE = str(2**63 - 1)


def wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response(f"{environ.get('HTTP_X_ANSWER', 204)} Whatever", [("Content-Length", "0")])
    return [b""]


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    answer = dict(scope["headers"]).get(b"x-answer", b"204")
    await send({"type": "http.response.start", "status": int(answer), "headers": []})
    await send({"type": "http.response.body", "body": b""})


APPS: dict[str, Callable[..., Any]] = {"asgi": asgi, "wsgi": wsgi}


@pytest.fixture(params=["asgi-process", "wsgi-process", "asgi-folder", "wsgi-folder"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    name: str = request.param
    return name, tmp_path


@contextmanager
def serving(site: tuple[str, Path], **options: Any) -> Iterator[httpx.Client]:
    name, folder = site
    interface, memory = name.split("-")
    place: Any = {"fence": MemoryFence()} if memory == "process" else {"folder": folder}
    options.setdefault("resource", request_path)
    made = FencingMiddleware(APPS[interface], **place, **options)
    with (
        getattr(web, interface)(made) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=60) as client,
    ):
        yield client


def put(
    client: httpx.Client, token: object, answer: int = 204, path: str = "/x", **more: str
) -> int:
    headers = {"Fencing-Token": str(token), "X-Answer": str(answer), **more}
    return client.put(path, headers=headers).status_code


@pytest.mark.parametrize("answer", [400, 401, 403, 404, 405, 407, 412, 422, 429])
def test_what_the_application_refuses_is_not_remembered(site: Any, answer: int) -> None:
    """An anonymous request with a token, or a lock, that it made up does not shut out the holder."""
    with serving(site) as client, holdfast.connect("memory://") as locks:
        lease = locks.lock("x").acquire()
        shown = fencing_headers(lease)
        for path in ("/x", "/y"):
            assert put(client, HUGE, answer, path) == answer
            false = {"Fencing-Lock": "memory:holdfast/of%20nobody"}
            assert put(client, 1, answer, path, **false) == answer
            assert client.put(path, headers=shown).status_code == 204
            assert put(client, HUGE, answer, path) == answer  # and also where one is remembered
            assert client.put(path, headers=shown).status_code == 204
            assert put(client, lease.token - 1, path=path) == 409


@pytest.mark.parametrize("answer", [200, 201, 302, 500, 503])
def test_what_may_have_been_written_is_remembered(site: Any, answer: int) -> None:
    with serving(site) as client:
        assert put(client, 35, answer) == answer
        assert put(client, 34) == 409


def test_which_answers_count_is_the_applications_to_say(site: Any) -> None:
    with serving(site, accepted=lambda status: status != 202) as client:
        assert put(client, 35, 202) == 202
        assert put(client, 34, 422) == 422
        assert put(client, 33) == 409


def test_a_token_that_was_refused_is_not_used_up(tmp_path: Path) -> None:
    with serving(("asgi-folder", tmp_path), single_use=True) as client:
        for answer, seen in ((401, 401), (204, 204), (204, 409)):
            assert put(client, 34, answer) == seen


def test_many_paths_that_are_refused_leave_nothing(site: Any) -> None:
    with serving(site) as client:
        for number in range(50):
            assert put(client, number + 1, 404, f"/made up/{number}") == 404
    assert set(os.listdir(site[1])) <= {".holdfast-floors.fence"}


def test_the_memory_is_bounded(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is full, new resources are refused, and not old ones forgotten while they may be used."""
    from holdfast.fences import request_memory

    monkeypatch.setattr(request_memory, "COUNT_EVERY", 1)
    monkeypatch.setattr(request_memory, "PRUNE_EVERY", 0.0)
    with serving(site, most=5) as client:
        for number in range(5):
            assert put(client, 34, path=f"/{number}") == 204
        for _ in range(2):
            full = client.put("/other", headers={"Fencing-Token": "34"})
            assert full.status_code == 503
            assert "most=" in full.json()["error"]
        assert put(client, 33, path="/1") == 409
        assert put(client, 35, path="/1") == 204
        # A day later what was not written to is forgotten; its tokens do not come back.
        monkeypatch.setattr(request_memory, "DAY", 1e-9)
        time.sleep(0.005)  # older than the grain of a file's time
        assert put(client, 36, path="/other") == 204
        assert put(client, 33, path="/2") == 409


def test_one_thing_under_two_paths_is_the_applications_to_name(site: Any) -> None:
    def item(request: Any) -> str:
        return f"item {int(request_path(request).rpartition('/')[2])}"

    with serving(site, resource=item) as client:
        assert put(client, 35, path="/item/1") == 204
        assert put(client, 34, path="/item/01") == 409
        assert put(client, 34, path="/item/2") == 204


def test_workers_with_a_folder_know_of_each_other(tmp_path: Path) -> None:
    """Two real processes that accept on one socket: 34 passes in neither of them after 35."""
    code = (
        "import os, socket, sys, uvicorn\n"
        "from holdfast.fences import FencingMiddleware, request_path\n"
        "async def app(scope, receive, send):\n"
        "    pid = [(b'x-pid', str(os.getpid()).encode())]\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': pid})\n"
        "    await send({'type': 'http.response.body', 'body': b''})\n"
        "app = FencingMiddleware(app, folder=sys.argv[2], resource=request_path)\n"
        "server = uvicorn.Server(uvicorn.Config(app, log_level='error', lifespan='off'))\n"
        "server.run([socket.socket(fileno=int(sys.argv[1]))])\n"
    )
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        command = [sys.executable, "-c", code, str(listening.fileno()), str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        for _ in range(2):
            worker = subprocess.Popen(command, pass_fds=[listening.fileno()], env=environment)
            stack.callback(worker.wait)
            stack.callback(worker.kill)
        client = stack.enter_context(httpx.Client(base_url=url, trust_env=False, timeout=60))
        verify_fenced(client, url)
        seen: set[str] = set()
        token, deadline = 35, time.monotonic() + 60
        while len(seen) < 2 and time.monotonic() < deadline:  # until both have let one pass
            close = {"Connection": "close"}
            passed = client.put("/x", headers={"Fencing-Token": str(token), **close})
            assert passed.status_code == 200
            seen.add(passed.headers["x-pid"])
            late = client.put("/x", headers={"Fencing-Token": str(token - 1), **close})
            assert late.status_code == 409
            token += 1
        assert len(seen) == 2


def test_several_memories_behind_one_address_are_found_out(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    for places in (
        [{"folder": folder} for folder in folders],
        [{"fence": MemoryFence()}, {"fence": MemoryFence()}],
    ):
        workers = [FencingMiddleware(wsgi, resource=request_path, **one) for one in places]
        turns = itertools.cycle(workers)
        with web.wsgi(lambda *request, turns=turns: next(turns)(*request)) as url:
            for verify in (verify_fenced, HttpFence().verify):
                with pytest.raises(holdfast.GuaranteeError, match="each remembers"):
                    verify(httpx, url, shared=False)


async def test_the_memory_of_one_process_is_not_taken_for_a_shared_one() -> None:
    made: Any = FencingMiddleware(asgi, MemoryFence(), resource=request_path)
    with web.asgi(made) as url:
        with pytest.raises(holdfast.GuaranteeError, match="memory of one process"):
            verify_fenced(httpx, url)
        verify_fenced(httpx, url, shared=False)
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(holdfast.GuaranteeError, match="memory of one process"):
                await verify_fenced(client, url)


def test_a_server_that_says_it_has_several_processes_is_believed(tmp_path: Path) -> None:
    environ = {
        "REQUEST_METHOD": "PUT",
        "PATH_INFO": "/x",
        "HTTP_FENCING_TOKEN": "34",
        "wsgi.version": (1, 0),
        "wsgi.multiprocess": True,
    }
    alone: Any = FencingMiddleware(wsgi, MemoryFence(), resource=request_path)
    with pytest.raises(holdfast.ConfigError, match="folder="):
        alone(environ, lambda *_: None)
    shared: Any = FencingMiddleware(wsgi, folder=tmp_path, resource=request_path)
    answer = shared(environ, lambda *_: None)
    assert list(answer) == [b""]
    answer.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_worker_that_was_forked_has_a_memory_of_its_own() -> None:
    made: Any = FencingMiddleware(wsgi, MemoryFence(), resource=request_path)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, made._memory.identity.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with open(reading) as pipe:
        assert pipe.read() not in ("", made._memory.identity)


def test_a_crash_while_the_application_runs_leaves_the_token_remembered(tmp_path: Path) -> None:
    """It may have written: a process that dies before its answer must not forget it."""
    code = (
        "import os, signal, sys\n"
        "from holdfast.fences import FencingMiddleware, request_path\n"
        "def app(environ, start_response): os.kill(os.getpid(), signal.SIGKILL)\n"
        "made = FencingMiddleware(app, folder=sys.argv[1], resource=request_path)\n"
        "made({'REQUEST_METHOD': 'PUT', 'PATH_INFO': '/x', 'HTTP_FENCING_TOKEN': '35',\n"
        "      'wsgi.version': (1, 0)}, None)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(command, env=environment, timeout=60, check=False).returncode == -9
    with serving(("wsgi-folder", tmp_path)) as client:
        assert put(client, 34) == 409
        assert put(client, 35) == 204


@pytest.mark.parametrize("memory", ["process", "folder"])
async def test_a_loop_goes_on_while_its_memory_is_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str
) -> None:
    place: Any = {"fence": MemoryFence()} if memory == "process" else {"folder": tmp_path}
    made: Any = FencingMiddleware(asgi, resource=request_path, most=2, **place)
    pruning, go_on = threading.Event(), threading.Event()
    prune = made._memory._prune
    prunes = []

    def slow() -> None:
        prunes.append(1)
        pruning.set()
        assert go_on.wait(30)
        prune()

    monkeypatch.setattr(made._memory, "_prune", slow)
    transport = httpx.ASGITransport(made)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:

        async def put(path: str) -> int:
            return (await client.put(path, headers={"Fencing-Token": "34"})).status_code

        assert [await put("/0"), await put("/1")] == [204, 204]
        others = [asyncio.create_task(put(f"/{number}")) for number in range(2, 5)]
        assert await asyncio.to_thread(pruning.wait, 30)
        assert await put("/1") == 204  # which is known, and has no need to wait
        assert not any(task.done() for task in others)
        go_on.set()
        assert await asyncio.gather(*others) == [503] * 3
    assert len(prunes) == 1
