"""Nothing is left when a conductor is killed, or ends in some other way; as root and without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.workers import until
from holdfast.chaos.servers.janitor import MARK
from holdfast.chaos.servers.processes import state_of

CONDUCTOR = Path(__file__).with_name("conductor.py")
NOBODY = 65534


def conduct(name: str, *before: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """Starts a process that opens a lab and a worker; returns it, and what it says of them."""
    process = subprocess.Popen(
        [*before, sys.executable, str(CONDUCTOR), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the lab did not start"
    return process, json.loads(line)


def ended(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()
    process.wait(60)


def assert_nothing_left(said: dict[str, Any]) -> None:
    paths = [f"/proc/{pid}" for pid in said["processes"]] + said["folders"]
    until(lambda: not any(map(os.path.exists, paths)), f"the end of all of {paths}")
    for segment in said["segments"]:
        assert segment not in Path("/proc/sysvipc/shm").read_text().split()


@pytest.mark.parametrize("name", ["sqlite", "redis+sentinel", "zookeeper", "postgresql"])
def test_a_conductor_is_killed(name: str) -> None:
    process, said = conduct(name)
    assert len(said["processes"]) > (0 if name == "sqlite" else 1)
    assert said["folders"]
    process.kill()
    ended(process)
    assert_nothing_left(said)


def test_a_conductor_ends_and_has_stopped_nothing() -> None:
    process, said = conduct("redis")
    ended(process)
    assert process.returncode == 0
    assert_nothing_left(said)


def test_a_janitor_is_killed_first() -> None:
    process, said = conduct("redis")
    os.kill(said["janitor"], signal.SIGKILL)
    until(lambda: state_of(said["janitor"]) in ("Z", ""), "the janitor's end")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"more\n")  # another one is told of everything
    process.stdin.flush()
    said["processes"] += json.loads(process.stdout.readline())
    process.kill()
    ended(process)
    assert_nothing_left(said)


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root runs everything so")
@pytest.mark.parametrize("name", ["redis", "postgresql"])
def test_without_root(name: str) -> None:
    reads = "-all,+dac_read_search"  # Python itself may be in a folder that is root's alone
    nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    nobody += [f"--inh-caps={reads}", f"--ambient-caps={reads}"]
    process, said = conduct(name, *nobody)
    assert all(os.stat(folder).st_uid == NOBODY for folder in said["folders"])
    assert said["faults"] == said["possible"]
    process.kill()
    ended(process)
    assert_nothing_left(said)


HURRIED = """
import os, signal
from holdfast.chaos.crew import WorkerProcess
from holdfast.chaos.job import Job
nothing = os.open(os.devnull, os.O_RDWR)
job = Job("w1", "holdfast", "blocking", "", "", (), 1, 1, 1, 0, 0, 1, "", 0, 0, nothing, nothing, {})
worker = WorkerProcess(job, ["sleep", "3600"], {})
worker.start()
print(worker.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""A conductor that is killed while its worker begins: it has not yet asked to be told of that."""


def test_a_conductor_is_killed_while_a_worker_begins() -> None:
    found = subprocess.run(
        [sys.executable, "-c", HURRIED], stdout=subprocess.PIPE, check=False, timeout=60
    )
    assert found.returncode == -signal.SIGKILL
    worker = int(found.stdout)
    until(lambda: state_of(worker) in ("Z", ""), "the worker's end")


def test_a_worker_that_begins_without_its_conductor_ends() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait(60)
    environment = {**os.environ, MARK: f"{gone.pid}-0"}
    found = subprocess.run(
        [sys.executable, "-m", "holdfast.chaos.worker"],
        env=environment,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    assert (found.returncode, found.stderr) == (1, b"")
