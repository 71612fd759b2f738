"""Several locks as one, for a command that runs under all of them: `holdfast run A B -- COMMAND`."""

from __future__ import annotations

from collections.abc import Callable

from .. import MultiLease


class SeveralLeases:
    """The leases on several locks, as a supervisor sees a lease."""

    kind = "multi"

    def __init__(self, lease: MultiLease) -> None:
        self._lease = lease
        self.leases = list(lease.leases.values())
        self.name = ", ".join(lease.names)
        self.names = ",".join(lease.names)
        self.tokens = dict(lease.tokens)
        self.owner = ",".join(part.owner for part in self.leases)
        self.ttl = lease.ttl

    @property
    def held(self) -> bool:
        return self._lease.held

    def remaining(self) -> float:
        return self._lease.remaining()

    def ensure(self) -> None:
        self._lease.ensure()

    def on_lost(self, callback: Callable[[object], None]) -> None:
        self._lease.on_lost(callback)

    def renew(self) -> None:
        self._lease.renew()

    def release(self) -> bool:
        return self._lease.release()

    def tethers(self) -> tuple[int, ...]:
        """Returns the descriptors that a command inherits, so that the leases outlive us with it."""
        found = (part.tether() for part in self.leases)
        return tuple(tether for tether in found if tether is not None)
