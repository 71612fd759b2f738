"""Many leases and many waiters of one manager, on few connections."""

from __future__ import annotations

import socket
import threading

from holdfast import aio as holdfast
from holdfast.chaos.servers.service import ServiceServer
from holdfast.stores.http.wire.aio import ASYNCHRONOUS, MOST
from worlds.aio import Job, eventually

CROWD = 1000 if ASYNCHRONOUS else 200
PORTION = 50
"""Attempts that begin at the same moment: more than there are connections."""
BESIDE = 4
"""Connections of a manager beside those for requests: its stream, and its renewals."""


def connections_to(port: int) -> int:
    """Returns the number of connections of this machine to the port."""
    wanted = f"{socket.inet_aton('127.0.0.1')[::-1].hex().upper()}:{port:04X}"
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table]
    return sum(row[2] == wanted and row[3] == "01" for row in rows)


async def test_a_crowd_shares_some_connections(service: ServiceServer) -> None:
    most = 0

    async with (
        holdfast.connect(service.url) as locks,
        holdfast.connect(service.url) as others,
    ):
        leases: list[holdfast.Lease] = []

        async def take(start: int) -> None:
            nonlocal most
            for number in range(start, start + PORTION):
                leases.append(await others.lock(f"n{number}", ttl=60.0).acquire())
            most = max(most, connections_to(service.port))

        async def wait(number: int) -> int:
            async with locks.lock(f"n{number}", ttl=60.0) as lease:
                return lease.token

        for job in [Job(take, start) for start in range(0, CROWD, PORTION)]:
            await job.result()
        threads = threading.active_count()
        session = await locks._session()
        waiters: list[Job[int]] = []

        def all_wait() -> bool:
            return len(session.waiters) == len(waiters)

        for start in range(0, CROWD, PORTION):
            waiters += [Job(wait, number) for number in range(start, start + PORTION)]
            await eventually(all_wait)
        most = max(most, connections_to(service.port))
        # A few may be of what other tests of this process have left to end.
        assert ASYNCHRONOUS is False or threading.active_count() <= threads + 20
        assert all(lease.held for lease in leases)
        for lease in leases:
            assert await lease.release() is True
        assert len({await waiter.result() for waiter in waiters}) == CROWD
        assert most <= 2 * (MOST + BESIDE)
