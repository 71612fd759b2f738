"""A worker process of a run: `python -m holdfast.chaos.worker`, with its job in the environment.

Half of the workers are blocking programs, half use asyncio. They end by SIGTERM, in order; with their
conductor; or by what the conductor does to them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import sys
import time
from typing import Any

from .history import History
from .job import VARIABLE, Job, loads
from .pulse import Pulse
from .registers import Writer
from .servers.janitor import MARK

PR_SET_PDEATHSIG = 1


class Ours:
    """Holdfast, as a worker that blocks uses it."""

    def __init__(self, job: Job) -> None:
        from .. import connect

        self._locks = connect(job.url, namespace=job.namespace, label=job.lane, **job.options)

    def acquire(self, name: str, ttl: float, timeout: float) -> Any:
        return self._locks.lock(name, ttl=ttl).acquire(timeout)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self._locks.close()


class OursInAsyncio:
    """Holdfast, as a worker in asyncio uses it."""

    def __init__(self, job: Job) -> None:
        from ..aio import connect

        self._locks = connect(job.url, namespace=job.namespace, label=job.lane, **job.options)

    async def acquire(self, name: str, ttl: float, timeout: float) -> Any:
        return await self._locks.lock(name, ttl=ttl).acquire(timeout)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._locks.close()


class Stop:
    """Whether the worker was told to stop."""

    def __init__(self) -> None:
        self.wanted = False
        signal.signal(signal.SIGTERM, self._want)

    def _want(self, *_: object) -> None:
        self.wanted = True

    def __call__(self) -> bool:
        return self.wanted


def main() -> None:
    if sys.platform == "linux":  # it may be frozen, and must not outlive its conductor
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _end_if_orphaned()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the conductor
    job = loads(os.environ.pop(VARIABLE))
    stop = Stop()
    history = History(job.history, job.zero)
    pulse = Pulse(2 * job.ttl)
    sock = socket.socket(fileno=job.registers)
    writer = Writer(sock, job.lane)
    if job.world == "asyncio":
        asyncio.run(_contend(job, history, pulse, writer, stop))
    else:
        from ._sync.contender import Contender
        from .peers import PEERS

        client = PEERS[job.library](job) if job.library in PEERS else Ours(job)
        Contender(job, client, history, pulse, writer.send, stop).run()


def _end_if_orphaned() -> None:
    """Ends this process if its conductor ended while it began: nobody would tell it."""
    conductor = os.environ.get(MARK, "").partition("-")[0]
    if conductor and not os.path.exists(f"/proc/{conductor}"):
        sys.exit(1)


async def _contend(job: Job, history: History, pulse: Pulse, writer: Writer, stop: Stop) -> None:
    from ._async.contender import Contender

    client = OursInAsyncio(job)
    await Contender(job, client, history, pulse, writer.send_async, stop).run()


if __name__ == "__main__":
    main()
