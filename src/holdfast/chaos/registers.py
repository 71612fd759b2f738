"""The two registers that holders write to: one behind a fence, one without.

They live in the conductor's process, since the order in which writes arrive decides everything. A
worker sends a write and does not wait for it: as any request over a network it may arrive late, and a
delay can be put before the registers. Each write goes to both.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..errors import StaleToken
from ..fences import MemoryFence
from .history import Event, History, now

FENCED, UNFENCED = "fenced", "unfenced"
LARGEST = 4096
ROOM = 0.002
"""Seconds between two looks for room, where the registers are slow to take what was sent."""


class Writer:
    """The end of a worker, by which it sends its writes to the registers."""

    def __init__(self, sock: socket.socket, lane: str) -> None:
        self._sock = sock
        self._lane = lane

    def send(self, lock: str, token: int | None, turn: int, number: int) -> None:
        """Sends a write, as soon as there is room for it.

        `turn` orders the grants of a library that has no tokens: the moment of the grant.
        """
        self._sock.send(self._packed(lock, token, turn, number))

    async def send_async(self, lock: str, token: int | None, turn: int, number: int) -> None:
        """Sends a write as `send` does, while other tasks go on."""
        message = self._packed(lock, token, turn, number)
        while True:
            try:
                # All workers share the socket, so it is not made non-blocking.
                self._sock.send(message, socket.MSG_DONTWAIT)
                return
            except BlockingIOError:
                await asyncio.sleep(ROOM)

    def _packed(self, *words: object) -> bytes:
        return json.dumps([self._lane, *words]).encode()


class Registers:
    """Both registers, and a thread that takes the writes as they arrive."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._fence = MemoryFence()
        self._highest: dict[str, int] = {}
        """By lock: the highest token, or turn, that has written to the unfenced register."""
        self._inbox, self.outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        """`outside` is the end that workers have."""
        self._wake, self._woken = os.pipe()
        self.delay: Callable[[str], float] | None = None
        """Seconds by which a write of this worker is late; None: never."""
        self._late: list[tuple[float, int, list[Any]]] = []
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="registers")
        self._thread.start()

    def close(self) -> None:
        """Takes what has arrived, the late ones too, and ends."""
        if self._closing:
            return
        self._closing = True
        with suppress(OSError):
            os.write(self._woken, b"x")
        self._thread.join()
        for sock in (self._inbox, self.outside):
            sock.close()
        os.close(self._wake)
        os.close(self._woken)

    def _serve(self) -> None:
        import select

        poll = select.poll()
        poll.register(self._inbox, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        self._inbox.setblocking(False)
        count = 0
        while True:
            left = max(self._late[0][0] - now(), 0.0) * 1000 + 1 if self._late else None
            poll.poll(0 if self._closing else left)
            with suppress(BlockingIOError):
                while True:
                    write = json.loads(self._inbox.recv(LARGEST))
                    delay = self.delay(write[0]) if self.delay is not None else 0.0
                    if delay > 0:
                        count += 1
                        heapq.heappush(self._late, (now() + delay, count, write))
                    else:
                        self._take(*write)
            while self._late and (self._closing or self._late[0][0] <= now()):
                self._take(*heapq.heappop(self._late)[2])
            if self._closing:
                return

    def _take(self, lane: str, lock: str, token: int | None, turn: int, number: int) -> None:
        """Takes a write that has arrived."""
        event: Event = {"lock": lock, "token": token, "number": number, "from": lane}
        if token is not None:
            try:
                self._fence.guard(lock, token)
                accepted = True
            except StaleToken:
                accepted = False
            self._history.add(
                FENCED, "write", register=FENCED, accepted=accepted, stale=not accepted, **event
            )
        order = turn if token is None else token
        stale = order < self._highest.get(lock, 0)
        self._highest[lock] = max(order, self._highest.get(lock, 0))
        self._history.add(UNFENCED, "write", register=UNFENCED, accepted=True, stale=stale, **event)
