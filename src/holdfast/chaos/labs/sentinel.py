"""A Redis primary, its replica, and three sentinels, which promote that when the primary is gone.

The sentinels tell clients where the primary is: at its switchboard, through which the replica and the
sentinels go, too. So each of them can be cut off by itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from ...guarantees import Guarantees
from ...stores.redis.guarantees import REDIS_SENTINEL
from ..faults import Fault
from ..servers.errors import ServerError
from ..servers.proxy import Place, Proxy
from ..servers.redis import RedisServer
from ..servers.rooms import Rooms
from ..servers.sentinel import NAME, Watch
from ..servers.sites import LOOPBACK
from ..servers.switchboard import Callers, Switchboard
from .lab import Chance, Injury
from .links import Disturbance, LinkedLab
from .redis import DURABLE

SERVERS = ("first", "second")
SENTINELS = ("sentinel 1", "sentinel 2", "sentinel 3")
QUICK, CALM = 300, 60_000
"""Milliseconds of silence after which a primary counts as down: while one is being killed; else."""
FAILOVER_LIMIT = 60.0


class SentinelLab(LinkedLab):
    name = "redis+sentinel"
    title = "Redis with Sentinel"
    programs = ("redis-server:redis-server",)
    modules = ("hiredis",)
    extra = "redis"
    possible = (
        "pause",
        "holder-crash",
        "partition",
        "cut",
        "loss",
        "delay",
        "lost-reply",
        "reset",
        "store-crash",
        "failover",
        "kill-at-call",
    )

    related = True

    def __init__(self, rooms: Rooms | None = None) -> None:
        super().__init__(rooms)
        self._callers = Callers()
        self._doors: list[Switchboard] = []
        try:
            self._watch = Watch(
                door=self._add_door if rooms is None else None,
                named=self._callers.name_process,
                options=DURABLE,
                site=self.site,
            )
        except BaseException:
            self._close_doors()
            raise
        self._watch.calm()

    def _add_door(self, port: int) -> int:
        self._doors.append(Switchboard(port, self._callers))
        return self._doors[-1].port

    def _close_doors(self) -> None:
        for door in self._doors:
            door.close()

    @property
    def guarantees(self) -> Guarantees:
        return REDIS_SENTINEL

    @property
    def nodes(self) -> tuple[str, ...]:
        return (*SERVERS, *SENTINELS)

    def places(self) -> dict[str, Place]:
        places = [sentinel.address for sentinel in self._watch.sentinels]
        return dict(zip(SENTINELS, places, strict=True))

    def links_of(self, worker: str) -> dict[str, Proxy]:
        lines = [door.line(worker) for door in self._doors]
        return {**super().links_of(worker), **dict(zip(SERVERS, lines, strict=True))}

    def url_for(self, worker: str) -> str:
        if self.rooms is not None:
            return super().url_for(worker)
        links = super().links_of(worker)
        return self.url_of([f"{LOOPBACK}:{links[name].port}" for name in SENTINELS])

    def url_of(self, addresses: Sequence[str]) -> str:
        return f"redis+sentinel://{','.join(addresses)}/{NAME}"

    @property
    def direct_url(self) -> str:
        return self._watch.url

    @property
    def primary(self) -> RedisServer:
        return self._watch.primary

    def name_of(self, server: RedisServer) -> str:
        return SERVERS[0] if server is self._watch.first else SERVERS[1]

    def _door_of(self, server: RedisServer) -> Switchboard:
        return self._doors[0] if server is self._watch.first else self._doors[1]

    def _patience(self, milliseconds: int) -> None:
        for sentinel in self._watch.sentinels:
            sentinel("SENTINEL", "SET", NAME, "down-after-milliseconds", milliseconds)

    def _followed(self, old: RedisServer) -> None:
        """Waits until the sentinels name another primary than the old one, and that serves as one."""
        limit = time.monotonic() + FAILOVER_LIMIT
        while True:
            with suppress(OSError, ServerError):
                new = self.primary
                if new is not old and new("ROLE")[0] == b"master":
                    return
            if time.monotonic() > limit:
                raise ServerError("the sentinels have not promoted the replica in time")
            time.sleep(0.01)

    def _replace(self, fault: Fault, old: RedisServer, ttl: float, text: str) -> Injury:
        """Kills the primary; mended once the replica has its place, and it follows as the replica."""
        # A replica that was cut off for longer than ten times that is not promoted.
        self._patience(max(QUICK, int(ttl * 300)))
        old.kill()

        def mend() -> None:
            self._followed(old)
            self._door_of(old).line(self.name_of(self._other(old))).refuse = False
            self._patience(CALM)
            old.start()
            self.wait_ready()

        return Injury(fault.name, [self.name_of(old)], text, mend)

    def _other(self, server: RedisServer) -> RedisServer:
        return self._watch.second if server is self._watch.first else self._watch.first

    def _store_crash(self, fault: Fault, chance: Chance) -> Injury:
        old = self.primary
        text = f"{self.name_of(old)} was killed; the sentinels promote the replica"
        return self._replace(fault, old, chance.ttl, text)

    def _failover(self, fault: Fault, chance: Chance) -> Injury:
        old = self.primary
        replica = self._other(old)
        line = self._door_of(old).line(self.name_of(replica))
        line.refuse = True
        line.hang_up()
        self._watch.await_(lambda: b"master_link_status:down" in replica("INFO", "replication"))
        # All that the replica knows of has ended by then; it misses the renewals, and who came later.
        time.sleep(chance.ttl)
        text = (
            f"{self.name_of(replica)} was cut off from {self.name_of(old)}, which was then killed; "
            "the sentinels promote a replica that knows of no holder"
        )
        return self._replace(fault, old, chance.ttl, text)

    def _partition(self, fault: Fault, chance: Chance) -> Injury:
        """Cuts a worker off; or the primary, from sentinels and replica but not from workers."""
        if chance.random.random() < 0.5:
            return super()._partition(fault, chance)
        old = self.primary
        cut = [self.name_of(self._other(old)), *SENTINELS]
        lines = [self._door_of(old).line(lane) for lane in cut]
        self._patience(QUICK)
        for line in lines:
            line.hold()

        def mend() -> None:
            try:
                self._followed(old)
            finally:
                for line in lines:
                    line.hang_up()
                    line.release()
                self._patience(CALM)
            self.wait_ready()

        name = self.name_of(old)
        text = f"{name} is cut off from the sentinels and its replica; workers still reach it"
        return Injury(fault.name, [name], text, mend)

    def node_to_cut(self, chance: Chance) -> str:
        return self.name_of(self.primary)

    def some_nodes(self, chance: Chance) -> list[str]:
        return [self.name_of(self.primary)]

    def disturb(
        self, fault: Fault, one: str, others: Sequence[str], disturbance: Disturbance
    ) -> Injury:
        """Disturbs packets; the sentinels promote the replica if no packet of the primary passes."""
        injury = super().disturb(fault, one, others, disturbance)
        if fault.name != "cut" or one not in SERVERS:
            return injury
        old = self.primary
        self._patience(QUICK)

        def mend() -> None:
            try:
                self._followed(old)
            finally:
                self._patience(CALM)
                injury.heal()

        return Injury(fault.name, [one], injury.text, mend, count=injury.count)

    def wait_ready(self) -> None:
        self._watch.wait_ready()

    def stop(self) -> None:
        self.close_links()
        self._close_doors()
        self._watch.stop()
