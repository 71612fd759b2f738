"""`holdfast run` around a command that does nothing: on the embedded store, on Redis and on etcd.

Each is a whole process, started in turns with a bare interpreter, which is the floor; `flock` and
`etcdctl lock`, which people use for the same job, stand beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from .etcd_server import server as etcd_server
from .measure import Row, Setting, compare, duration, interleave, ratio, url_of
from .redis_server import server as redis_server

EMBEDDED, REDIS, ETCD = "the embedded store", "Redis", "etcd"
TARGETS = {EMBEDDED: 7.0, REDIS: 9.0}
BARE, FLOCK, ETCDCTL = "python -c pass", "flock", "etcdctl lock"


def figure(setting: Setting) -> list[Row]:
    rounds = 8 if setting.quick else 40
    holdfast = str(Path(sys.executable).with_name("holdfast"))
    with ExitStack() as stack:
        redis_port = stack.enter_context(redis_server(setting.folder))
        etcd_port = stack.enter_context(etcd_server(setting.folder))
        urls = {
            EMBEDDED: url_of(setting.folder / "locks.db"),
            REDIS: f"redis://127.0.0.1:{redis_port}",
            ETCD: f"etcd://127.0.0.1:{etcd_port}",
        }
        programs = {BARE: [sys.executable, "-c", "pass"]}
        for store, url in urls.items():
            programs[store] = [holdfast, "run", "--url", url, "x", "--", "true"]
        programs[FLOCK] = [_program(FLOCK), str(setting.folder / "flock"), "true"]
        etcdctl = [_program("etcdctl"), "--endpoints", f"127.0.0.1:{etcd_port}"]
        programs[ETCDCTL] = [*etcdctl, "lock", "x", "true"]
        samples = interleave(
            {name: _batch(command) for name, command in programs.items()}, rounds, 1
        )
    seconds = {name: median(values) for name, values in samples.items()}
    beside = f"{BARE} {duration(seconds[BARE])}"
    rows = []
    for store in urls:
        what, took = f"holdfast run x -- true, {store}", duration(seconds[store])
        times = ratio(samples[store], samples[BARE])
        target = TARGETS.get(store)
        if target is None:
            rows.append(compare(what, took, beside, times))
        else:
            numbers = {"seconds": seconds, "samples": samples} if store == EMBEDDED else {}
            rows.append(
                Row(what, took, beside, times, f"≤ {target:g} times", times <= target, numbers)
            )
    rows.extend(
        compare(f"  {name}", duration(seconds[name]), beside, ratio(samples[name], samples[BARE]))
        for name in (FLOCK, ETCDCTL)
    )
    return rows


def _program(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise RuntimeError(f"these figures need {name}: apt-get install util-linux etcd-client")
    return program


def _batch(command: Sequence[str]) -> Callable[[int], None]:
    environment = {**os.environ, "ETCDCTL_API": "3"}

    def batch(number: int) -> None:
        for _ in range(number):
            subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                check=True,
            )

    return batch
