"""The resources that the one suite of fences runs on. A new fence joins by its line in `every`.

A site is a place with resources that have a value each, and a fence before them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.fences import FileFence, MemoryFence, Token


class Site(ABC):
    restarts = True
    """True if the fence's memory outlives the process."""
    transactions = True
    """True if check and write are undone together."""
    prunes = True
    """True if the fence has marks of their own, which may be forgotten."""
    readers = True
    """True if a reader can show its lease."""
    grain = 0.0
    """Seconds to which the age of a mark is known."""
    writes = True
    """True if the fence writes the value itself, and so can refuse a reader who wants to."""

    def __init__(self, folder: Path, single_use: bool = False) -> None:
        self.folder = folder
        self.single_use = single_use

    @abstractmethod
    def write(self, resource: str, value: str, token: Token) -> None:
        """Set the value, behind the fence."""

    @abstractmethod
    def read(self, resource: str) -> str | None: ...

    @abstractmethod
    def show(self, resource: str, token: Token) -> None:
        """Show a token, and write nothing: as a reader does."""

    @abstractmethod
    def overwrite(self, resource: str, value: str) -> None:
        """Set the value without the fence, as somebody does who does not know of it."""

    @abstractmethod
    def highest(self, resource: str) -> int: ...

    @abstractmethod
    def reset(self, resource: str, to: int = 0) -> int: ...

    @abstractmethod
    def prune(self, older_than: float = 0.0) -> int:
        """Forget all where no token was shown for so many seconds; 0.0 is as few as it takes."""

    @abstractmethod
    def reset_floors(self, lock: Any = None, to: int = 0) -> None: ...

    @abstractmethod
    def verify(self) -> None: ...

    @abstractmethod
    def crash(self, resource: str, value: str, token: int) -> None:
        """Die between the check and the write."""

    def again(self, single_use: bool = False) -> Site:
        """A fence of its own before the same resources, as after a restart."""
        return type(self)(self.folder, single_use)

    def close(self) -> None:  # noqa: B027  not all have something to close
        """Let go of what it holds."""


class MemorySite(Site):
    restarts = False
    transactions = False

    def __init__(self, folder: Path, single_use: bool = False) -> None:
        super().__init__(folder, single_use)
        self.fence = MemoryFence(single_use=single_use)
        self.values: dict[str, str] = {}

    def write(self, resource: str, value: str, token: Token) -> None:
        with self.fence.hold(resource, token):
            self.values[resource] = value

    def read(self, resource: str) -> str | None:
        return self.values.get(resource)

    def overwrite(self, resource: str, value: str) -> None:
        self.values[resource] = value

    def highest(self, resource: str) -> int:
        return self.fence.highest(resource)

    def reset(self, resource: str, to: int = 0) -> int:
        return self.fence.reset(resource, by="a test", to=to)

    def show(self, resource: str, token: Token) -> None:
        self.fence.guard(resource, token)

    def prune(self, older_than: float = 0.0) -> int:
        return self.fence.prune(older_than or 1e-9)

    def reset_floors(self, lock: Any = None, to: int = 0) -> None:
        self.fence.reset_floors(by="a test", lock=lock, to=to)

    def verify(self) -> None:
        self.fence.verify()

    def crash(self, resource: str, value: str, token: int) -> None:
        with suppress(ZeroDivisionError), self.fence.hold(resource, token):
            raise ZeroDivisionError


class FileSite(Site):
    def __init__(self, folder: Path, single_use: bool = False) -> None:
        super().__init__(folder, single_use)
        self.fence = FileFence(single_use=single_use)

    def path(self, resource: str) -> Path:
        return self.folder / resource

    def write(self, resource: str, value: str, token: Token) -> None:
        self.fence.write(self.path(resource), value, token)

    def read(self, resource: str) -> str | None:
        path = self.path(resource)
        return path.read_text() if path.exists() else None

    def overwrite(self, resource: str, value: str) -> None:
        self.path(resource).write_text(value)

    def highest(self, resource: str) -> int:
        return self.fence.highest(self.path(resource))

    def reset(self, resource: str, to: int = 0) -> int:
        return self.fence.reset(self.path(resource), by="a test", to=to)

    def show(self, resource: str, token: Token) -> None:
        self.fence.guard(self.path(resource), token)

    def prune(self, older_than: float = 0.0) -> int:
        return self.fence.prune(self.folder, older_than or 1e-9)

    def reset_floors(self, lock: Any = None, to: int = 0) -> None:
        self.fence.reset_floors(self.folder, by="a test", lock=lock, to=to)

    def verify(self) -> None:
        self.fence.verify(self.folder)

    def crash(self, resource: str, value: str, token: int) -> None:
        die(
            "import os, signal\n"
            "from holdfast.fences import FileFence, file\n"
            "file.FileMemory.commit = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
            f"FileFence().write({str(self.path(resource))!r}, {value!r}, {token})\n"
        )


def die(code: str) -> None:
    """Run a program that kills itself."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -9, done.stderr
