"""An interrupt (^C) just as a manager begins to listen for messages of the database."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

import holdfast
from stores import postgres_server
from worlds.threads import Job


def interrupt_after_acquire(frame: FrameType, event: str, function: Any) -> None:
    """Raises as a signal's handler may, right after the call that took the turn at listening."""
    if event == "c_return" and function.__name__ == "acquire":
        caller = frame.f_back
        if caller is not None and caller.f_code.co_name == "prepare":
            sys.setprofile(None)
            raise KeyboardInterrupt


def test_nobody_waits_for_a_turn_that_an_interrupted_caller_took() -> None:
    with holdfast.connect(postgres_server().new_database()) as locks:
        locks.list()
        backend: Any = locks._session().backend
        wakeups = backend._wakeups
        assert not wakeups.ready

        def prepare() -> None:
            sys.setprofile(interrupt_after_acquire)
            try:
                wakeups.prepare(backend.clock.now() + 20.0)
            finally:
                sys.setprofile(None)

        with pytest.raises(KeyboardInterrupt):
            prepare()
        assert not wakeups.channel
        Job(wakeups.prepare, backend.clock.now() + 10.0).result()
        assert wakeups.channel
