"""Processes that contend, and are killed, on a database that is killed too; the history is checked."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import holdfast
from holdfast.chaos.servers.mariadb import MariaServer
from holdfast.chaos.servers.postgres import PostgresServer
from holdfast.chaos.servers.processes import freeze, thaw
from holdfast.chaos.servers.proxy import Proxy

CONTENDER = """
import json, os, random, sys, time
import holdfast
url, log, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance = random.Random(seed)
out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(*what):
    os.write(out, (json.dumps([time.time(), os.getpid(), *what]) + "\\n").encode())
lock = holdfast.connect(url).lock("x", ttl=2.0)  # which reaches the store when it is acquired
while True:
    try:
        lease = lock.acquire(timeout=5.0)
    except (holdfast.LockTimeout, holdfast.BackendUnavailable):
        continue
    note("granted", lease.token)
    until = time.monotonic() + chance.random() * 0.02
    while lease.held and time.monotonic() < until:
        time.sleep(0.001)
    # Before the release can free it: from here on it does not count on it any more.
    note("over", lease.token)
    try:
        lease.release()
    except holdfast.LockError:
        pass
"""

LATE = 1.0
"""Seconds by which a process may note late what it knew, because others had the processor."""


def grants_in(log: Path) -> int:
    """Returns how many grants are in the log."""
    return log.read_text().count('"granted"') if log.exists() else 0


def check_history(server: PostgresServer | MariaServer, folder: Path, seed: int) -> None:
    """Has processes contend on `server` under faults; fails if two held the lock, or a token fell."""
    with holdfast.connect(server.url) as locks:
        locks.list()  # the tables are there before the first fault
    proxy = Proxy(server.port)
    url = server.url.replace(f":{server.port}/", f":{proxy.port}/")
    log = folder / "history"
    chance = random.Random(seed)
    started = 0
    disturbed: set[int] = set()

    def contender() -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        words = [sys.executable, "-c", CONTENDER, url, str(log), str(seed * 1000 + started)]
        return subprocess.Popen(words)

    processes = [contender() for _ in range(4)]
    try:
        end = time.monotonic() + 12.0
        while time.monotonic() < end:
            time.sleep(chance.random())
            fault = chance.choice(["kill", "stop", "restart", "cut", "cut", "lose", "lose", "lose"])
            victim = chance.randrange(len(processes))
            if fault == "kill":
                disturbed.add(processes[victim].pid)
                processes[victim].kill()
                processes[victim].wait()
                processes[victim] = contender()
            elif fault == "stop":
                disturbed.add(processes[victim].pid)
                freeze(processes[victim].pid)
                time.sleep(chance.random() * 3)
                thaw(processes[victim].pid)
            elif fault == "restart":
                server.kill()
                server.start()
            elif fault == "cut":
                proxy.hang_up()
            else:
                proxy.about, proxy.reset_once = b"holdfast_", True
        limit = time.monotonic() + 60.0
        while grants_in(log) <= 5 and time.monotonic() < limit:  # beside much other work
            time.sleep(0.1)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        proxy.close()
        server.stop()

    history = [json.loads(line) for line in log.read_text().splitlines()]
    over = {token: at for at, _, what, token in history if what == "over"}
    highest = grants = holder = 0
    for at, process_id, what, token in history:
        if what == "granted":
            grants += 1
            assert token > highest, f"token {token} after {highest}"
            if holder and highest in over:  # who goes on was told before; or it was not let go on
                assert over[highest] < at + LATE, (
                    f"token {highest} was held when {token} was granted"
                )
            highest = token
            holder = 0 if process_id in disturbed else process_id
    assert grants > 5
