"""A test that fails is told of with what the machine did meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from standstills import LONGEST, SPAN, Calm, Standstills, look

TESTS = Path(__file__).parents[1]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from standstills import Standstills

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Standstills())
"""
PROGRAM = """
import time

def test_passes():
    pass

def test_fails():
    time.sleep(1.2)  # in which the machine is looked at
    assert False
"""


@pytest.mark.parametrize("options", [[], ["--numprocesses", "2"]], ids=["one", "workers"])
def test_what_the_machine_did_stands_below_a_failure(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest", "-q", *options, "test_program.py"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 1
    _, _, below = ended.stdout.partition("the machine meanwhile")
    assert "longest standstill: " in below
    assert "the machine meanwhile" not in below


def test_the_worst_of_the_looks_in_time_is_told() -> None:
    machine = Standstills()
    now = look(0.25)
    assert now.memory > 0
    before = now._replace(at=now.at - 300.0, late=200.0)
    standing = now._replace(at=now.at - 20.0, late=31.5, stolen=now.stolen + 3.0, load=99.0)
    machine._looks.extend([before, standing, now._replace(stolen=now.stolen + 7.0)])
    told = machine.told(60.0)
    assert "longest standstill: 31.5 s" in told
    assert "other machines: 4.0 s" in told
    assert "load: up to 99.0" in told
    assert "200.0 s" in machine.told(400.0)


class Host:
    """A host that takes such shares of a machine with two processors, one in each second."""

    def __init__(self, *shares: float) -> None:
        self._shares = list(shares)
        self._now = 0.0
        self._taken = 100.0
        self.calm = Calm(lambda: self._now, self.pause, lambda: self._taken, 2)

    def pause(self, seconds: float) -> None:
        share = self._shares.pop(0) if len(self._shares) > 1 else self._shares[0]
        self._now += seconds
        self._taken += 2 * seconds * share

    def waited(self) -> float:
        began = self._now
        self.calm.pytest_runtest_protocol()
        return self._now - began


def test_no_test_begins_while_others_take_the_processors() -> None:
    host = Host(0.1, 0.9, 0.8, 0.5, 0.0)
    assert host.waited() == 0
    host.pause(SPAN)
    assert host.waited() == 0  # a tenth
    host.pause(SPAN)
    assert host.waited() == 3 * SPAN
    host.pause(SPAN)
    assert host.waited() == 0


def test_the_tests_do_not_wait_for_ever() -> None:
    host = Host(0.9)
    host.pause(SPAN)
    assert LONGEST <= host.waited() < LONGEST + 2 * SPAN
    host.pause(SPAN)
    assert host.waited() == 0
