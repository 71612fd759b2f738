"""A campaign: the runs of one `holdfast chaos`, a few at a time, with the known-bad ones among them.

A checker that has never caught anything proves nothing. So each campaign has controls: locks that are
known to be bad, under the fault that shows it. If one is not caught, the campaign has failed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from ..errors import LockError
from . import verdicts
from .conductor import Conductor, Impossible, Unreachable
from .labs import LABS, Lab, lab_class, open_lab, own_lab
from .peers import STORES_OF
from .servers.errors import ServerError
from .setup import OURS, Setup

Tell = Callable[[Setup, float | None, str], None]
"""Is called with what happens in a run: its setup, the seconds since it began, and the words."""

OWN = "own"
"""The name of the user's store in a report, where the lab is not one of `LABS`."""


def controls(seed: int) -> list[Setup]:
    """Returns the runs of locks that are known to be bad, each with the rule that it must break."""
    made = partial(Setup, seed=seed)
    return [
        made(store="redis", fault="pause", library="plain", control=verdicts.NO_FENCE),
        made(store="redis", fault="pause", library="write-back", control=verdicts.EXCLUSION),
        made(
            store="redis",
            fault="lost-reply",
            library="redis-py",
            control=verdicts.GHOSTS,
            workers=1,
            rest=0.6,
            between=True,
        ),
        made(
            store="redis+replica",
            fault="failover",
            library="plain",
            control=verdicts.EXCLUSION,
            hold=0.2,
            least=0.6,
        ),
    ]


def stores_for(library: str) -> tuple[str, ...]:
    """Returns the stores that a library can be used with."""
    return tuple(LABS) if library == OURS else STORES_OF[library]


def faults_of(store: str) -> tuple[str, ...]:
    """Returns the faults that the lab of a store can do on this machine."""
    return faults_possible(lab_class(store))


def faults_possible(lab: type[Lab]) -> tuple[str, ...]:
    """Returns the faults that such a lab can do on this machine, without starting it."""
    from .faults import FAULTS

    return tuple(name for name in FAULTS if why_not(lab, name) is None)


def why_not(lab: type[Lab], fault: str) -> str | None:
    """Returns why such a lab cannot do the fault on this machine; None if it can."""
    from .faults import FAULTS
    from .tiers import tier

    if fault not in lab.possible:
        return f"{lab.title} has nothing that {FAULTS[fault].title} could hit"
    found = tier(lab.tier_of(fault))
    return None if found.available else found.why


class Campaign:
    """Runs, of which a few are made at the same time."""

    def __init__(self, setups: Sequence[Setup], tell: Tell, url: str = "", jobs: int = 2) -> None:
        self._setups = list(setups)
        self._tell = tell
        self._url = url
        self._jobs = max(1, min(jobs, len(self._setups)))
        self._stop = threading.Event()
        self.late: list[dict[str, Any]] = []
        """The runs that were under way when `run` was left early: what was seen of them."""

    def stop(self) -> None:
        """Ends all runs soon: what is broken is mended, what was seen so far is judged."""
        self._stop.set()

    def run(self) -> Generator[dict[str, Any]]:
        """Yields each run as the report has it, as it is done."""
        waiting: SimpleQueue[Setup] = SimpleQueue()
        for setup in self._setups:
            waiting.put(setup)
        done: SimpleQueue[dict[str, Any] | BaseException | None] = SimpleQueue()
        threads = [
            threading.Thread(target=self._work, args=(waiting, done), name=f"run {number}")
            for number in range(self._jobs)
        ]
        for thread in threads:
            thread.start()
        try:
            running = len(threads)
            while running:
                try:
                    one = done.get(timeout=0.2)  # so that Ctrl-C is heard meanwhile
                except Empty:
                    continue
                if one is None:
                    running -= 1
                elif isinstance(one, BaseException):
                    raise one
                else:
                    yield one
        finally:
            self.stop()
            for thread in threads:
                thread.join()
            while not done.empty():
                one = done.get()
                if isinstance(one, dict):
                    self.late.append(one)

    def _work(self, waiting: Any, done: Any) -> None:
        # Servers and workers end with the thread that started them, so each run is in one thread.
        try:
            while not self._stop.is_set():
                try:
                    setup = waiting.get_nowait()
                except Empty:
                    return
                self._tell(setup, None, "begins")
                done.put(self._conduct(setup))
        except BaseException as error:
            done.put(error)
        finally:
            done.put(None)

    def _conduct(self, setup: Setup) -> dict[str, Any]:
        opened: Callable[[], Lab] = partial(open_lab, setup.store, setup.fault)
        if self._url and not setup.control:
            opened = partial(own_lab, self._url)
        conductor = Conductor(setup, opened, self._tell, self._stop)
        try:
            return conductor.run()
        except (Unreachable, LockError) as error:
            if self._url and not setup.control:
                raise
            return conductor.failure(f"nobody was granted the lock before any fault: {error}")
        except Impossible as error:
            return conductor.failure(str(error))
        except ServerError as error:
            return conductor.failure(f"the store could not be started or mended: {error}")
