"""The end of an interpreter in which a module of the user's outlives ours, as under uWSGI."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys, types
site = sys.modules["site_of_the_user"] = types.ModuleType("site_of_the_user")
ctypes.pythonapi.Py_IncRef(ctypes.py_object(site))  # as a server in C keeps the application
import {module} as holdfast
site.locks = holdfast.connect({url!r})
async def take():
    site.lease = await site.locks.lock("x").acquire()
if "aio" in {module!r}:
    import asyncio
    asyncio.run(take())
else:
    site.lease = site.locks.lock("x").acquire()
print("taken")
"""


@pytest.mark.parametrize("module", ["holdfast", "holdfast.aio"])
def test_nothing_is_said_at_the_end(module: str) -> None:
    program = PROGRAM.format(module=module, url="memory://")
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("taken\n", "")
