"""The backend has news of a lease while it is being released."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast


def test_it_does_not_come_back_to_the_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.connect("memory://looked-at") as locks:
        lost: list[object] = []
        lease = locks.lock("x").acquire()
        lease.on_lost(lost.append)
        session: Any = locks._session()
        keeper = type(session.keeper)
        real_release = session.backend.release
        looking, released, looked = threading.Event(), threading.Event(), threading.Event()

        def late(real: Callable[..., None]) -> Callable[..., None]:
            def call(*arguments: Any) -> None:
                looking.set()
                released.wait(10)
                real(*arguments)
                # The keeper asks about it now, if it does at all.
                threading.Timer(0.2, looked.set).start()

            return call

        def slow_release(*arguments: Any) -> Any:
            answer = real_release(*arguments)
            released.set()
            looked.wait(10)
            return answer

        for name in ("keep", "hurry"):
            if hasattr(keeper, name):
                monkeypatch.setattr(keeper, name, late(getattr(keeper, name)))
        session.backend.release = slow_release
        looker = threading.Thread(target=session.look_at, args=([lease.owner],), daemon=True)
        looker.start()
        assert looking.wait(10)
        assert lease.release() is True
        assert lost == []
        looker.join()
