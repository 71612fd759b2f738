"""The doctor in both worlds: a function, and a method of a manager."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import aio as holdfast
from holdfast.findings import LEVELS, OK, worst


async def test_the_function_and_the_method_find_the_same(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    async with holdfast.connect(url) as locks, locks.lock("mine") as lease:
        ours = await locks.doctor()
        lease.ensure()
        assert (await locks.inspect("mine")).held
    found = await holdfast.doctor(url)
    assert [one.check for one in ours] == [one.check for one in found]
    assert {one.level for one in found} <= {"ok", "warning"}


async def test_what_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    for wrong in (0, -1, "soon", None):
        with pytest.raises(holdfast.ConfigError, match="timeout"):
            await holdfast.doctor(url, timeout=wrong)  # type: ignore[arg-type]
    with pytest.raises(holdfast.ConfigError, match="namespace"):
        await holdfast.doctor(url, namespace="")
    with pytest.raises(holdfast.ConfigError, match="no option"):
        await holdfast.doctor(url, db=1)
    with pytest.raises(holdfast.ConfigError, match="unknown kind"):
        await holdfast.doctor("frob://x")
    assert list(tmp_path.iterdir()) == []


async def test_the_worst() -> None:
    every = [holdfast.Finding(level, "x", "y") for level in LEVELS]
    assert worst([]) == OK
    assert [worst(every[: count + 1]) for count in range(len(every))] == list(LEVELS)
    assert worst(every[::-1]) == "wrong"
