"""Interrupts while the store is being opened: whatever was opened by then is closed again."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

import holdfast

STRIDE = 7
"""Calls from one that is interrupted to the next."""
LIVE = ".new (deleted)"
"""The file that says, for as long as the process lives, that it does; by the name of its draft."""


class Shock(BaseException):
    """What a user's handler of a signal raises."""


def acquire_interrupted(url: str, number: int) -> str:
    """Acquires a lock with a new manager, interrupted after that many calls; returns where."""
    met = 0
    interrupted = ""

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal met, interrupted
        if event in ("call", "c_return"):
            met += 1
            if met > number:
                sys.setprofile(None)
                interrupted = f"{frame.f_code.co_filename}:{frame.f_lineno} {event} {argument}"
                raise Shock

    locks = holdfast.connect(url)
    lock = locks.lock("x")
    lease: object = None
    with suppress(Shock):
        sys.setprofile(watch)
        try:
            lease = lock.acquire()
        finally:
            sys.setprofile(None)
    locks.close()
    del lease  # not sooner: it would be dropped unreleased
    return interrupted


def open_files(folder: Path) -> Counter[str]:
    """Returns how often this process has each kind of file in the folder open."""
    found: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            if path.is_relative_to(folder):
                found[path.suffix or path.name] += 1
    return found


# Files that the interrupt has met as they were opened are closed by Python, which says so.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_call_leaves_no_descriptor(tmp_path: Path) -> None:
    assert not acquire_interrupted(f"sqlite://{tmp_path}/first.db", 10**9)  # all is imported
    left: dict[str, Counter[str]] = {}
    number = 0
    while True:
        folder = tmp_path / str(number)
        folder.mkdir()
        interrupted = acquire_interrupted(f"sqlite://{folder}/locks.db", number)
        gc.collect()
        found = open_files(folder)
        found.subtract({LIVE: 1})
        if any(count > 0 for count in found.values()):
            left[interrupted] = found
        if not interrupted:
            break
        number += STRIDE
    assert number > 100
    assert not left
