"""The conductor of a run: one library on one store under one kind of fault.

It starts the workers, breaks what the plan says when the plan says it, mends it, waits until everybody
is granted the lock again, ends the workers in order, looks for what they left, and has it judged.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from ..errors import LockError
from . import plan, verdicts
from .crew import WorkerProcess
from .history import Event, History, Reader, now, open_file
from .job import Job
from .labs import CannotBreak, Chance, Injury, Lab
from .outcome import caught, failure, outcome
from .peers import PEERS, left_by
from .registers import Registers
from .setup import OURS, Setup

STEP = 0.01
"""Seconds between two looks of the conductor."""
PATIENCE = 30.0
"""Seconds that each worker is given to be granted the lock again after the last fault."""
LONGEST_CONTROL = 40.0
"""Seconds in which a lock that is known to be bad has to be caught."""
AGAIN = 2
"""How often a fault is tried again, for longer, where each one so far hit nothing."""
START = 120.0
"""Seconds that workers are given to begin, beside whatever else this machine has to do."""
ON_THE_WAY = ("delay", "lost-reply", "reset", "kill-at-call")
"""Faults of a request, which are as interesting for one that asks as for a holder."""


class Stopped(Exception):
    """Raised inside a run when the whole command is to end."""


class Unreachable(Exception):
    """Raised when no worker was granted the lock at all, before there was any fault."""


class Impossible(Exception):
    """Raised when the lab of a run cannot do its fault at all; the text says why."""


class Conductor:
    """One run. `tell` is called with what happens, for people; `stop` ends it early."""

    def __init__(
        self,
        setup: Setup,
        open_lab: Callable[[], Lab],
        tell: Callable[[Setup, float, str], None],
        stop: threading.Event,
    ) -> None:
        self.setup = setup
        self._open_lab = open_lab
        self._tell = tell
        self._stop = stop
        self._chance = plan.chance_of(setup.seed, setup.library, setup.store, setup.fault)
        self._zero = now()
        self._began = time.time()
        self._workers: dict[str, WorkerProcess] = {}
        self._holders: dict[str, str] = {}
        """The lane of the worker that holds each lock, as far as the history says."""
        self._busy: set[str] = set()
        """The workers from their request to the end of its release."""
        self._events: list[Event] = []
        self._grants = 0
        self._faults = 0
        self._hits = 0
        self._misses = 0
        """The faults that hit nothing: a slow disk, say, of a node that wrote nothing meanwhile."""
        self._refusal = ""
        """The reason for which the lab could not do the latest fault that it could not do."""
        self._late: set[str] = set()
        """The workers whose writes arrive late now."""

    def run(self) -> dict[str, Any]:
        """Returns the run as the report has it."""
        setup = self.setup
        with ExitStack() as stack:
            fd = open_file()
            stack.callback(os.close, fd)
            self._history = History(fd, self._zero)
            self._reader = Reader(fd)
            registers = Registers(self._history)
            stack.callback(registers.close)
            registers.delay = self._lateness
            lab = stack.enter_context(self._open_lab())
            ttl = max(setup.ttl, lab.shortest_ttl)
            namespace = f"chaos-{os.getpid()}-{abs(hash((setup, self._zero))) % 10**8}"
            stack.callback(self._end_workers)
            self._start_workers(lab, ttl, namespace, fd, registers.outside.fileno())
            stopped = False
            stuck: list[str] = []
            try:
                self._await_grants(0.0)
                self._break(lab, ttl)
                lab.heal()
                stuck = self._await_recovery()
            except Stopped:
                stopped = True
                lab.heal()
            self._stop_workers(ttl)
            registers.close()
            ghosts = [] if stopped else self._look_for_ghosts(lab, namespace, ttl)
            self._poll()
            starved: list[str] = []
            if len(stuck) < len(self._workers) and not lab.guarantees.fair:
                stuck, starved = starved, stuck
            ending = verdicts.Ending(stuck, ghosts, starved, PATIENCE)
            return outcome(
                setup,
                self._began,
                lab,
                list(self._workers),
                self._events,
                ending,
                stopped=stopped,
                refusal=self._refusal,
            )

    def failure(self, text: str) -> dict[str, Any]:
        """Returns the report of a run that could not be made."""
        return failure(self.setup, self._began, text)

    # The workers.

    def _start_workers(
        self, lab: Lab, ttl: float, namespace: str, history: int, registers: int
    ) -> None:
        setup = self.setup
        # Most other libraries do not renew a lock, so their users may not hold it for long.
        long = setup.long if setup.library == OURS else 0.0
        for number in range(setup.workers):
            name = f"w{number + 1}"
            peer = setup.library in PEERS
            job = Job(
                name,
                setup.library,
                "asyncio" if number % 2 and not peer else "blocking",
                lab.url_for(name),
                namespace,
                tuple(f"x{lock}" if lock else "x" for lock in range(setup.locks)),
                ttl,
                setup.hold,
                setup.rest,
                long,
                setup.least,
                4 * ttl + 2.0,
                f"{setup.seed}/{setup.id}/{name}",
                0,
                self._zero,
                history,
                registers,
                {} if peer else lab.options,
            )
            environment = {**os.environ, **lab.environment_for(name)}
            command = [*lab.inside(name), sys.executable, "-m", "holdfast.chaos.worker"]
            worker = WorkerProcess(job, command, environment)
            self._workers[name] = worker
            worker.start()

    def _await_grants(self, since: float) -> None:
        """Waits until each worker was granted the lock; that some was is enough at the limit."""
        limit = now() + START
        while any(worker.granted_at < since for worker in self._workers.values()):
            self._rest()
            if now() > limit:
                if self._grants:
                    return
                failures = [event["text"] for event in self._events if event["kind"] == "fail"]
                raise Unreachable(failures[-1] if failures else "no worker was granted the lock")

    def _end_workers(self) -> None:
        for worker in self._workers.values():
            worker.kill()

    def _stop_workers(self, ttl: float) -> None:
        """Ends the workers in order: what they hold is released."""
        for worker in self._workers.values():
            worker.ask_to_stop()
        limit = now() + 8 * ttl + PATIENCE
        for worker in self._workers.values():
            if not worker.wait(max(limit - now(), 0.1)):
                self._history.add(worker.name, "stop", text="it did not end, and was killed")
                worker.kill()

    # What happens.

    def _poll(self) -> None:
        """Reads what was added to the history."""
        for event in self._reader.read():
            self._events.append(event)
            kind, lane = event["kind"], event["lane"]
            if kind == "ask":
                self._busy.add(lane)
            elif kind in ("end", "fail", "stop"):
                self._busy.discard(lane)
            if kind == "grant":
                self._grants += 1
                self._holders[event["lock"]] = lane
                self._workers[lane].granted_at = event["at"]
            elif kind in ("release", "told"):
                for lock, holder in list(self._holders.items()):
                    if holder == lane:
                        del self._holders[lock]

    def _rest(self) -> None:
        """Waits for a moment, and sees what happened meanwhile."""
        if self._stop.is_set():
            raise Stopped
        time.sleep(STEP)
        self._poll()
        for worker in self._workers.values():
            if worker.ended not in (None, 0, -signal.SIGKILL):
                raise AssertionError(
                    f"worker {worker.name} ended with status {worker.ended}:\n{worker.complaint()}"
                )

    def _lateness(self, lane: str) -> float:
        """Returns the seconds by which a write of this worker arrives late at the registers."""
        return self.setup.ttl * 1.3 if lane in self._late else 0.0

    def _break(self, lab: Lab, ttl: float) -> None:
        """Does what the plan says."""
        setup = self.setup
        duration = LONGEST_CONTROL if setup.control else setup.duration
        end = now() + duration
        lasts = 0.0
        for number, moment in enumerate(plan.moments(self._chance, setup.fault, ttl, duration)):
            at = now() + moment.wait
            if number and at + moment.lasts > end:
                break  # to mend the one before took long
            while now() < at:
                self._rest()
            if setup.control and caught(setup, self._events):
                return
            lasts = moment.lasts
            self._strike(lab, ttl, lasts)
        for _ in range(AGAIN):
            if self._hits or not self._misses:
                break
            lasts *= 2
            self._strike(lab, ttl, lasts)
        while now() < end:
            self._rest()

    def _strike(self, lab: Lab, ttl: float, lasts: float) -> None:
        """Breaks something, waits, and mends it."""
        aside = self.setup.between
        if not aside and self.setup.fault in ON_THE_WAY:
            aside = self._chance.random() < 0.5
        limit = now() + ttl
        while not (self._idle() if aside else self._holders) and now() < limit:
            self._rest()
        holder = None if aside else next(iter(self._holders.values()), None)
        workers = list(self._workers.values())
        chance = Chance(
            self._chance, ttl, workers, self._workers[holder] if holder is not None else None
        )
        at = self._history.now()
        try:
            injury = lab.apply(self.setup.fault, chance)
        except CannotBreak as error:
            self._refusal = str(error)
            self._tell(self.setup, at, f"could not be done: {error}")
            return
        except ValueError as error:
            raise Impossible(str(error)) from error
        numbers = self._note_fault(injury, at)
        self._tell(self.setup, at, injury.text)
        if self.setup.fault == "delay":
            self._late = set(injury.lanes)
        end = now() + lasts
        try:
            while now() < end:
                self._rest()
        finally:
            self._late = set()
            injury.heal()
            over = self._history.now()
            until = round(over, 6)
            for lane, number in numbers:
                self._history.add(
                    lane, "fault", at, number=number, until=until, missed=injury.missed
                )
            self._start_again(injury)
        if injury.missed:
            self._misses += 1
            self._tell(self.setup, over, f"hit nothing: {injury.text}")
        else:
            self._hits += 1

    def _idle(self) -> bool:
        """Tells whether nobody holds the lock, nor wants it where faults come between holds."""
        return not self._holders and not (self.setup.between and self._busy)

    def _note_fault(self, injury: Injury, at: float) -> list[tuple[str, int]]:
        numbers = []
        for lane in injury.lanes:
            self._faults += 1
            numbers.append((lane, self._faults))
            self._history.add(
                lane,
                "fault",
                at,
                name=injury.fault,
                until=None,
                text=injury.text,
                number=self._faults,
            )
        return numbers

    def _start_again(self, injury: Injury) -> None:
        """Starts again the workers that were killed."""
        dead = {name for name, one in self._workers.items() if one.ended == -signal.SIGKILL}
        for lane in sorted(dead.union(injury.killed)):
            worker = self._workers[lane]
            worker.wait(PATIENCE)
            worker.kill()
            self._history.add(lane, "stop", text="killed")
            for lock, holder in list(self._holders.items()):
                if holder == lane:
                    del self._holders[lock]
            if not self._stop.is_set():
                worker.start()

    def _await_recovery(self) -> list[str]:
        """Returns the workers that were not granted the lock in time after the last fault."""
        if self.setup.control:
            return []
        since = self._history.now()
        limit = now() + PATIENCE
        while any(worker.granted_at < since for worker in self._workers.values()):
            self._rest()
            if now() > limit:
                return [w.name for w in self._workers.values() if w.granted_at < since]
        return []

    def _look_for_ghosts(self, lab: Lab, namespace: str, ttl: float) -> list[str]:
        """Returns what is left on the store once all leases have had time to run out."""
        if self.setup.library in PEERS:
            return left_by(self.setup.library, lab.direct_url, namespace)
        limit = now() + 2 * ttl + 20.0
        while True:
            try:
                left = lab.ghosts(namespace)
            except LockError as error:
                left = [f"the store could not be looked at: {error}"]
            if not left or now() > limit:
                return left
            time.sleep(0.1)
