"""The record of an election: its last changes, in the data of one znode.

*A change is written in the step that makes it*, a grant or another text, and only if the record is
still as it was read. So no change is lost or noted twice. That nobody leads is written by whoever finds
that the last leader's entry has gone and no other is there. A candidate that becomes the leader without
having waited writes that before its own change. A hand-over to a waiter is one change.

The zxid of a write is not known before it: what it adds has no number, token and time of its own, and
gets them from the facts about the znode. The next write puts them down. So numbers rise for as long as
zxids do, also after a record was removed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...entries import CHANGES_KEPT
from ...model import NOBODY, Change, Label
from .requests import Creator, create_beside, set_data

ELECTION = "election"
"""The kind of lock whose changes are noted."""
CHANGES_SIZE = 400_000
"""Characters of a record: a znode has a megabyte at the most."""


class Record(NamedTuple):
    """The changes of an election as they were read. `version` is that of the znode; -1: none."""

    changes: Sequence[Change]
    version: int

    def led_by(self, owner: str) -> Change | None:
        """Returns the last change, if `owner` leads by it."""
        last = self.changes[-1] if self.changes else None
        return last if last is not None and last.owner == owner else None


NO_RECORD = Record((), -1)


def read_record(data: bytes, stat: Any) -> Record:
    """Returns the record that a znode has, by the facts about it."""
    changes: list[Change] = []
    added = 0
    for number, token, owner, host, pid, text, since in json.loads(data or b"[]"):
        change = Change(number, token, owner, Label(host, pid, text), since)
        if not number:
            change = change._replace(
                number=2 * stat.mzxid + added,  # at most two are added at once
                token=token or stat.mzxid,
                since=stat.mtime / 1000,
            )
            added += 1
        changes.append(change)
    return Record(changes, stat.version)


def with_nobody(record: Record) -> bytes:
    """Returns the data of a record to which is added that nobody leads."""
    return _encode([*record.changes, _nobody_after(record)])


def with_leader(record: Record, owner: str, label: Label, waited: bool, token: int = 0) -> bytes:
    """Returns the data of a record to which a leader is added, or another text of the same leader.

    The `token` is that of the step, unless it is given. If the leader has not `waited` then nobody led
    before it.
    """
    changes = list(record.changes)
    if changes and changes[-1].owner not in ("", owner) and not waited:
        changes.append(_nobody_after(record))
    changes.append(Change(0, token, owner, label, 0.0))
    return _encode(changes)


def write_beside(creator: Creator, path: str, record: Record, data: bytes) -> Any:
    """Returns the write of a record, as a part of a step: it fails if the record has changed."""
    if record.version < 0:
        return create_beside(creator, path, data)
    return set_data(path, data, record.version)


def _nobody_after(record: Record) -> Change:
    return Change(0, record.changes[-1].token, "", NOBODY, 0.0)


def _encode(changes: Sequence[Change]) -> bytes:
    rows = [
        json.dumps([number, token, owner, *label, since])
        for number, token, owner, label, since in changes[-CHANGES_KEPT:]
    ]
    while sum(map(len, rows)) > CHANGES_SIZE and len(rows) > 2:
        del rows[0]
    return f"[{','.join(rows)}]".encode()
