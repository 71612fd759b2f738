"""A server whose wall clock a test can step, forwards and back, while everybody else's goes on."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import time
from functools import cache
from pathlib import Path

from .errors import ServerError
from .processes import make_folder, remove_folder
from .redis import READY_LIMIT, RedisServer

SOURCE = Path(__file__).with_name("stepped_clock.c")


@cache
def _library() -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        raise ServerError("there is no C compiler: apt-get install gcc")
    folder = make_folder("clock")
    folder.chmod(0o755)
    made = folder / "stepped_clock.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wno-builtin-declaration-mismatch", "-nostdlib"]
    command = [compiler, *flags, "-o", str(made), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"the stepped clock could not be compiled: {done.stderr}")
    return made


class SteppedClock:
    """A wall clock for a server that is started with `environment`."""

    def __init__(self) -> None:
        self._file = make_folder("clock") / "offset"
        self._file.parent.chmod(0o755)  # the server may run as another user
        self._file.write_bytes(struct.pack("q", 0))
        self.offset = 0
        self.environment = {"LD_PRELOAD": str(_library()), "STEPPED_CLOCK": str(self._file)}

    def step(self, seconds: int) -> None:
        """So many seconds off the real time from now on."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 8) as memory:
            memory[:] = struct.pack("q", seconds)
        self.offset = seconds

    def remove(self) -> None:
        remove_folder(self._file.parent)


class SteppedServer(RedisServer):
    def __init__(self, *options: str) -> None:
        self._clock = SteppedClock()
        super().__init__(*options, environment=self._clock.environment)

    def step(self, seconds: int) -> None:
        """So many seconds off the real time from now on."""
        self._clock.step(seconds)
        limit = time.monotonic() + READY_LIMIT
        # Valkey counts on by itself between looks at the clock.
        while abs(int(self("TIME")[0]) - time.time() - seconds) > 30:
            if time.monotonic() > limit:
                raise ServerError("the server does not follow its clock")
            time.sleep(0.01)

    def stop(self) -> None:
        super().stop()
        self._clock.remove()
