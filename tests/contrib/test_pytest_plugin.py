"""The fixtures for pytest, as users have them: in a run of pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from .programs import LIMIT

ROOT = Path(__file__).parents[2]
USERS_TESTS = """
import asyncio
import pytest
import holdfast
import holdfast.aio


def test_a_clock_to_move(holdfast_locks, holdfast_clock):
    lease = holdfast_locks.lock("x", renew=False).acquire()
    holdfast_clock.advance(29.0)
    assert lease.held
    holdfast_clock.advance(1.0)
    assert not lease.held


def test_each_test_has_a_store_of_its_own(holdfast_locks):
    assert not holdfast_locks.list()


def test_a_loss_on_demand(holdfast_locks, holdfast_lose):
    told = []
    with pytest.raises(holdfast.LeaseLost):
        with holdfast_locks.lock("x") as lease:
            lease.on_lost(told.append)
            holdfast_lose(lease)
            assert not lease.held
            assert told == [lease]
    with holdfast_locks.lock("x", timeout=0.0) as later:
        assert later.token > lease.token


def test_the_loss_of_several(holdfast_locks, holdfast_lose):
    lease = holdfast_locks.multi(["x", "y"]).acquire()
    holdfast_lose(lease)
    assert not lease.held


def test_the_loss_of_a_lease_of_another_store(holdfast_lose, tmp_path):
    with holdfast.connect(f"sqlite://{tmp_path}/locks.db") as locks:
        lease = locks.lock("x").acquire()
        with pytest.raises(AssertionError, match="of another store"):
            holdfast_lose(lease)
        assert lease.held
        holdfast_lose(lease, locks)
        assert not lease.held


def test_asyncio(holdfast_aio, holdfast_clock, holdfast_lose, holdfast_locks):
    async def main():
        async with holdfast_aio() as locks:
            lease = await locks.lock("x", renew=False).acquire()
            assert holdfast_locks.inspect("x").held  # the same store
            holdfast_clock.advance(31.0)
            assert not lease.held
            stopped = False
            with pytest.raises(holdfast.LeaseLost):
                async with locks.lock("y") as lease:
                    try:
                        await holdfast_lose(lease)
                        await asyncio.Event().wait()
                    finally:
                        stopped = True
            assert stopped
            term = await locks.election("chief").campaign()
            await holdfast_lose(term)
            assert not term.held

    asyncio.run(main())
"""

ASYNC_TESTS = """
import asyncio
import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def locks(holdfast_aio):
    async with holdfast_aio() as manager:
        yield manager


async def test_a_fixture_of_the_users_own(locks, holdfast_locks):
    async with locks.lock("x"):
        assert holdfast_locks.lock("x").try_acquire() is None


async def test_a_waiter_whose_clock_is_moved(locks, holdfast_clock):
    lease = await locks.lock("x", renew=False).acquire()
    waiter = asyncio.create_task(locks.lock("x").acquire())
    while not (await locks.inspect("x")).waiters:
        await asyncio.sleep(0)
    holdfast_clock.advance(31.0)
    async with await waiter as later:
        assert later.token > lease.token
"""


def run(folder: Path, code: str, *words: str) -> str:
    """Returns what pytest says of a user's tests, which have to pass."""
    (folder / "test_user.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-p", "pytest_holdfast", *words, "-W", "error", "."]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_fixtures_do_what_they_say(tmp_path: Path) -> None:
    assert "6 passed" in run(tmp_path, USERS_TESTS)
    help_text = run(tmp_path, USERS_TESTS, "--fixtures")
    for name in (
        "holdfast_aio",
        "holdfast_clock",
        "holdfast_locks",
        "holdfast_lose",
        "holdfast_url",
    ):
        assert name in help_text


def test_the_fixtures_serve_async_tests_of_a_plugin(tmp_path: Path) -> None:
    assert "2 passed" in run(tmp_path, ASYNC_TESTS, "-p", "anyio.pytest_plugin")


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    code = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[-1]
    assert "4 passed" in run(tmp_path, code)


def test_who_uses_no_fixture_pays_nothing(tmp_path: Path) -> None:
    code = "import sys\ndef test_it():\n    assert 'pytest_holdfast' in sys.modules\n"
    run(tmp_path, code + "    assert 'holdfast' not in sys.modules\n")


def test_pytest_finds_the_plugin_and_the_wheel_has_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    points = project["project"]["entry-points"]["pytest11"]
    assert points == {"pytest_holdfast": "pytest_holdfast"}
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "src/pytest_holdfast" in wheel["packages"]
