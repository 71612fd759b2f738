"""A test that hangs ends the run with its name, and leaves no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from watchdog import descendants

TESTS = Path(__file__).parents[1]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from watchdog import Watchdog

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Watchdog(config, limit=1.0))
"""
PROGRAM = """
import os, threading, time

def test_passes():
    pass

def test_hangs():
    if (child := os.fork()) == 0:
        time.sleep(600)  # it has the pipes of the process that forked it
    with open("child", "w") as file:
        file.write(str(child))
    threading.Event().wait()
"""


@pytest.mark.parametrize("options", [[], ["--numprocesses", "2"]], ids=["one", "workers"])
def test_a_test_that_hangs_is_named(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest", "-q", *options, "test_program.py"]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("HANGS: test_program.py::test_hangs, for ")
    assert 'test_program.py", line 12 in test_hangs' in ended.stderr  # its stack
    child = int((tmp_path / "child").read_text())
    assert not Path(f"/proc/{child}/exe").exists()


def test_the_descendants_of_a_process_are_found() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        sleep = int(shell.stdout.readline())
        try:
            assert descendants(shell.pid) == [sleep]
            assert shell.pid in descendants(os.getpid())
        finally:
            subprocess.run(["kill", str(sleep)], check=True)
