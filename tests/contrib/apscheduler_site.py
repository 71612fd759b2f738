"""A scheduler in a process of its own, whose job notes its process and its token in a file."""

from __future__ import annotations

import os
import sys

from holdfast.contrib.apscheduler import LeaderBlockingScheduler

URL, FILE = sys.argv[1:]
scheduler = LeaderBlockingScheduler(url=URL, election="site")
notes = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note() -> None:
    term = scheduler.term
    assert term is not None
    os.write(notes, b"%d %d\n" % (os.getpid(), term.token))


scheduler.add_job(note, "interval", seconds=0.05)
print("standing by")
scheduler.start()
