"""Responses of WSGI applications that still write while their body is handed over, or closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.fences import FencingMiddleware, MemoryFence, request_path

PUT = {
    "REQUEST_METHOD": "PUT",
    "PATH_INFO": "/x",
    "HTTP_FENCING_TOKEN": "34",
    "wsgi.version": (1, 0),
}


class Body:
    """A body that does the last of its work behind its last bytes, and in `close()`."""

    def __init__(self, write: Callable[[str], None], fails: str = "") -> None:
        self._write = write
        self._fails = fails

    def __iter__(self) -> Iterator[bytes]:
        yield b"do"
        yield b"ne"
        self._write("behind the last bytes")
        if self._fails == "body":
            raise ZeroDivisionError

    def close(self) -> None:
        self._write("close")
        if self._fails == "close":
            raise ZeroDivisionError


class Stage:
    """An application behind a fence, which notes each write, and whether it had the turn."""

    def __init__(self, length: str | None = None, fails: str = "", status: str = "200 OK") -> None:
        self.fence = MemoryFence()
        self.writes: list[tuple[str, bool]] = []
        headers = [("Content-Length", length)] if length is not None else []

        def app(_: Any, start_response: Any) -> Any:
            start_response(status, headers)
            return Body(self.write, fails)

        self.app: Any = FencingMiddleware(app, self.fence, resource=request_path)

    def write(self, what: str) -> None:
        self.writes.append((what, self.fence._turns.taken("/x")))

    def put(self) -> Any:
        return self.app(dict(PUT), lambda *_: lambda _: None)


@pytest.mark.parametrize("length", [None, "4"])
def test_the_turn_lasts_until_the_body_was_closed(length: str | None) -> None:
    stage = Stage(length)
    answer = stage.put()
    assert b"".join(answer) == b"done"
    answer.close()
    assert stage.writes == [("behind the last bytes", True), ("close", True)]
    assert not stage.fence._turns.taken("/x")


def test_a_body_that_is_given_up_is_closed_within_the_turn() -> None:
    stage = Stage()
    answer = stage.put()
    assert next(iter(answer)) == b"do"
    answer.close()
    assert stage.writes == [("close", True)]
    assert not stage.fence._turns.taken("/x")


def test_all_bytes_are_handed_over_though_nobody_asks_for_more() -> None:
    """As by a client for tests that takes as many as were announced."""
    stage = Stage("4")
    answer = stage.put()
    body = iter(answer)
    assert [next(body), next(body)] == [b"do", b"ne"]
    assert stage.writes == [("behind the last bytes", True), ("close", True)]
    assert not stage.fence._turns.taken("/x")
    answer.close()
    assert len(stage.writes) == 2


@pytest.mark.parametrize("length", [None, "4"])
@pytest.mark.parametrize("fails", ["body", "close"])
def test_a_body_that_fails_has_been_seen(length: str | None, fails: str) -> None:
    """It may have written, whatever it answered: its token stays."""
    stage = Stage(length, fails, "400 Bad Request")
    answer = stage.put()
    handed: list[bytes] = []

    def hand_over() -> None:
        for data in answer:
            handed.append(data)
        answer.close()

    with pytest.raises(ZeroDivisionError):
        hand_over()
    assert handed == [b"do", b"ne"]
    answer.close()
    assert not stage.fence._turns.taken("/x")
    assert stage.fence.highest("/x") == 34
    assert [what for what, _ in stage.writes] == ["behind the last bytes", "close"]


def test_a_second_request_waits_for_what_the_first_does_in_close() -> None:
    stage = Stage("4")
    inside, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def write(what: str) -> None:
        if what == "close" and not inside.is_set():
            inside.set()
            assert go_on.wait(30)
        order.append(f"{threading.current_thread().name} {what}")

    stage.write = write  # type: ignore[method-assign]

    def put() -> None:
        answer = stage.put()
        list(answer)
        answer.close()

    first = threading.Thread(target=put, name="first")
    second = threading.Thread(target=put, name="second")
    first.start()
    assert inside.wait(30)
    second.start()
    while not stage.fence._turns.waiting("/x"):
        assert second.is_alive()
    go_on.set()
    first.join(30)
    second.join(30)
    assert [one.split()[0] for one in order] == ["first"] * 2 + ["second"] * 2
