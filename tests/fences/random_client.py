"""A process of the random test of fences: takes leases, keeps stale ones, writes, reads, prunes, dies.

There is no lock store: a file holds what was granted last, and every process may grant itself a lease,
which makes the leases before it stale. So there are many stale holders, and it is known who holds. The
first lock has a leader of long standing, who comes to ever new resources. The last one has so many that
they are pruned. Each line of the log is one call of a fence. `must` says that the lease was held until
the call had ended and was in use, so that the fence had no right to refuse it.
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import random
import signal
import struct
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import holdfast
from fences import object_sites, redis_sites, sql_sites
from fences.every import RANDOM_SITES
from fences.sites import Site
from holdfast.chaos.servers.mariadb import MariaServer
from holdfast.chaos.servers.postgres import PostgresServer
from holdfast.chaos.servers.sites import HERE
from holdfast.fences import sql_guard

LOCKS = 4
RESOURCES = (40, 3, 3, 300)
"""How many resources each lock has."""
READ = (1, 2)
"""The locks that have readers."""
OLDER_THAN = 2.5
"""Seconds for which marks are kept."""
IDLE = 0.8
"""Seconds without a call after which prune may shut a holder out. Redis knows ages to a second."""
FIRST = 10**15
LEVELS = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


class Granted:
    """What was granted: the last token, and for each lock the last one and the last writer's."""

    layout = struct.Struct(f"{1 + 2 * LOCKS}q")

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "granted", os.O_RDWR | os.O_CREAT, 0o600)

    def read(self) -> list[int]:
        text = os.pread(self._file, self.layout.size, 0)
        return list(self.layout.unpack(text)) if text else [FIRST] * (1 + 2 * LOCKS)

    def grant(self, lock: int, reader: bool) -> int:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        state = self.read()
        state[0] += 1
        state[1 + 2 * lock] = state[0]
        if not reader:
            state[2 + 2 * lock] = state[0]
        os.pwrite(self._file, self.layout.pack(*state), 0)
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return state[0]

    def last(self, lock: int) -> tuple[int, int]:
        """The last token that was granted, and the last to a writer."""
        state = self.read()
        return state[1 + 2 * lock], state[2 + 2 * lock]


class GrantedLease:
    owner = "o"

    def __init__(self, lock: int, token: int, reader: bool) -> None:
        self.lock = lock
        self.token = token
        self.shared = reader
        self.kind = "rwlock"
        self.name = f"lock {lock}"
        self.lock_id = f"test:random/{self.name}"
        self.used = time.monotonic()
        self.idle = False
        """True if it was not used for so long that prune may shut it out."""
        self.shown: dict[str, float] = {}


class Client:
    def __init__(self, site: Site, folder: Path, seed: str) -> None:
        self.site = site
        self.dice = random.Random(seed)
        self.granted = Granted(folder)
        self.leases: list[GrantedLease] = []
        self.log = os.open(folder / f"log-{seed}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.number = 0
        self.term: GrantedLease | None = None
        if self.granted.last(0)[0] == FIRST or self.dice.random() < 0.05:
            self.term = GrantedLease(0, self.granted.grant(0, False), False)

    def step(self) -> None:
        dice = self.dice.random()
        if self.term is not None and self.dice.random() < 0.3:
            self.call(self.term, f"r0-{self.dice.randrange(RESOURCES[0])}")
        elif not self.leases or dice < 0.08:
            lock = self.dice.randrange(1, LOCKS)
            reader = self.site.readers and lock in READ and self.dice.random() < 0.4
            self.leases.append(GrantedLease(lock, self.granted.grant(lock, reader), reader))
            del self.leases[:-6]
        elif dice < 0.11 and self.site.prunes:
            self.call(None, "")
        else:
            if dice > 0.995 and self.term is None:
                threading.Timer(self.dice.random() * 0.02, die).start()
            # The newest is used most, and others now and then, also when they are long stale.
            lease = self.leases[-1] if self.dice.random() < 0.6 else self.dice.choice(self.leases)
            self.call(lease, f"r{lease.lock}-{self.dice.randrange(RESOURCES[lease.lock])}")

    def call(self, lease: GrantedLease | None, resource: str) -> None:
        began = time.monotonic()
        outcome, why = "ok", ""
        self.number += 1
        value = f"{lease.token if lease else 0} {self.number} {os.getpid()}"
        entry: dict[str, Any] = {"began": began, "resource": resource}
        if lease is not None:
            entry |= {"token": lease.token, "reader": lease.shared}
            self.write({**entry, "outcome": "begun"})
        ended = 0.0
        try:
            if lease is None:
                self.site.prune(OLDER_THAN)
            elif lease.shared:
                self.site.show(resource, lease)
                ended = time.monotonic()
                before = self.site.read(resource)
                time.sleep(self.dice.random() * 0.005)
                after = self.site.read(resource)
                if before != after and self.granted.last(lease.lock)[1] < lease.token:
                    outcome, why = "changed", f"{before} became {after}"
            else:
                self.site.write(resource, value, lease)
        except holdfast.StaleToken as error:
            outcome, why = "stale", str(error)
        except holdfast.LockError:
            raise
        except Exception as error:
            outcome, why = "error", f"{type(error).__name__}: {error}"[:200]
        ended = ended or time.monotonic()
        entry |= {"ended": ended, "outcome": outcome, "why": why}
        if lease is not None:
            entry["must"] = self.must(lease, resource, ended)
            if outcome == "ok":
                lease.used = lease.shown[resource] = began
        self.write(entry)

    def must(self, lease: GrantedLease, resource: str, ended: float) -> bool:
        lease.idle = lease.idle or ended - lease.used > IDLE
        last, last_writer = self.granted.last(lease.lock)
        if last == lease.token:
            return not lease.idle
        # A reader who is not the newest holds, too; but only where it is known it is sure to pass.
        holds = lease.shared and last_writer < lease.token
        return holds and ended - lease.shown.get(resource, 0.0) <= IDLE

    def write(self, entry: dict[str, Any]) -> None:
        os.write(self.log, json.dumps(entry).encode() + b"\n")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def site_of(kind: str, folder: Path, setting: dict[str, Any]) -> Site:
    """The site that the test has made, on the test's own servers."""

    def server(of: Any, port: int) -> Any:
        made = of.__new__(of)
        made.port, made._daemon = port, SimpleNamespace(site=HERE)
        return lambda: made

    module: Any = sql_sites
    if "postgres" in setting:
        module.postgres_server = server(PostgresServer, setting["postgres"])
    if "mariadb" in setting:
        module.mariadb_server = server(MariaServer, setting["mariadb"])
    if "redis" in setting:
        vars(redis_sites)["redis_server"] = server(SimpleNamespace, setting["redis"])
    if "store" in setting:
        object_sites._buckets[str(folder)] = setting["store"]
    return RANDOM_SITES[kind](folder)


def choose_level(site: Site, dice: random.Random) -> None:
    level = dice.choice(LEVELS)
    if isinstance(site, sql_sites.PostgresSite):
        text = f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"
    elif isinstance(site, sql_sites.MariaSite):
        text = f"SET SESSION TRANSACTION ISOLATION LEVEL {level}"
    else:
        return
    site.execute(site.connection(), text)
    site.connection().commit()


def main(kind: str, folder: str, seed: str, seconds: str) -> None:
    vars(sql_guard)["SHOWN"] = 0.2  # as marks are kept for so short a time
    setting = pickle.loads(sys.stdin.buffer.read())
    site = site_of(kind, Path(folder), setting)
    choose_level(site, random.Random(f"level {seed}"))
    client = Client(site, Path(folder), seed)
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        client.step()
    site.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
