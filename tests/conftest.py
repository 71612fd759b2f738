"""Runs `async def` tests, each in an event loop of its own; and the stores to run them on."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from selection import FAMILIES, is_quick, is_short, longest_first, store_of
from standstills import Calm, Standstills
from stores import STORES, UNFAIR
from watchdog import Watchdog

LIMIT = 180.0
"""Seconds one asynchronous test may take in all: a few, and ten times that beside other work."""
MANY_FILES = 20_000
"""Open files that the tests may need: a process keeps one for each embedded store that it has used."""

WITHOUT = {"axe": "axe_core", "azurite": "azure"}
"""What the variable of that name may leave out: by its words, a word in the names of those tests."""


def pytest_configure(config: pytest.Config) -> None:
    for name in [
        name for name in os.environ if name.startswith("HOLDFAST_") and "TEST" not in name
    ]:
        del os.environ[name]  # of a `holdfast run` around the tests, or of whoever runs them
    # Who starts the tests in the background lets them, and all they start, ignore these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(MANY_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    config.pluginmanager.register(Calm())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Watchdog(config))
        config.pluginmanager.register(Standstills())


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("holdfast")
    group.addoption(
        "--store",
        action="append",
        default=[],
        choices=FAMILIES,
        help="run only the tests of this store, with the conformance suite on it; may be repeated",
    )
    group.addoption(
        "--quick",
        action="store_true",
        help="run only the tests for everyday work: tests/selection.py says which",
    )
    group.addoption(
        "--short",
        action="store_true",
        help="run only those for a Python on which not all are run: tests/selection.py says which",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects, so that they are counted, the tests that the options and `WITHOUT` leave out.

    Where several processes share the tests, the files that take longest come first.
    """
    stores = config.getoption("--store")
    quick = config.getoption("--quick")
    short = config.getoption("--short")
    without = [WITHOUT[word] for word in os.environ.get("WITHOUT", "").split() if word in WITHOUT]
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        wanted = (
            (not stores or store_of(item) in stores)
            and (not quick or is_quick(item))
            and (not short or is_short(item))
            and not any(word in item.name for word in without)
        )
        (kept if wanted else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = longest_first(kept) if hasattr(config, "workerinput") else kept


def pytest_collection_finish() -> None:
    """Leaves what is there before the tests out of every garbage collection: they make many."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Leaves pytest's own calls out of a failure's traceback: it begins in the test's file."""
    if call.excinfo is not None and (own := call.excinfo.traceback.cut(path=item.path)):
        call.excinfo.traceback = own


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None  # pytest's own way
    names = inspect.signature(test).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await test(**arguments)

    asyncio.run(limited(), debug=False)
    return True


@pytest.fixture(params=sorted(STORES))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yields the URL of an empty store, once for each kind."""
    with STORES[request.param](tmp_path) as store_url:
        yield store_url


@pytest.fixture(params=sorted(set(STORES) - set(UNFAIR)))
def fair_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yields the URL of an empty store, once for each kind that serves waiters in their order."""
    with STORES[request.param](tmp_path) as store_url:
        yield store_url
