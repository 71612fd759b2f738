"""A process on greenlets: a holder, three waiters, and somebody who needs no lock at all.

greenlets.py LIBRARY WHEN URL     WHEN is before, after (the import), opened, or partly
"""

import faulthandler
import json
import os
import sys
import time
from typing import Any

library, when, url = sys.argv[1:]
faulthandler.dump_traceback_later(50, exit=True)


def patch(**exceptions: bool) -> None:
    if library == "gevent":
        from gevent import monkey

        monkey.patch_all(**exceptions)
    else:
        import eventlet

        eventlet.monkey_patch(**exceptions)


if when == "before":
    patch()
if when == "partly":
    patch(thread=False)
import holdfast  # noqa: E402

locks = holdfast.connect(url)
if when == "opened":
    with locks.lock("first"):
        pass
if when in ("after", "opened"):
    patch()

if library == "gevent":
    from gevent import sleep, spawn
else:
    from eventlet import sleep, spawn

story: dict[str, Any] = {"held": False, "alone": True, "grants": 0, "refused": "", "pause": 0.0}
inside = 0
ended = False


def tick() -> None:
    while not ended:
        began = time.monotonic()
        sleep(0.05)
        story["pause"] = max(story["pause"], time.monotonic() - began)


def hold(seconds: float) -> None:
    global inside
    try:
        with locks.lock("x", ttl=6.0, timeout=30.0) as lease:
            inside += 1
            story["alone"] &= inside == 1
            sleep(seconds)
            story["held"] |= lease.held and seconds > 1
            story["grants"] += 1
            inside -= 1
    except holdfast.ConfigError as error:
        story["refused"] = str(error)


ticking = spawn(tick)
holder = spawn(hold, 8.0)  # longer than the lease, so it must be renewed
sleep(0.2)
waiters = [spawn(hold, 0.02) for _ in range(3)]
for one in (holder, *waiters):
    one.get() if library == "gevent" else one.wait()
ended = True
if not story["refused"]:
    locks.close()
print(json.dumps(story), flush=True)
os._exit(0)
