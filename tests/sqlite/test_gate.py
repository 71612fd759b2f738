"""The gate lets one in at a time, in time, whatever becomes of those before it."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import BackendUnavailable
from holdfast.stores.sqlite.gate import Gate
from sqlite.gates import CROWD, HEAD, fewer_threads, free, inside, now, soon_free, threads
from sqlite.processes import Start, line, starter, tell


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "locks.db")


@pytest.fixture
def start(path: str) -> Iterator[Start]:
    with starter(path) as start:
        yield start


@pytest.fixture
def gate(path: str) -> Iterator[Gate]:
    gate = Gate(path)
    yield gate
    gate.close()


def test_in_and_out(gate: Gate) -> None:
    before = threads()
    for _ in range(3):
        gate.enter()
        assert not free(gate)
        gate.leave()
        assert free(gate)
    gate.leave()  # not inside: nothing
    gate.enter(now() - 1)  # too late, but it is free
    gate.leave()
    assert threads() == before


def test_exclusion_among_processes_and_threads(start: Start) -> None:
    crowd = [start(CROWD, "3", "60", "60") for _ in range(4)]
    assert [process.communicate()[0].strip() for process in crowd] == ["180"] * 4


def test_exclusion_when_many_give_up(start: Start, gate: Gate) -> None:
    """Turns come at about the moment at which one thread gives up and the next one begins."""
    crowd = [start(CROWD, "4", "400", "0.0004") for _ in range(3)]
    for process in crowd:
        done, *bad = process.communicate()[0].split()
        assert bad == []
        assert 0 < int(done) <= 1600
    assert free(gate)


def test_two_gates_of_one_process_exclude_each_other(gate: Gate, path: str) -> None:
    other = Gate(path, patience=0.05)
    gate.enter()
    with pytest.raises(BackendUnavailable):
        other.enter()
    gate.leave()
    other.enter()
    with pytest.raises(BackendUnavailable):
        gate.enter(now() + 0.05)
    other.leave()
    other.close()
    assert soon_free(gate)


def test_the_next_one_waits_and_gets_it(gate: Gate, start: Start) -> None:
    process = inside(start)
    begun = now()
    threading.Timer(0.1, tell, (process,)).start()
    gate.enter(now() + 5)
    assert 0.09 < now() - begun < 4
    assert not free(gate)
    gate.leave()
    assert free(gate)


def test_a_killed_holder_lets_the_next_one_in_at_once(gate: Gate, start: Start) -> None:
    process = inside(start)
    killed: list[float] = []

    def kill() -> None:
        killed.append(now())
        process.kill()

    threading.Timer(0.1, kill).start()
    gate.enter(now() + 5)
    assert now() - killed[0] < 4
    gate.leave()


def test_a_frozen_holder_costs_the_deadline_and_no_more(gate: Gate, start: Start) -> None:
    process = inside(start)
    before = threads()
    process.send_signal(signal.SIGSTOP)
    for patience in (0.0, 0.1, 0.1):
        begun = now()
        with pytest.raises(BackendUnavailable, match=r"locks\.db-live/gate.*") as raised:
            gate.enter(begun + patience)
        assert patience <= now() - begun < patience + 4
        assert "frozen" in str(raised.value)
    assert threads() == before + 1
    # Several threads wait in vain, each until its own deadline.
    late: list[float] = []

    def wait(deadline: float) -> None:
        with pytest.raises(BackendUnavailable):
            gate.enter(deadline)
        late.append(now() - deadline)

    begun = now()
    waiting = [
        threading.Thread(target=wait, args=(begun + seconds,)) for seconds in (0.3, 0.1, 0.2)
    ]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert all(0 <= seconds < 4 for seconds in late)
    # It thaws. Our helper is the next in the queue, nobody waits for it, and it gives the turn on.
    process.send_signal(signal.SIGCONT)
    tell(process)
    assert line(process) == "out"
    assert soon_free(gate)
    gate.enter(now() + 5)
    gate.leave()
    assert free(gate)
    assert fewer_threads(before + 1)


def test_a_crowd_is_not_taken_for_a_frozen_holder(gate: Gate, path: str, start: Start) -> None:
    process = inside(start)
    threading.Timer(0.05, Path(f"{path}-wal").write_bytes, (b"written",)).start()
    with pytest.raises(BackendUnavailable, match="many others write to it"):
        gate.enter(now() + 1)
    tell(process)
    assert line(process) == "out"


def test_a_late_grant_goes_to_whoever_waits_by_then(gate: Gate, start: Start) -> None:
    process = inside(start)
    with pytest.raises(BackendUnavailable):
        gate.enter(now() + 0.01)
    threading.Timer(0.1, tell, (process,)).start()
    gate.enter(now() + 5)
    assert not free(gate)
    gate.leave()
    assert free(gate)


def test_grants_that_race_with_deadlines(gate: Gate, start: Start) -> None:
    """Many turns come at about the moment of giving up; the gate is never held for nobody."""
    holder = start(
        HEAD + "for _ in range(60): gate.enter(now() + 60); time.sleep(0.004); gate.leave()\n"
        "say('done')"
    )
    entered = 0
    for _ in range(200):
        try:
            gate.enter(now() + 0.003)
        except BackendUnavailable:
            continue
        assert not free(gate)
        entered += 1
        gate.leave()
    assert entered
    assert holder.communicate()[0].strip() == "done"
    assert soon_free(gate)


def test_close(path: str, start: Start) -> None:
    gate = Gate(path)
    gate.enter()
    gate.close()  # at leave(), then
    assert not free(gate)
    gate.leave()
    assert free(gate)
    with pytest.raises(BackendUnavailable, match="closed"):
        gate.enter()
    gate.close()

    process = inside(start)
    gate = Gate(path)
    before = threads()
    with pytest.raises(BackendUnavailable):
        gate.enter(now() + 0.01)
    assert threads() == before + 1
    gate.close()  # the helper is blocked, and closes when it is through
    tell(process)
    assert fewer_threads(before)
    assert soon_free(gate)

    gate = Gate(path)
    process = inside(start)
    threading.Timer(0.05, tell, (process,)).start()
    gate.enter(now() + 5)
    gate.leave()
    gate.close()  # the helper is idle, and ends
    assert fewer_threads(before)


def test_a_descriptor_closed_behind_our_back(gate: Gate, start: Start) -> None:
    gate.enter()
    gate.leave()
    os.close(gate._fd)
    with pytest.raises(BackendUnavailable, match=os.strerror(errno.EBADF)):
        gate.enter()
    gate.enter()
    gate.leave()

    # The helper too finds it closed, and uses the new one afterwards.
    process = inside(start)
    threading.Timer(0.05, tell, (process,)).start()
    gate.enter(now() + 5)
    os.close(gate._fd)
    gate.leave()
    process = inside(start)
    threading.Timer(0.05, tell, (process,)).start()
    gate.enter(now() + 5)
    assert not free(gate)
    gate.leave()
    assert free(gate)


def test_no_folder(tmp_path: Path) -> None:
    gate = Gate(str(tmp_path / "missing" / "locks.db"))
    with pytest.raises(BackendUnavailable, match="cannot open"):
        gate.enter()
