"""The store on its file: what the public face cannot show."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import BootClock
from holdfast.entries import AcquireRequest, Claim
from holdfast.errors import ConfigError
from holdfast.ledger import Ledger
from holdfast.model import GONE, Granted, Label, Renewed, Waiting
from holdfast.stores.sqlite import cleaning, connection, location, store, tokens
from holdfast.stores.sqlite.store import Store

Opener = Callable[[], Store]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    stores: list[Store] = []

    def opener() -> Store:
        stores.append(Store(str(tmp_path / "locks.db")))
        return stores[-1]

    yield opener
    for one in stores:
        one.close()


def deadline() -> float:
    return BootClock().now() + 5.0


def request(name: str = "x", owner: str = "o", ttl: float = 30.0) -> AcquireRequest:
    return AcquireRequest(name, owner, ttl, 1, 1, "lock", False, False, 2.0, 5.0, Label("h", 1))


def grant(one: Store, name: str = "x", owner: str = "o", ttl: float = 30.0) -> int:
    answer, _ = one.acquire(request(name, owner, ttl), deadline())
    assert isinstance(answer, Granted)
    return answer.token


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as opened, opened:  # which commits
        return opened.execute(sql).fetchall()


def test_the_shortcut_and_the_ledger_give_rising_tokens(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened()
    granted = []
    for turn in range(60):
        with monkeypatch.context() as patch:
            if turn % 3 == 0:
                patch.setattr(store, "grant_alone", lambda *args: None)  # the ledger's way
            granted.append(grant(one, owner=f"o{turn}"))
        one.release("x", f"o{turn}", deadline())
    assert granted == sorted(set(granted))


def test_a_coarse_clock_leaves_it_to_the_ledger(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "clock_getres", lambda clock: 0.004)
    frozen = tokens.boot_microseconds()
    monkeypatch.setattr(tokens, "boot_microseconds", lambda: frozen)
    one = opened()
    granted = []
    for turn in range(50):
        granted.append(grant(one, owner=f"o{turn}"))
        one.release("x", f"o{turn}", deadline())
    assert granted == sorted(set(granted))


def test_the_ceiling_is_always_above_the_tokens_in_use(opened: Opener, tmp_path: Path) -> None:
    one = opened()
    for turn in range(20):
        token = grant(one, f"n{turn}")
        ((ceiling,),) = query(tmp_path / "locks.db", "SELECT ceiling FROM store")
        assert isinstance(ceiling, int)
        assert token < ceiling <= token + tokens.HEADROOM


def test_a_reboot_clears_it_and_tokens_go_on_above_the_ceiling(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened()
    token = grant(one)
    ((ceiling,),) = query(tmp_path / "locks.db", "SELECT ceiling FROM store")
    one.close()
    query(tmp_path / "locks.db", "UPDATE entry SET process = 'before'")
    monkeypatch.setattr(location, "clock_identity", lambda: ("another boot", "1"))
    monkeypatch.setattr(tokens, "boot_microseconds", lambda: 5_000_000)  # just booted
    monkeypatch.setattr(time, "time_ns", lambda: 10**9)  # and the wall clock says 1970
    again = opened()
    assert again.inspect("x", deadline()).holders == ()
    assert isinstance(ceiling, int)
    assert grant(again) >= ceiling > token


def test_another_time_namespace_is_refused(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    grant(opened())
    boot, _ = location.clock_identity()
    monkeypatch.setattr(location, "clock_identity", lambda: (boot, "another"))
    with pytest.raises(ConfigError, match="time namespace"):
        grant(opened(), owner="p")


def test_entries_are_saved_when_the_proof_of_our_life_is_removed(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PRESENCE_CHECKED_EVERY", 0.0)
    one = opened()
    token = grant(one)
    (tmp_path / "locks.db-live" / f"{one.process}.live").unlink()
    outcomes, _ = one.renew([Claim("x", "o", 30.0)], deadline())
    assert outcomes == [Renewed(token, 30.0)]
    ((process,),) = query(tmp_path / "locks.db", "SELECT process FROM entry")
    assert process == one.process
    assert (tmp_path / "locks.db-live" / f"{process}.live").exists()


def test_without_its_folder_the_ttl_alone_counts(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened()
    grant(one)
    query(tmp_path / "locks.db", "UPDATE entry SET process = 'somebody-elsewhere'")
    one.close()
    shutil.rmtree(tmp_path / "locks.db-live")
    again = opened()
    assert len(again.inspect("x", deadline()).holders) == 1


def test_the_cleaner_removes_what_nobody_will_ask_for(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened()
    for number in range(50):
        grant(one, f"n{number}", ttl=1e-6)
    grant(one, "dead", ttl=1000.0)
    grant(one, "kept", ttl=1000.0)
    query(tmp_path / "locks.db", "UPDATE entry SET process = 'dead' WHERE name = 'dead'")
    monkeypatch.setattr(cleaning, "EVERY", 0.0)
    one.renew([Claim("kept", "o", 1000.0)], deadline())
    assert query(tmp_path / "locks.db", "SELECT name FROM entry") == [("kept",)]


def test_the_audit_is_kept_short(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_AUDIT_KEPT", 3)
    one = opened()
    for number in range(5):
        grant(one, owner=f"o{number}")
        assert one.force_release("x", f"operator {number}", deadline()) is True
    rows_kept = query(tmp_path / "locks.db", "SELECT name, actor FROM audit ORDER BY id")
    assert rows_kept == [("x", f"operator {number}") for number in (2, 3, 4)]


def test_an_interrupted_step_leaves_nothing_and_lets_the_next_in(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened()
    grant(one)

    def interrupt(self: object, name: str, owner: str) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "release_alone", lambda *args: None)
        patch.setattr(Ledger, "release", interrupt)
        with pytest.raises(KeyboardInterrupt):
            one.release("x", "o", deadline())
    assert len(one.inspect("x", deadline()).holders) == 1
    assert one.release("x", "o", deadline()) is True


def test_a_path_with_odd_characters(tmp_path: Path) -> None:
    folder = tmp_path / "a b%20?#é"
    folder.mkdir()
    one = Store(str(folder / "lo%cks?.db"))
    grant(one)
    one.close()
    assert sorted(os.listdir(folder)) == ["lo%cks?.db", "lo%cks?.db-live"]


def test_a_strangers_log_is_not_taken_for_what_we_left(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    ours = Store(str(path))
    grant(ours)
    ours.close()
    path.unlink()
    # Another program's database, which crashed with its last words in the log, moves in.
    elsewhere = tmp_path / "elsewhere.db"
    theirs = sqlite3.connect(elsewhere, isolation_level=None)
    theirs.execute("PRAGMA journal_mode = WAL")
    theirs.execute("CREATE TABLE theirs (x)")
    for suffix in ("", "-wal"):
        shutil.copy(f"{elsewhere}{suffix}", f"{path}{suffix}")
    theirs.close()
    before = (tmp_path / "locks.db-wal").read_bytes()
    assert before
    with pytest.raises(ConfigError, match="not a Holdfast store"):
        grant(Store(str(path)))
    assert (tmp_path / "locks.db-wal").read_bytes() == before


def test_the_cost_of_a_heartbeat_does_not_grow_with_the_queue(opened: Opener) -> None:
    one = opened()
    grant(one, "x", "holder", 3000.0)

    def cost(claims: list[Claim]) -> int:
        """Returns the number of instructions that SQLite needs to renew these."""
        steps: list[None] = []
        opened_connection = one._open_connection()
        opened_connection.set_progress_handler(lambda: steps.append(None), 10)
        try:
            outcomes, _ = one.renew(claims, deadline())
        finally:
            opened_connection.set_progress_handler(None, 0)
        assert all(isinstance(outcome, Waiting) for outcome in outcomes)
        return len(steps)

    def enqueue(owners: range) -> list[Claim]:
        for number in owners:
            waiter = request("x", f"w{number}", 3000.0)
            waiter.queue, waiter.patience = True, 3000.0
            one.acquire(waiter, deadline())
        return [Claim("x", f"w{number}", 3000.0) for number in owners]

    first = enqueue(range(50))
    few = cost(first), cost(first[:1]), cost(first[-1:])
    last = enqueue(range(50, 1500))[-50:]
    for claims in (first, last):
        many = cost(claims), cost(claims[:1]), cost(claims[-1:])
        assert all(now < 2 * before + 20 for now, before in zip(many, few, strict=True)), many


AHEAD = 30_000_000
"""µs by which a burst of grants has run ahead of the clock."""


def test_waiters_are_renewed_together_and_one_that_is_gone_is_told(
    opened: Opener, tmp_path: Path
) -> None:
    """More of them than one statement takes."""
    one = opened()
    grant(one)
    owners = [f"w{number}" for number in range(70)]
    for owner in owners:
        waiter = request(owner=owner)
        waiter.queue = True
        one.acquire(waiter, deadline())

    def ends() -> dict[object, Any]:
        rows = query(tmp_path / "locks.db", "SELECT owner, expires FROM entry WHERE waiting = 1")
        return {owner: end for owner, end in rows}

    before = ends()
    one.release("x", "w40", deadline())
    outcomes, _ = one.renew([Claim("x", owner, 30.0) for owner in owners], deadline())
    gone = [owner for owner, outcome in zip(owners, outcomes, strict=True) if outcome is GONE]
    assert gone == ["w40"]
    assert sum(isinstance(outcome, Waiting) for outcome in outcomes) == 69
    after = ends()
    assert set(after) == set(owners) - {"w40"}
    assert all(after[owner] > before[owner] for owner in after)


def test_a_counter_ahead_of_the_clock_is_not_gone_back_behind(
    opened: Opener, tmp_path: Path
) -> None:
    one = opened()
    last = grant(one) + AHEAD
    one.release("x", "o", deadline())
    query(
        tmp_path / "locks.db",
        f"UPDATE store SET token = {last}, ceiling = {last + tokens.HEADROOM}",
    )
    for turn in range(3):
        token = grant(one, owner=f"o{turn}")
        assert token > last
        last = token
        one.release("x", f"o{turn}", deadline())


def test_a_lock_is_handed_over_with_a_token_above_its_holders(
    opened: Opener, tmp_path: Path
) -> None:
    one = opened()
    last = grant(one) + AHEAD
    query(
        tmp_path / "locks.db",
        f"UPDATE store SET token = {last}, ceiling = {last + tokens.HEADROOM}",
    )
    query(tmp_path / "locks.db", f"UPDATE entry SET token = {last}")
    waiter = request(owner="waiter")
    waiter.queue = True
    one.acquire(waiter, deadline())
    assert one.release("x", "o", deadline()) is True
    (holder,) = one.inspect("x", deadline()).holders
    assert (holder.owner, holder.token > last) == ("waiter", True)


def test_processes_that_never_renew_leave_no_rows_for_ever(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `holdfast once`, started by cron, where each day has a name of its own."""
    monkeypatch.setattr(cleaning, "EVERY", 0.0)
    for day in range(5):
        one = opened()
        grant(one, f"day {day}", f"o{day}")
        assert one.detach(f"day {day}", f"o{day}", 0.01, deadline())
        one.close()
        time.sleep(0.02)
    assert len(query(tmp_path / "locks.db", "SELECT name FROM entry")) == 1


def test_the_cleaner_spares_the_lease_of_a_tethered_command(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`holdfast run` is dead, and its command holds the tether."""
    monkeypatch.setattr(cleaning, "EVERY", 0.0)
    one = opened()
    grant(one, "tethered", ttl=1000.0)
    grant(one, "kept", "other", ttl=1000.0)
    inherited = os.dup(one.tether("tethered", "o", deadline()))
    query(tmp_path / "locks.db", "UPDATE entry SET process = 'dead' WHERE name = 'tethered'")
    one._tethers.pop("o").close()

    def names() -> list[tuple[object, ...]]:
        one.renew([Claim("kept", "other", 1000.0)], deadline())
        return query(tmp_path / "locks.db", "SELECT name FROM entry ORDER BY name")

    assert names() == [("kept",), ("tethered",)]
    os.close(inherited)
    assert names() == [("kept",)]


def test_what_a_killed_maker_has_left_is_removed(opened: Opener, tmp_path: Path) -> None:
    left = "locks.db-0123456789abcdef.new"
    for name in (left, f"{left}-wal", f"{left}-shm", f"{left}-journal"):
        (tmp_path / name).touch()
    own = {"locks.db-backup.new", "locks.db-before-upgrade16.new"}  # a user's
    for name in own:
        (tmp_path / name).touch()
    opened().open(deadline())
    found = {path.name for path in tmp_path.iterdir()}
    assert found - {"locks.db-wal", "locks.db-shm"} == {"locks.db", "locks.db-live", *own}


def test_drafts_of_other_users_are_left_and_a_folder_need_not_be_read(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder for all, such as `/tmp`, each may remove files of its own only."""
    left = str(tmp_path / "locks.db-0123456789abcdef.new")
    Path(left).touch()
    listdir, unlink = os.listdir, os.unlink

    def listed(path: Any) -> list[str]:
        if path == str(tmp_path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return listdir(path)

    def removed(path: Any) -> None:
        if path == left:
            raise PermissionError(errno.EPERM, "Operation not permitted", path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", removed)
    opened().open(deadline())
    assert os.path.exists(left)
    monkeypatch.setattr(os, "listdir", listed)
    grant(opened())
