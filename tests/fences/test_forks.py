"""A child that was forked while a fence was in use: it waits for nobody, and keeps nobody waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import StaleToken
from holdfast.fences import FencingMiddleware, FileFence, MemoryFence, floors, request_path

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def in_a_child(work: Callable[[], object]) -> None:
    """Does the work in a forked child, which is ended if it hangs."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(30)
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_child_that_is_forked_inside_a_body_has_a_memory_of_its_own() -> None:
    fence = MemoryFence()
    turn = fence.hold("x", 34)

    def work() -> None:
        fence.guard("x", 35)
        with fence.hold("x", 36):
            turn.__exit__(None, None, None)  # the child leaves its parent's body, too
            assert fence._turns.taken("x")
        assert not fence._turns.taken("x")
        assert fence.highest("x") == 36

    with turn:
        in_a_child(work)
        assert fence._turns.taken("x")
    assert (fence.highest("x"), fence._turns.taken("x")) == (34, False)


def test_a_child_that_is_forked_while_another_thread_is_inside_the_fence() -> None:
    fence = MemoryFence()

    def work() -> None:
        fence.guard("x", 34)
        fence.reset("x", by="ada")
        fence.reset_floors(by="ada")
        fence.prune(60)

    with fence._mutex:
        in_a_child(work)
    with fence._turns._mutex:
        in_a_child(work)
    fence.guard("x", 33)


def test_a_child_that_is_forked_in_the_middle_of_a_prune(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is gone by then is in the floors."""
    fence = MemoryFence()
    fence.guard("x", 34)
    raised = floors.raised

    def work() -> None:
        monkeypatch.undo()
        with pytest.raises(StaleToken):
            fence.guard("x", 33)
        fence.prune(60)

    def forking(*given: Any) -> Any:
        in_a_child(work)
        return raised(*given)

    monkeypatch.setattr(floors, "raised", forking)
    threading.Event().wait(0.002)
    assert fence.prune(0.001) == 1


def environ(token: str, path: str = "/x") -> dict[str, Any]:
    return {
        "wsgi.version": (1, 0),
        "REQUEST_METHOD": "PUT",
        "PATH_INFO": path,
        "HTTP_FENCING_TOKEN": token,
    }


def test_a_worker_that_is_forked_inside_a_request() -> None:
    started: list[str] = []

    def start(status: str, *_: object) -> None:
        started.append(status)

    def application(request: dict[str, Any], start_response: Any) -> list[bytes]:
        if request["HTTP_FENCING_TOKEN"] == "34":
            in_a_child(ask)
            memory = service._memory
            with memory._counting:
                memory._room = 0
                in_a_child(ask)
        start_response("204 No Content", [])
        return []

    def ask() -> None:
        for path in ("/x", "/new"):
            list(service(environ("35", path), start))
            assert started.pop() == "204 No Content"

    service: Any = FencingMiddleware(application, fence=MemoryFence(), resource=request_path)
    list(service(environ("34"), start))
    assert started == ["204 No Content"]


PROGRAM = """
import os, signal, sys
from holdfast.fences import FileFence

with FileFence().hold(sys.argv[1], 34):
    pid = os.fork()
    if pid:
        print(pid, flush=True)
    signal.pause()
"""


def test_a_killed_process_leaves_its_turn_to_no_child(tmp_path: Path) -> None:
    path = tmp_path / "file"
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            parent.kill()
            writer = threading.Thread(
                target=FileFence().write, args=(path, "next", 35), daemon=True
            )
            writer.start()
            writer.join(60)
            assert not writer.is_alive()
        finally:
            os.kill(child, signal.SIGKILL)
    assert path.read_text() == "next"


def test_a_child_takes_back_nothing_of_its_parents(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FileFence().write(path, "old", 33)
    turn = FileFence().hold(path, 34)

    def work() -> None:
        turn.retract()
        turn.__exit__(None, None, None)

    with turn:
        in_a_child(work)
        assert FileFence().highest(path) == 34
    assert FileFence().highest(path) == 34
