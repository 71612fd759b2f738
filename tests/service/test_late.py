"""A renewal that comes late is told: the holder was paused, or could not reach the store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from holdfast.model import Label, LockState, Participant
from holdfast.service.watcher import Watcher


def test_a_late_renewal_is_told_once() -> None:
    watcher = Watcher(watched_store(), 1.0, 100)
    for now, remaining in ((0.0, 30.0), (10.0, 20.0), (24.0, 6.0), (25.0, 29.0), (26.0, 28.0)):
        see(watcher, now, remaining)
    assert [one.kind for one in watcher.since(0) or ()] == ["late", "renewed"]
    late, renewed = watcher.since(0) or []
    assert late.view["left"] == 6.0
    assert late.view["owner"] == renewed.view["owner"] == "owner"


def test_renewals_in_time_are_not_late() -> None:
    watcher = Watcher(watched_store(), 1.0, 100)
    for look in range(100):
        see(watcher, float(look), 30.0 - look % 10)
    assert {one.kind for one in watcher.since(0) or ()} == {"renewed"}


def watched_store() -> Any:
    return SimpleNamespace(wall=lambda: 1.0)


def see(watcher: Any, now: float, remaining: float) -> None:
    """Has the watcher see one holder, as `_look` would."""
    holder = Participant("owner", Label("h", 1, ""), 7, 0.0, remaining)
    watcher._note_renewals([LockState("x", (holder,), (), 7)], now)
    watcher._looked_at = now
