"""gunicorn, which forks its workers when the manager is already there: `--preload`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from stores import redis_server

from .programs import LIMIT, Program, program, until

WORKERS = {"sync": [], "gthread": ["--worker-class", "gthread", "--threads", "4"]}
GUNICORN = ["-m", "gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:0"]


@pytest.fixture(params=["redis", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/locks.db"
    return redis_server().url


@pytest.fixture(params=sorted(WORKERS))
def server(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> Iterator[Program]:
    words = [*GUNICORN, *WORKERS[request.param], "contrib.prefork_site:app"]
    with program(
        *words, folder=tmp_path, SITE_STORE=store, SITE_NAME=tmp_path.name, HOME=str(tmp_path)
    ) as running:
        yield running


def pids(get: Callable[[str], str]) -> set[int]:
    """Returns the workers that have had a lock, of eight requests at once."""
    with ThreadPoolExecutor(8) as pool:
        return {int(words.split()[0]) for words in pool.map(get, ["job"] * 8)}


def test_a_worker_that_is_killed_while_it_holds(server: Program) -> None:
    site = server.says("Listening at: ").split("Listening at: ")[1].split()[0]

    def get(path: str) -> str:
        answer = httpx.get(f"{site}/{path}", timeout=LIMIT)
        assert answer.status_code == 200, server.seen
        return answer.text

    def hold() -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            get("hold")

    def both() -> bool:
        seen.update(pids(get))
        return len(seen) == 2

    seen: set[int] = set()
    until(both)
    assert server.process.pid not in seen
    assert get("kept") == "False None"  # the parent holds it, and no worker does
    holder = threading.Thread(target=hold)
    holder.start()
    _, pid, token = server.says("holding ").split()
    os.kill(int(pid), signal.SIGKILL)
    holder.join()
    other, later = map(int, get("job").split())
    assert other != int(pid)
    assert later > int(token)
    until(lambda: pids(get) - seen)  # the worker that took the place of the dead one
    assert get("kept") == "False None"
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(LIMIT) == 0
    assert not [line for line in server.seen if "Traceback" in line]
