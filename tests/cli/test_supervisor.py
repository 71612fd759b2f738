"""The supervisor's decisions, where the outcome of a real run would depend on a race."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import LeaseLost
from holdfast.cli import supervisor as supervising
from holdfast.cli.child import Child
from holdfast.cli.report import Report
from holdfast.cli.supervisor import Supervisor
from holdfast.cli.terminal import Terminal
from holdfast.cli.wakeups import Wakeups
from holdfast.cli.work import work


class FakeLease:
    name = "x"
    ttl = 3.0

    def __init__(self, left: float) -> None:
        self.left = left

    @property
    def held(self) -> bool:
        return self.left > 0

    def remaining(self) -> float:
        return self.left

    def renew(self) -> None:
        if not self.left:
            raise LeaseLost("over")


class FakeChild:
    pid = 0
    status = None

    def __init__(self) -> None:
        self.told: list[int] = []

    def tell(self, number: int) -> None:
        self.told.append(number)

    def wake(self) -> None:
        self.tell(signal.SIGCONT)


class FakeWakeups:
    def nudge(self) -> None: ...

    def wait_for(self, happened: Any, seconds: float) -> bool:
        return True


@pytest.mark.parametrize(("left", "goes_on"), [(3.0, True), (0.9, False), (0.0, False)])
def test_it_is_continued_only_under_a_lease_that_will_last(left: float, goes_on: bool) -> None:
    child = FakeChild()
    lease: Any = FakeLease(left)
    wakeups: Any = FakeWakeups()
    supervisor = Supervisor(lease, child, wakeups, None, Report(None), 5.0)  # type: ignore[arg-type]
    supervisor._continue()
    assert child.told == ([signal.SIGCONT] if goes_on else [])


def test_it_is_continued_once_a_slow_renewal_has_come() -> None:
    clock = [0.0]
    child, lease, wakeups = Stubborn(clock), FakeLease(0.9), Passing(clock)
    supervisor = Supervisor(lease, child, wakeups, None, Report(None), 5.0)  # type: ignore[arg-type]
    supervisor._continue()
    assert child.told == []
    lease.left = 3.0
    assert supervisor._goes_on()
    assert child.told == [signal.SIGCONT]
    assert supervisor._goes_on()
    assert child.told == [signal.SIGCONT]


class Stubborn(FakeChild):
    """Lives until it is killed; notes when it was told what."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__()
        self.clock = clock
        self.heard: list[float] = []

    def tell(self, number: int) -> None:
        self.heard.append(self.clock[0])
        super().tell(number)

    def poll(self) -> None: ...

    def ask_to_end(self) -> None:
        if not self.told:
            self.tell(signal.SIGTERM)

    def kill(self) -> bool:
        self.tell(signal.SIGKILL)
        return True

    def lives(self) -> bool:
        return signal.SIGKILL not in self.told


class Passing(FakeWakeups):
    """Nothing comes, and the time passes."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    def wait(self, seconds: float) -> list[int]:
        self.clock[0] += seconds
        return []


@pytest.mark.parametrize(("left", "grace", "killed"), [(0.9, 60.0, 0.65), (3.0, 0.1, 0.1)])
def test_it_is_told_first_and_killed_before_the_lease_ends(
    left: float, grace: float, killed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(supervising, "now", lambda: clock[0])
    child, lease, wakeups = Stubborn(clock), FakeLease(left), Passing(clock)
    supervisor = Supervisor(lease, child, wakeups, None, Report(None), grace)  # type: ignore[arg-type]
    supervisor.lost = "for a test"
    supervisor._end()
    assert child.told == [signal.SIGTERM, signal.SIGKILL]
    assert child.heard == pytest.approx([0.0, killed])


class FakeTerminal:
    default_signals = ()

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class EndedLease(FakeLease):
    """A lease that was confirmed, and ended while we stood still."""

    owner = "me"
    names = "x"
    tokens: dict[str, int] = {"x": 1}  # noqa: RUF012  # nobody changes it

    def ensure(self) -> None:
        raise LeaseLost("over")


def test_under_a_lease_that_has_ended_no_command_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[object] = []
    terminal = FakeTerminal()
    monkeypatch.setattr(Child, "start", lambda *words: started.append(words))
    monkeypatch.setattr(Terminal, "open", lambda: terminal)
    request: Any = SimpleNamespace(report=Report(None), command=["true"], leftovers="wait")
    attempt: Any = SimpleNamespace(lease=EndedLease(0.0), waited=0.0, tethers=())
    wakeups: Any = SimpleNamespace(hear_stops=lambda: None)
    with pytest.raises(LeaseLost):
        work(request, attempt, wakeups)
    assert not started
    assert terminal.closed


def test_signals_are_heard_though_the_time_was_up() -> None:
    """After a pause, poll answers that its time is over before it looks at what has come."""
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    before = signal.set_wakeup_fd(-1)
    wakeups = Wakeups()
    try:
        signal.raise_signal(signal.SIGUSR1)
        assert wakeups.wait(0.0) == [signal.SIGUSR1]
        assert wakeups.wait(0.0) == []
        signal.raise_signal(signal.SIGUSR2)
        assert not wakeups.wait_for(lambda: False, 0.01)
        assert wakeups.wait(10.0) == [signal.SIGUSR2]
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakeups._read)
        os.close(wakeups._write)
        for number, handler in handlers.items():
            if handler is not None and handler is not signal.getsignal(number):
                signal.signal(number, handler)
