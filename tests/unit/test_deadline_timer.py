"""One timer for all calls of a connection: it looks twice before it says that a reply is late."""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from math import inf

import pytest
import uvloop

from holdfast.stores.deadline_timer import DeadlineTimer
from holdfast.stores.etcd.wire.http2.frames import DATA, END_HEADERS, HEADERS, frame, settings
from holdfast.stores.etcd.wire.http2.grpc import framed
from holdfast.stores.etcd.wire.http2.multiplexed import SILENCE, MultiplexedConnection
from worlds.aio import eventually

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Calls:
    """Calls by name, each with its deadline, and those that were told that they are late."""

    def __init__(self) -> None:
        self.deadlines: dict[str, float] = {}
        self.late: list[str] = []
        loop = asyncio.get_running_loop()
        self.timer = DeadlineTimer(loop, time.monotonic, self.first, self.expire)

    def begin(self, name: str, seconds: float) -> None:
        deadline = self.deadlines[name] = time.monotonic() + seconds
        if deadline < self.timer.due:
            self.timer.arm(deadline)

    def first(self) -> float:
        return min(self.deadlines.values(), default=inf)

    def expire(self, now: float) -> float:
        for deadline, name in sorted((due, name) for name, due in self.deadlines.items()):
            if deadline <= now:
                del self.deadlines[name]
                self.late.append(name)
        return self.first()


@pytest.mark.parametrize("make_loop", LOOPS)
def test_each_call_is_told_in_turn(make_loop: object) -> None:
    async def scene() -> None:
        calls = Calls()
        calls.begin("second", 0.03)
        calls.begin("first", 0.01)
        calls.begin("third", 0.05)
        await eventually(lambda: calls.late == ["first", "second", "third"])
        assert calls.timer.due == inf

    with asyncio.Runner(loop_factory=make_loop) as runner:  # type: ignore[arg-type]
        runner.run(scene())


class Stopped(selectors.DefaultSelector):
    """A selector that once returns nothing though there is something, as after SIGSTOP and SIGCONT."""

    stopped = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.stopped:
            self.stopped = False
            return []
        return super().select(timeout)


def test_a_reply_that_came_while_the_program_stood_still_is_read_first() -> None:
    selector = Stopped()

    async def scene() -> None:
        calls = Calls()
        answered: list[bytes] = []

        class Reader(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                answered.append(data)
                calls.deadlines.clear()

        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(Reader, sock=ours)
        calls.begin("call", 0.02)
        theirs.send(b"reply")
        time.sleep(0.05)
        selector.stopped = True
        await eventually(lambda: bool(answered))
        assert calls.late == []
        calls.timer.cancel()
        transport.close()
        theirs.close()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(asyncio.wait_for(scene(), 30))


def test_a_client_of_etcd_that_stood_still_reads_the_reply_and_keeps_its_connection() -> None:
    selector = Stopped()

    async def scene() -> None:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: MultiplexedConnection(time.monotonic), sock=ours
        )
        call = connection.call(b"", b"request", time.monotonic() + 0.02, linger=True)
        task = loop.create_task(call)
        await asyncio.sleep(0)
        reply = settings({}) + frame(HEADERS, END_HEADERS, 1, b"\x88")
        theirs.send(reply + frame(DATA, 0, 1, framed(b"reply")))
        time.sleep(SILENCE + 0.1)
        selector.stopped = True
        stream = await task
        assert (stream.messages, connection.usable) == ([b"reply"], True)
        connection.lose("done")
        theirs.close()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(asyncio.wait_for(scene(), 30))


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_call_that_begins_between_the_two_looks_does_not_put_off_the_second(
    make_loop: object,
) -> None:
    async def scene() -> None:
        calls = Calls()
        calls.begin("late", 0.0)
        calls.begin("later", 3600.0)
        while calls.deadlines:
            if "late" not in calls.deadlines:
                break
            calls.begin("later", 3600.0)  # in every turn of the loop
            await asyncio.sleep(0)
        assert calls.late == ["late"]
        calls.timer.cancel()
        assert calls.timer.due == inf

    with asyncio.Runner(loop_factory=make_loop) as runner:  # type: ignore[arg-type]
        runner.run(asyncio.wait_for(scene(), 30))
