"""The parts of a run: its history, its registers, its plan."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.chaos.faults import FAULTS
from holdfast.chaos.history import Event, History, Reader, in_order, now, open_file
from holdfast.chaos.plan import chance_of, moments
from holdfast.chaos.registers import LARGEST, Registers, Writer


@contextmanager
def history() -> Iterator[tuple[History, Reader]]:
    fd = open_file()
    try:
        yield History(fd, now()), Reader(fd)
    finally:
        os.close(fd)


def test_a_history_is_read_while_it_is_written() -> None:
    fd = open_file()
    reader, writer = Reader(fd), History(fd, now())
    assert reader.read() == []
    writer.add("w1", "ask", lock="x")
    os.write(fd, b'{"at": 1.0, "lane": "w2", "ki')
    assert [event["lane"] for event in reader.read()] == ["w1"]
    os.write(fd, b'nd": "ask"}\n')
    assert [event["lane"] for event in reader.read()] == ["w2"]
    assert reader.read() == []
    os.close(fd)


def test_a_fault_is_one_event_with_its_end() -> None:
    with history() as (writer, reader):
        writer.add("redis", "fault", 2.0, name="pause", until=None, number=1)
        writer.add("w1", "grant", 2.5)
        writer.add("redis", "fault", 2.0, number=1, until=3.0)
        writer.add("w1", "ask", 1.0)
        events = in_order(reader.read())
    assert [event["kind"] for event in events] == ["ask", "fault", "grant"]
    assert events[1] == {"at": 2.0, "lane": "redis", "kind": "fault", "name": "pause", "until": 3.0}


def test_the_registers_take_writes_as_they_arrive() -> None:
    with history() as (writer, reader):
        registers = Registers(writer)
        try:
            registers.delay = lambda lane: 0.3 if lane == "slow" else 0.0
            Writer(registers.outside, "slow").send("x", 1, 0, 1)
            Writer(registers.outside, "quick").send("x", 2, 0, 2)
            events: list[Event] = []
            while len(events) < 4:
                events += reader.read()
        finally:
            registers.close()
    found = [(one["register"], one["from"], one["accepted"], one["stale"]) for one in events]
    assert found == [
        ("fenced", "quick", True, False),
        ("unfenced", "quick", True, False),
        ("fenced", "slow", False, True),
        ("unfenced", "slow", True, True),
    ]


def test_what_is_late_arrives_before_the_registers_close() -> None:
    with history() as (writer, reader):
        registers = Registers(writer)
        registers.delay = lambda lane: 1000.0
        Writer(registers.outside, "w1").send("x", None, 5, 1)
        registers.close()
        registers.close()
        assert [event["register"] for event in reader.read()] == ["unfenced"]


def test_a_seed_makes_the_plan() -> None:
    for fault in FAULTS:
        one, same, other = (
            moments(chance_of(seed, "redis", fault), fault, 1.5, 20.0) for seed in (1, 1, 2)
        )
        assert one == same != other
        assert sum(moment.wait + moment.lasts for moment in one) <= 20.0
        assert all(moment.wait > 0 for moment in one)
    assert len(moments(chance_of(1), "pause", 1.5, 0.1)) == 1  # at least one, however short it is


def test_other_tasks_go_on_while_the_registers_have_no_room() -> None:
    asyncio.run(_fill_the_registers())


async def _fill_the_registers() -> None:
    inbox, outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    writer = Writer(outside, "w2")
    with inbox, outside:
        sent = 0
        while True:
            try:
                await asyncio.wait_for(writer.send_async("x", 1, 0, sent), 0.1)
                sent += 1
            except TimeoutError:
                break
        waiting = asyncio.create_task(writer.send_async("x", 1, 0, sent))
        await asyncio.sleep(0)
        assert not waiting.done()
        numbers = [json.loads(inbox.recv(LARGEST))[-1] for _ in range(sent)]
        await waiting
        assert [*numbers, json.loads(inbox.recv(LARGEST))[-1]] == list(range(sent + 1))
