"""The workers of a run, as the conductor has them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from .job import VARIABLE, Job
from .servers.processes import forget, start


class WorkerProcess:
    """A worker, which may be started again after it was killed."""

    def __init__(self, job: Job, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = job.lane
        self._job = job
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self.granted_at = -1.0
        """The time of its latest grant."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._job = job = self._job._replace(life=self._job.life + 1)
        self._forget()
        self._process = start(
            self._command,
            environment={**self._environment, VARIABLE: job.dumps()},
            errors=subprocess.PIPE,
            pass_fds=(job.history, job.registers),
        )

    @property
    def ended(self) -> int | None:
        """The status with which it ended by itself; None while it runs."""
        return None if self._process is None else self._process.poll()

    def complaint(self) -> str:
        """Returns the end of what it wrote to stderr, once it has ended."""
        assert self._process is not None
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace")[-2000:]

    def ask_to_stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, limit: float) -> bool:
        """Tells whether it ended within so many seconds."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(limit)
            return True
        return False

    def kill(self) -> None:
        """Ends it, also if it stands still."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._forget()

    def _forget(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            forget(self._process)
