"""The embedded store: a file, and no server. Its faults are those of the workers and of the disk."""

from __future__ import annotations

import shutil

from ...guarantees import Guarantees
from ...stores.sqlite.guarantees import SQLITE
from ..faults import CLOCK, Fault
from ..servers.errors import ServerError
from ..servers.processes import make_folder, remove_folder
from ..servers.rooms import Rooms
from ..servers.stepped import SteppedClock
from ..servers.tracing import Trace
from ..tiers import tier
from .lab import CannotBreak, Chance, Injury, Lab
from .leftovers import left_on

WRITES = "?pwrite64,fsync,fdatasync"


class SqliteLab(Lab):
    name = "sqlite"
    title = "the embedded store"
    calls = "?pread64,?pwrite64,fcntl,fdatasync,?sendto,?sendmsg,write,read"
    possible = (
        "pause",
        "holder-crash",
        "delay",
        "amnesia",
        "clock",
        "slow-disk",
        "disk-error",
        "kill-at-call",
    )

    def __init__(self, rooms: Rooms | None = None) -> None:
        super().__init__(rooms)
        self._folder = make_folder("sqlite")
        self._clocks: dict[str, SteppedClock] = {}

    @property
    def guarantees(self) -> Guarantees:
        return SQLITE

    @property
    def nodes(self) -> tuple[str, ...]:
        return ("file",)

    @property
    def direct_url(self) -> str:
        return f"sqlite://{self._folder}/locks.db"

    def url_for(self, worker: str) -> str:
        return self.direct_url

    def environment_for(self, worker: str) -> dict[str, str]:
        """The wall clock of a worker can be stepped, as there is no server that has one."""
        own = super().environment_for(worker)
        if not tier(CLOCK).available:
            return own
        if worker not in self._clocks:
            self._clocks[worker] = SteppedClock()
        return {**own, **self._clocks[worker].environment}

    def wait_ready(self) -> None:
        """A file is always there."""

    def ghosts(self, namespace: str) -> list[str]:
        return left_on(self.direct_url, namespace, self.options)

    def stop(self) -> None:
        for clock in self._clocks.values():
            clock.remove()
        remove_folder(self._folder)

    def _amnesia(self, fault: Fault, chance: Chance) -> Injury:
        for path in list(self._folder.iterdir()):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return Injury(fault.name, ["file"], "the file was removed, with all that is beside it")

    def _clock(self, fault: Fault, chance: Chance) -> Injury:
        worker = chance.victim
        clock = self._clocks.get(worker.name)
        if clock is None:
            raise CannotBreak(f"{worker.name} was started without a clock that can be stepped")
        size = int(chance.ttl * 2) + chance.random.randint(1, 30)
        step = chance.random.choice((size, -size))
        clock.step(step)
        text = f"the wall clock of {worker.name} is stepped by {step:+d} s"
        return Injury(fault.name, [worker.name], text, lambda: clock.step(0))

    def _slow_disk(self, fault: Fault, chance: Chance) -> Injury:
        seconds = chance.ttl * chance.random.uniform(0.05, 0.2)
        text = f"each write of {{}} to the file takes {seconds:.1f} s"
        return self._trace(fault, chance, f"{WRITES}:delay_enter={int(seconds * 1e6)}", text)

    def _disk_error(self, fault: Fault, chance: Chance) -> Injury:
        return self._trace(
            fault, chance, f"{WRITES}:error=EIO", "each write of {} to the file fails"
        )

    def _trace(self, fault: Fault, chance: Chance, injection: str, text: str) -> Injury:
        worker = chance.victim
        try:
            trace = Trace([worker.pid], injection)
        except ServerError as error:
            raise CannotBreak(str(error)) from None
        text = text.format(worker.name)
        return Injury(fault.name, [worker.name], text, trace.stop, count=trace.count)
