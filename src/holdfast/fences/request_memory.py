"""The memory of a `FencingMiddleware`: one process's own, or a folder that a machine's processes share.

It is bounded. When it is full, resources that saw no new token for a day are forgotten, and their
tokens become the floor; if there are none, a resource that is new to it is refused until there is room.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from abc import ABC, abstractmethod
from threading import Lock
from typing import Protocol

from .. import forks
from ..errors import ConfigError, LockError
from ..interrupts import let_through, real_path
from . import rules
from .file import FileFence, HeldFile
from .file_memory import FLOORS, SUFFIX, memory_path
from .http import FOLDER, PROCESS, RequestToken
from .memory import HeldResource, MemoryFence

DAY = 86400.0
COUNT_EVERY = 256
"""Resources are counted after so many new ones: in a folder that reads all names."""
PRUNE_EVERY = 60.0
"""Seconds between two prunes of a memory that is full."""
PAUSE = 0.01
"""Seconds after which a task looks again whether another's count is done."""


Hold = HeldFile | HeldResource
"""The turn at one resource, with what it remembered."""


class Full(LockError):
    """Raised when the memory has no room for another resource."""


class RequestMemory(Protocol):
    """A place where the tokens of requests are remembered."""

    @property
    def identity(self) -> str:
        """The kind and the identity of this memory: equal wherever the same one is used."""

    def make_room(self, resource: str) -> None:
        """Raises `Full` if there is no room for this resource. It may read all of the memory."""

    async def make_room_in_loop(self, resource: str) -> None:
        """Does the same for an event loop, which goes on meanwhile."""

    def hold(self, resource: str, credential: RequestToken) -> Hold:
        """Returns the turn at a resource, a reader's too, which is begun by `with` or `async with`."""


def memory_of(
    fence: object, folder: str | os.PathLike[str] | None, single_use: bool, most: int
) -> RequestMemory:
    """Returns the memory that a middleware was told to use; raises `ConfigError` if there is none."""
    if most < 1:
        raise ConfigError(f"most must be a whole number from 1 on, not {most!r:.40}")
    if (fence is None) == (folder is None):
        raise ConfigError(
            "say where tokens are remembered, by one of the two: folder=…, a folder that all "
            "workers of the service share; or fence=MemoryFence(), if it is served by a single "
            "process, which knows nothing of its tokens after a restart"
        )
    if fence is not None:
        if not isinstance(fence, MemoryFence) or single_use:
            raise ConfigError(
                "fence must be a MemoryFence, and single_use be said to it; to fence the database "
                "behind the service, give the request's token to a SqlFence in the handler"
            )
        return ProcessMemory(fence, most)
    assert folder is not None
    if not os.path.isdir(folder):
        raise ConfigError(f"there is no such folder to remember tokens in: {str(folder)!r}")
    return FolderMemory(real_path(folder), single_use, most)


class _Bounded(ABC):
    """The part of a memory that keeps it from growing for ever."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._room = 0
        """How many new resources may come before they are counted again."""
        self._next_prune = 0.0
        self._counting = Lock()
        forks.survive(self)

    def _after_fork(self) -> None:
        self._counting = Lock()  # another thread may have held it

    @abstractmethod
    def _knows(self, resource: str) -> bool:
        """Returns True if the resource is remembered."""

    @abstractmethod
    def _count(self) -> int:
        """Returns how many resources are remembered."""

    @abstractmethod
    def _prune(self) -> None:
        """Forgets resources that saw no new token for a day."""

    def make_room(self, resource: str) -> None:
        while not self._has_room(resource):
            self._find_room()

    async def make_room_in_loop(self, resource: str) -> None:
        from asyncio import sleep, to_thread

        while not self._has_room(resource):
            if self._counting.locked():
                await sleep(PAUSE)  # somebody is at it: no need for another thread
            else:
                await to_thread(self._find_room, wait=False)

    def _has_room(self, resource: str) -> bool:
        """Takes a place for a resource that is new; returns False if they have to be counted first."""
        if self._knows(resource):
            return True
        self._room -= 1
        return self._room >= 0

    def _find_room(self, wait: bool = True) -> None:
        """Counts the places that are free; forgets resources if there are none.

        If somebody is at it, this waits for that; or returns at once, if `wait` is false.
        """
        forks.current()  # begins afresh in a child that Python was not told of
        counting = self._counting
        if not counting.acquire(blocking=wait):
            return
        try:
            if self._room > 0:
                return
            self._count_room()
            if self._room <= 0:
                raise Full(
                    f"this fence remembers {self._most} resources, all written to within a day, and "
                    "has no room for another; give FencingMiddleware more by most=…"
                )
        finally:
            counting.release()

    def _count_room(self) -> None:
        free = self._most - self._count()
        if free <= 0 and self._next_prune <= time.monotonic():
            self._next_prune = time.monotonic() + PRUNE_EVERY
            self._prune()
            free = self._most - self._count()
        self._room = min(free, COUNT_EVERY)


class ProcessMemory(_Bounded):
    """The memory of one process, which ends with it."""

    def __init__(self, fence: MemoryFence, most: int) -> None:
        super().__init__(most)
        self._fence = fence
        self._identity = os.urandom(8).hex()

    @property
    def identity(self) -> str:
        # With the process: a worker that was forked has a copy of all this, and not the same memory.
        return _identity(PROCESS, self._identity, os.getpid())

    def hold(self, resource: str, credential: RequestToken) -> Hold:
        return HeldResource(self._fence, resource, rules.credential(credential))

    def _knows(self, resource: str) -> bool:
        return resource in self._fence._marks

    def _count(self) -> int:
        return len(self._fence._marks)

    def _prune(self) -> None:
        self._fence.prune(DAY)


class FolderMemory(_Bounded):
    """The memory of all processes of a machine that name the same folder."""

    def __init__(self, folder: str, single_use: bool, most: int) -> None:
        super().__init__(most)
        self._folder = folder
        self._fence = FileFence(single_use=single_use)

    @property
    def identity(self) -> str:
        found = os.stat(self._folder)
        return _identity(FOLDER, _machine(), found.st_dev, found.st_ino)

    def hold(self, resource: str, credential: RequestToken) -> Hold:
        return HeldFile(self._fence, self._path(resource), rules.credential(credential))

    def _path(self, resource: str) -> str:
        return os.path.join(self._folder, hashlib.sha256(resource.encode()).hexdigest())

    def _knows(self, resource: str) -> bool:
        return os.path.exists(memory_path(self._path(resource)))

    def _count(self) -> int:
        with os.scandir(self._folder) as entries:
            return sum(entry.name.endswith(SUFFIX) and entry.name != FLOORS for entry in entries)

    def _prune(self) -> None:
        self._fence.prune(self._folder, DAY)


def resource_of(name: object) -> str:
    """Returns a resource's name as it is remembered, of any length and of any characters."""
    if not isinstance(name, str):
        raise ConfigError(f"resource must answer a str, not {type(name).__name__}")
    try:
        return rules.resource_name(name)
    except ConfigError:
        return "sha256:" + hashlib.sha256(name.encode(errors="backslashreplace")).hexdigest()


def _machine() -> str:
    """Returns what tells this machine from others: for all its containers the same."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read()
    except OSError as error:
        let_through(error)
        return str(uuid.getnode())


def _identity(kind: str, *parts: object) -> str:
    return f"{kind}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"
