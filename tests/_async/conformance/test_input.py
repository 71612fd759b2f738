"""Bad input is refused before anything happens; odd but good input is kept apart exactly."""

from __future__ import annotations

import decimal
import math
from typing import Any

import pytest

from holdfast import aio as holdfast

NAMES = [
    "a",
    "A",
    "ａ",  # noqa: RUF001
    "\u00e1",
    "a\u0301",
    "x" * 1024,
    "with spaces  inside ",
    " with spaces  inside",
    "a/b//c",
    "../../etc",
    "{tag}:{42}",
    "100%",
    "%s",
    "a'; DROP TABLE entry; --",
    'say "hi"',
    "back\\slash",
    "*?[x]",
    "日本語",
    "👩‍👩‍👧",
    "Ω≠ß",
    "-",
    "--",
    "null",
    "0",
    "holdfast",
]
BAD_NAMES: list[Any] = [
    "",
    "x" * 1025,
    "é" * 513,
    "a\nb",
    "tab\t",
    "nul\0",
    "\x7f",
    "\x85",
    "esc\x1b[0m",
    "lone \ud800",
    "line\u2028",
    "unit\x1fseparator",
    None,
    7,
    b"bytes",
    ["x"],
]
BAD_TTLS: list[Any] = [
    0,
    0.0,
    -1,
    math.nan,
    math.inf,
    -math.inf,
    True,
    "30",
    None,
    decimal.Decimal(3),
    1e300,
    10**400,
    367 * 86400,
]
BAD_TIMEOUTS: list[Any] = [-1, -0.001, math.nan, math.inf, True, "5"]


async def test_any_printable_name_is_kept_apart_exactly(url: str) -> None:
    async with holdfast.connect(url) as locks:
        leases = [await locks.lock(name).acquire(timeout=5.0) for name in NAMES]
        assert [lease.name for lease in leases] == NAMES
        assert sorted(state.name for state in await locks.list()) == sorted(NAMES)
        for name, lease in zip(NAMES, leases, strict=True):
            assert (await locks.inspect(name)).holders[0].owner == lease.owner
            assert await locks.lock(name).try_acquire() is None


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
async def test_a_bad_name_is_refused(url: str, name: Any) -> None:
    async with holdfast.connect(url) as locks:
        for make in (locks.lock, locks.rwlock, lambda n: locks.semaphore(n, permits=2)):
            with pytest.raises(holdfast.ConfigError, match="name"):
                make(name)
        with pytest.raises(holdfast.ConfigError, match="name"):
            await locks.inspect(name)
        with pytest.raises(holdfast.ConfigError, match="name"):
            await locks.force_release(name)
        with pytest.raises(holdfast.ConfigError, match="namespace"):
            holdfast.connect(url, namespace=name)
        if name != "":
            with pytest.raises(holdfast.ConfigError, match="prefix"):
                await locks.list(name)
            with pytest.raises(holdfast.ConfigError, match="label"):
                holdfast.connect(url, label=name)


@pytest.mark.parametrize("ttl", BAD_TTLS, ids=lambda value: ascii(value)[:20])
async def test_a_bad_ttl_is_refused(url: str, ttl: Any) -> None:
    async with holdfast.connect(url) as locks:
        with pytest.raises(holdfast.ConfigError, match="ttl") as raised:
            locks.lock("x", ttl=ttl)
        assert isinstance(raised.value, ValueError)
        with pytest.raises(holdfast.ConfigError, match="ttl"):
            locks.semaphore("x", permits=1, ttl=ttl)
        with pytest.raises(holdfast.ConfigError, match="ttl"):
            locks.rwlock("x", ttl=ttl)
        if ttl is not None:
            with pytest.raises(holdfast.ConfigError, match="max_hold"):
                locks.lock("x", max_hold=ttl)
            lease = await locks.lock("x").acquire()
            with pytest.raises(holdfast.ConfigError, match="ttl"):
                await lease.renew(ttl=ttl)
            assert lease.held


@pytest.mark.parametrize("timeout", BAD_TIMEOUTS, ids=ascii)
async def test_a_bad_timeout_is_refused(url: str, timeout: Any) -> None:
    async with holdfast.connect(url) as locks:
        with pytest.raises(holdfast.ConfigError, match="timeout"):
            locks.lock("x", timeout=timeout)
        lock = locks.lock("x")
        with pytest.raises(holdfast.ConfigError, match="timeout"):
            await lock.acquire(timeout=timeout)
        with pytest.raises(holdfast.ConfigError, match="timeout"):
            await lock.try_acquire(timeout=timeout)
        assert await locks.list() == []
        lease = await lock.acquire()
        with pytest.raises(holdfast.ConfigError, match="timeout"):
            await lease.wait_lost(timeout=timeout)
        with pytest.raises(holdfast.ConfigError, match="at_least"):
            lease.ensure(at_least=timeout)


@pytest.mark.parametrize("permits", [0, -1, True, 1.5, "2", None, 2**31], ids=ascii)
async def test_bad_permits_are_refused(url: str, permits: Any) -> None:
    async with holdfast.connect(url) as locks:
        with pytest.raises(holdfast.ConfigError, match="permits"):
            locks.semaphore("x", permits=permits)


async def test_bad_choices_are_refused(url: str) -> None:
    async with holdfast.connect(url) as locks:
        bad: Any
        for bad in ("yes", 1, 0):
            with pytest.raises(holdfast.ConfigError, match="fair"):
                locks.lock("x", fair=bad)
            with pytest.raises(holdfast.ConfigError, match="renew"):
                locks.lock("x", renew=bad)
        with pytest.raises(holdfast.ConfigError, match="purpose"):
            locks.lock("x", purpose="speed")  # type: ignore[arg-type]
        with pytest.raises(holdfast.ConfigError, match="fence"):
            locks.lock("x", protects=object())  # type: ignore[arg-type]
        with pytest.raises(holdfast.ConfigError, match="on_event"):
            holdfast.connect(url, on_event="print")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            locks.lock("x", tll=5.0)  # type: ignore[call-arg]


@pytest.mark.parametrize("owner", ["", "a b", "é", "x" * 65, "a\n", 7], ids=ascii)
async def test_a_bad_owner_is_refused(url: str, owner: Any) -> None:
    async with holdfast.connect(url) as locks:
        with pytest.raises(holdfast.ConfigError, match="owner"):
            await locks.lock("x").acquire(owner=owner)
        assert await locks.list() == []


async def test_unknown_options_are_refused(url: str) -> None:
    url, _, _ = url.partition("?")  # without options of its own
    with pytest.raises(holdfast.ConfigError, match="hartbeat"):
        holdfast.connect(url, hartbeat=1.0)  # type: ignore[call-arg]
    with pytest.raises(holdfast.ConfigError, match="hartbeat"):
        holdfast.connect(f"{url}?hartbeat=1.0")
    with pytest.raises(holdfast.ConfigError, match="both"):
        holdfast.connect(f"{url}?heartbeat=1.0", heartbeat=1.0)
    with pytest.raises(holdfast.ConfigError, match="number"):
        holdfast.connect(f"{url}?heartbeat=soon")
    with pytest.raises(holdfast.ConfigError, match="no value"):
        holdfast.connect(f"{url}?heartbeat")
    async with holdfast.connect(f"{url}?heartbeat=0.5&claim_window=1.5") as locks:
        assert (await locks._session()).heartbeat == 0.5
