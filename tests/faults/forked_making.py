"""`python -m faults.forked_making FIRST FOLDER`: forks at each place by which a new store is made.

As if the handler of a signal forked, and returned; and child and parent both go on. FIRST comes to the
end of the call before the other one takes another step. The store has to be a whole one, with all that
the parent was granted, and nothing may be left of what was on its way.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import holdfast
from faults.children import ended_well
from faults.forked_inside import OURS, Fork
from holdfast.stores.sqlite import gate

PARTS = ("connection.py", "drafts.py", "file.py", "location.py", "lockfiles.py", "presence.py")
"""The files whose code makes the store, its folder and what is in there."""


def refuse(*arguments: object) -> None:
    """Stands in for the gate in a child whose parent has the turn, and waits for the child."""
    raise holdfast.BackendUnavailable("the parent has the turn")


class Making(Fork):
    """A fork of which one process waits at its place until the other one is through.

    A place is one where a handler can run: after a call, or at the beginning of a function.
    """

    def __init__(self, at: int, first: str) -> None:
        super().__init__(at, f"{OURS}/stores/sqlite/")
        self.first = first
        self.over, self._told = os.pipe()

    def __enter__(self) -> Making:
        sys.setprofile(self._call)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)

    def _call(self, frame: FrameType, event: str, argument: object) -> None:
        folder, _, file = frame.f_code.co_filename.rpartition("/")
        if event in ("call", "c_return") and file in PARTS and f"{folder}/" == self.folder:
            self._step(frame, "line", argument)

    def fork(self) -> int:
        inside = any(one.is_entered() for one in list(gate._gates))
        child = os.fork()
        if not child and inside:
            kind: Any = gate.Gate
            kind.enter = refuse
        if child and self.first == "child":
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        elif not child and self.first == "parent":
            os.close(self._told)
            os.read(self.over, 1)  # it returns when the parent has closed its end
        return child

    def close(self) -> None:
        os.close(self._told)
        os.close(self.over)


def forked(at: int, first: str, folder: Path) -> bool:
    """Makes a store with a fork at that place; returns False if there are fewer places."""
    folder.mkdir()
    url = f"sqlite://{folder}/locks.db"
    making = Making(at, first)
    locks: Any = None
    lease: Any = None
    code = 1
    try:
        with making:
            locks = holdfast.connect(url)
            locks._session()
        if making.child == 0:
            code = 0
        else:
            lease = locks.lock("x", ttl=60.0).try_acquire()
    except holdfast.LockError as error:
        if making.child != 0:
            raise AssertionError(f"the parent, forked at {making.where}") from error
        code = 0
    except BaseException as error:
        if making.child == 0:
            os.write(2, f"the child of {making.where}: {error!r}\n".encode())
        raise
    finally:
        if making.child == 0:
            os._exit(code)
    assert lease is not None
    if first == "child" and making.child:
        check(lease, url)
    making.close()
    if making.child:
        ended_well(making.child)
    check(lease, url)
    assert lease.release() is True
    locks.close()
    left = sorted(os.listdir(folder))
    assert left == ["locks.db", "locks.db-live"], (making.where, left)
    drafts = [name for name in os.listdir(folder / "locks.db-live") if name.endswith(".new")]
    assert drafts == [], (making.where, drafts)
    return making.child is not None


def check(lease: holdfast.Lease, url: str) -> None:
    """Has the parent its lease still, in a store that is whole?"""
    lease.renew()
    with holdfast.connect(url) as others:
        assert others.lock("x").try_acquire() is None
    with sqlite3.connect(f"file:{url.removeprefix('sqlite://')}?mode=ro", uri=True) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        live = Path(connection.execute("PRAGMA database_list").fetchone()[2] + "-live", "id")
        assert connection.execute("SELECT live FROM store").fetchall() == [(live.read_text(),)]
    connection.close()


def main(first: str, folder: str) -> None:
    at = 1
    while forked(at, first, Path(folder, str(at))):
        at += 1
    assert at > 100


if __name__ == "__main__":
    main(*sys.argv[1:])
