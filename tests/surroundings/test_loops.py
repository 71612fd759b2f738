"""holdfast.aio says what it needs where there is no event loop of asyncio."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast.aio


async def enter() -> None:
    async with holdfast.aio.connect("memory://").lock("x"):
        pass


def test_under_trio() -> None:
    code = (
        "import trio, holdfast.aio\n"
        "async def main():\n"
        "    async with holdfast.aio.connect('memory://').lock('x'): pass\n"
        "trio.run(main)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 1
    assert "ConfigError: holdfast.aio needs asyncio, and this is trio" in answer.stderr


def test_without_any_loop() -> None:
    with pytest.raises(holdfast.ConfigError, match="needs a running event loop of asyncio"):
        enter().send(None)
