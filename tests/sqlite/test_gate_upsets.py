"""Interrupts, re-entry and forks: the gate is never left shut, nor open for two."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import BackendUnavailable
from holdfast.stores.sqlite.gate import Gate
from sqlite.gates import CROWD, HEAD, free, inside, now, soon_free
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


def test_an_interrupt_leaves_nothing_behind(gate: Gate, start: Start) -> None:
    process = inside(start)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        # Only once it waits: at any other moment the interrupt would be the end of the whole run.
        while gate._waiter is None:
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    for _ in range(3):
        interrupter = threading.Thread(target=interrupt, daemon=True)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            gate.enter(now() + 60)
        interrupter.join()
    tell(process)
    assert line(process) == "out"
    assert soon_free(gate)
    gate.enter(now() + 1)
    gate.leave()


def test_interrupts_at_every_point(start: Start) -> None:
    """A handler that raises, thousands of times, all over enter() and leave(), crowded."""
    crowd = start(CROWD, "2", "3000", "60")
    shaken = start(
        HEAD
        + """
class Shock(BaseException): pass
armed = False
def shock(*_):
    global armed
    if armed:
        armed = False
        raise Shock
signal.signal(signal.SIGALRM, shock)
hit = 0
end = time.monotonic() + 1
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.00037)
def once():
    try:
        gate.enter(now() + 60)
    finally:
        try:
            gate.leave()
        except BaseException:
            gate.leave()
            raise
def shaken():  # without a loop, whose turning is not inside a `try` around it
    global armed, hit
    try:
        armed = True
        once()
    except Shock:
        hit += 1
    armed = False
while hit <= 100 or time.monotonic() < end:
    try:
        shaken()
    except Shock:
        hit += 1
signal.setitimer(signal.ITIMER_REAL, 0)
gate.enter(now() + 60); gate.leave()
say(hit > 100); sys.stdin.readline()
"""
    )
    assert line(shaken) == "True"
    # It is idle and still alive: if it held the gate, these would not end.
    assert crowd.communicate()[0].strip() == "6000"


def test_coming_back_inside_is_refused_at_once(gate: Gate) -> None:
    gate.enter()
    begun = now()
    with pytest.raises(BackendUnavailable, match="signal handler"):
        gate.enter(begun + 5)
    assert now() - begun < 4
    assert not free(gate)
    gate.leave()
    assert free(gate)


def test_a_forked_child_does_not_share_the_gate(gate: Gate, start: Start) -> None:
    process = start(
        HEAD
        + "gate.enter(None)\n"
        + "if not os.fork():\n"
        + "    gate.leave()\n"  # the parent's, and so without effect
        + "    try: gate.enter(now() + 0.1)\n"
        + "    except BackendUnavailable: say('kept out')\n"
        + "    sys.stdin.readline(); gate.enter(now() + 5); say('let in'); os._exit(0)\n"
        + "os.wait()\n"
    )
    assert line(process) == "kept out"
    assert not free(gate)
    process.kill()  # the parent, inside; the child has nothing of it open
    process.wait()
    assert soon_free(gate)
    tell(process)
    assert line(process) == "let in"


def test_an_idle_child_does_not_keep_a_dead_parents_gate_shut(gate: Gate, start: Start) -> None:
    process = start(
        HEAD + "gate.enter(None)\nif not os.fork(): say('up'); sys.stdin.readline(); os._exit(0)\n"
        "signal.pause()"
    )
    assert line(process) == "up"
    process.kill()
    assert soon_free(gate)
