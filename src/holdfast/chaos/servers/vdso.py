"""The wall clock of a program that asks the kernel by itself, as those written in Go do.

Nothing can be preloaded into such a program. But it asks by the code that the kernel has put into its
memory (the vDSO), and there that can be replaced, in this one process: by a system call, and an offset
that is added to what the wall clock shows. Clocks that only run, and are never set, are left alone.
"""

from __future__ import annotations

import os
import platform
import signal
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .errors import ServerError
from .processes import await_stopped

CODE = bytes.fromhex(
    "b8e4000000"  # mov eax, 228: clock_gettime
    "0f05"  # syscall
    "85c0"  # test eax, eax
    "7513"  # jnz done
    "85ff"  # test edi, edi: the wall clock
    "7405"  # jz add
    "83ff05"  # cmp edi, 5: the wall clock, coarse
    "750a"  # jne done
    "488b0d0c000000"  # add: mov rcx, [offset]
    "48010e"  # add [rsi], rcx
    "c3"  # done: ret
)
OFFSET = 40
"""Where the offset stands, behind the beginning of the code."""
SYMBOL = b"__vdso_clock_gettime"
DYNAMIC_SYMBOLS = 11
LIMIT = 5.0


class ReplacedClock:
    """The wall clock of one process, which may be another one after it was started again."""

    def __init__(self, pid: Callable[[], int]) -> None:
        self._pid = pid
        self._places: dict[int, int] = {}
        """Where the offset is, by the process."""

    def step(self, seconds: int) -> None:
        """So many seconds off the real time from now on."""
        pid = self._pid()
        if pid not in self._places:
            self._places[pid] = _replace(pid)
        _write(pid, self._places[pid], struct.pack("<q", seconds))

    def remove(self) -> None:
        """Leaves nothing: all of it is in the memory of the process."""


def _replace(pid: int) -> int:
    """Replaces the code by which a process asks for the time; returns where its offset is."""
    if platform.machine() != "x86_64":
        raise ServerError(f"the code that asks for the time is not known for {platform.machine()}")
    start, end = _vdso(pid)
    function, size = _find(_read(pid, start, end - start))
    begin = start + function
    place = (begin + OFFSET + 7) // 8 * 8  # so that it is written at once
    if place + 8 > begin + size:
        raise ServerError("the kernel's code that asks for the time is too short to be replaced")
    code = CODE.replace(
        bytes.fromhex("0c000000"), struct.pack("<i", place - begin - CODE.index(b"\x48\x01\x0e"))
    )
    limit = time.monotonic() + LIMIT
    while True:
        os.kill(pid, signal.SIGSTOP)
        try:
            await_stopped(pid)
            if not _runs_in(pid, start, end):
                _write(pid, place, struct.pack("<q", 0))
                _write(pid, begin, code)
                return place
        finally:
            os.kill(pid, signal.SIGCONT)
        if time.monotonic() > limit:
            raise ServerError("the process asks for the time whenever it is looked at")
        time.sleep(0.001)


def _vdso(pid: int) -> tuple[int, int]:
    """Returns where the vDSO begins and ends in the memory of a process."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            start, _, end = line.split()[0].partition("-")
            return int(start, 16), int(end, 16)
    raise ServerError("the process has no vDSO")


def _find(image: bytes) -> tuple[int, int]:
    """Returns where in the vDSO the function is, and how long it is."""
    (sections,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, sections + n * size) for n in range(count)]
    for head in heads:
        if head[1] == DYNAMIC_SYMBOLS:
            names = heads[head[6]][4]
            for at in range(head[4], head[4] + head[5], 24):
                name, _, _, _, value, length = struct.unpack_from("<IBBHQQ", image, at)
                if image.startswith(SYMBOL + b"\0", names + name):
                    return value, length
    raise ServerError(f"the vDSO has no {SYMBOL.decode()}")


def _runs_in(pid: int, start: int, end: int) -> bool:
    """Tells whether a thread of a process that stands still is somewhere between two places."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with suppress(FileNotFoundError):
            words = Path(f"/proc/{pid}/task/{task}/syscall").read_text().split()
            if len(words) < 2 or start <= int(words[-1], 16) < end:
                return True
    return False


def _read(pid: int, at: int, size: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(at)
        return memory.read(size)


def _write(pid: int, at: int, data: bytes) -> None:
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(at)
        memory.write(data)
