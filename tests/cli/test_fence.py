"""`holdfast fence check`, on every store that can keep a fence."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import holdfast
from cli.stage import HOLDFAST, Ended, Stage
from holdfast.chaos.servers.proxy import Proxy
from holdfast.errors import BackendUnavailable
from holdfast.fences import places
from holdfast.fences.places import guard
from stores import STORES

FENCED = ["http", "mariadb", "postgres", "redis", "redis+cluster", "redis+sentinel", "sqlite"]
OTHERS = sorted(set(STORES) - set(FENCED))


def check(stage: Stage, url: str, *words: str, **env: str) -> Ended:
    ended = stage.run("fence", "check", *words, env=stage.environment(HOLDFAST_URL=url, **env))
    assert "Traceback" not in ended.err
    return ended


@pytest.mark.parametrize("store", FENCED)
def test_an_older_token_is_refused(stage: Stage, tmp_path: Path, store: str) -> None:
    with STORES[store](tmp_path) as url:
        for token in ("100", "100", "120"):
            ended = check(stage, url, "a resource", token)
            assert (ended.status, ended.out, ended.err) == (0, "", "")
        ended = check(stage, url, "a resource", "119")
        assert (ended.status, ended.out) == (1, "")
        assert ended.err.startswith(
            "holdfast: write to 'a resource' with fencing token 119 refused: "
        )
        assert "older than 120" in ended.err
        assert len(ended.err.splitlines()) == 1
        assert check(stage, url, "another", "1").status == 0
        found = json.loads(check(stage, url, "a resource", "7", "--json").out)
        assert found == {
            "resource": "a resource",
            "token": 7,
            "accepted": False,
            "highest": 120,
            "reason": "stale",
        }
        found = json.loads(check(stage, url, "a resource", "121", "--json").out)
        assert (found["accepted"], "highest" in found) == (True, False)


@pytest.mark.parametrize("store", FENCED)
def test_many_at_once_on_a_store_without_a_fence_yet(
    stage: Stage, tmp_path: Path, store: str
) -> None:
    with STORES[store](tmp_path) as url, ThreadPoolExecutor(6) as pool:
        checks = [pool.submit(check, stage, url, "r", str(token)) for token in range(1, 7)]
        for future in checks:
            assert future.result().status in (0, 1), future.result()
        assert check(stage, url, "r", "5").status == 1
        assert check(stage, url, "r", "6").status == 0


@pytest.mark.parametrize(
    ("store", "about"),
    [("http", b"silent"), ("mariadb", b"silent".hex().encode()), ("postgres", b"silent")],
)
def test_a_store_that_falls_silent_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, about: bytes
) -> None:
    monkeypatch.setattr(places, "PATIENCE", 1.0)
    with STORES[store](tmp_path) as url:
        parts = urlsplit(url)
        assert parts.port
        proxy = Proxy(parts.port)
        way = parts._replace(netloc=f"{parts.hostname}:{proxy.port}").geturl()
        try:
            places.guard(way, "silent", 5)
            proxy.about, proxy.mute_once = about, True
            began = time.monotonic()
            with pytest.raises(BackendUnavailable, match=r"cannot be asked|did not answer"):
                places.guard(way, "silent", 6)
            assert not proxy.mute_once
            assert time.monotonic() - began < 30.0
            assert not [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
            places.guard(way, "silent", 7)
        finally:
            proxy.close()


@pytest.mark.parametrize("store", OTHERS)
def test_a_store_that_has_no_fence(stage: Stage, store: str) -> None:
    url = {"memory": "memory://"}.get(store, f"{store}://a,b,c")
    ended = check(stage, url, "r", "1")
    assert ended.status == 2
    assert f"there is no fence that could be kept in {store}://" in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("kind", ["database", "text"])
def test_a_file_that_is_no_store_gets_no_fence_beside_it(
    stage: Stage, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    path = folder / "application.db"
    if kind == "text":
        path.write_text("not a database, and longer than the head of one" * 9)
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    ended = check(stage, f"sqlite://{path}", "r", "1")
    assert ended.status == 2, ended
    assert "not a Holdfast store" in ended.err
    assert len(ended.err.splitlines()) == 1
    assert path.read_bytes() == before
    assert list(folder.iterdir()) == [path]


def test_a_lock_service_knows_the_locks_of_its_store(stage: Stage, tmp_path: Path) -> None:
    script = f'{" ".join(HOLDFAST)} fence check "a resource" "$HOLDFAST_TOKEN"'
    with STORES["http"](tmp_path) as url:
        env = stage.environment(HOLDFAST_URL=url)
        assert stage.run("run", "one/of", "--", "sh", "-c", script, env=env).status == 0
        assert stage.run("run", "one/of", "--", "sh", "-c", script, env=env).status == 0
        ended = stage.run("run", "other", "--", "sh", "-c", script, env=env)
        assert ended.status == 1
        assert "it is of another lock" in ended.err
        ended = check(stage, url, "b", "5", HOLDFAST_TOKEN="5", HOLDFAST_LOCK_ID="etcd:x/one")
        assert ended.status == 2
        assert "the token is of a lock of 'etcd:x'" in ended.err
        assert check(stage, url, "b", "1").status == 0


def test_a_lock_service_takes_leases_of_slots_and_readers(tmp_path: Path) -> None:
    with STORES["http"](tmp_path) as url, holdfast.connect(url) as locks:
        pool = locks.semaphore("pool", permits=2)
        with pool.acquire() as first, pool.acquire() as second:
            guard(url, f"of {first.slot}", first)
            guard(url, f"of {second.slot}", second)
            guard(url, f"of {first.slot}", first)
            with pytest.raises(holdfast.StaleToken, match="another lock"):
                guard(url, f"of {first.slot}", second)
        shared = locks.rwlock("rw")
        with shared.read().acquire() as first, shared.read().acquire() as second:
            older, newer = sorted((first, second), key=lambda one: one.token)
            guard(url, "read", newer)
            guard(url, "read", older)
        with shared.write().acquire() as writer:
            guard(url, "read", writer)
        with pytest.raises(holdfast.StaleToken):
            guard(url, "read", StaleReader(writer))


class StaleReader:
    """A reader's lease from before."""

    kind, shared, name, owner = "rwlock", True, "rw", "o"

    def __init__(self, like: holdfast.Lease) -> None:
        self.lock_id, self.token = like.lock_id, like.token - 1


def test_under_run_the_lock_is_shown_too(stage: Stage) -> None:
    script = f'{" ".join(HOLDFAST)} fence check r "$HOLDFAST_TOKEN"'
    assert stage.run("run", "one", "--", "sh", "-c", script).status == 0
    assert stage.run("run", "one", "--", "sh", "-c", script).status == 0
    ended = stage.run("run", "other", "--", "sh", "-c", script)
    assert ended.status == 1
    assert "belongs to the lock 'sqlite:holdfast/one'" in ended.err


@pytest.mark.parametrize("scheme", ["http", "redis", "postgresql", "mysql"])
def test_a_server_that_is_not_there(stage: Stage, scheme: str) -> None:
    path = {"redis": "/0", "http": ""}.get(scheme, "/base")
    user = "" if scheme == "http" else "ada:hunter2@"
    ended = check(stage, f"{scheme}://{user}127.0.0.1:1{path}", "r", "1")
    assert ended.status == 69, ended
    assert len(ended.err.splitlines()) == 1
    assert "hunter2" not in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fence"], "check is missing"),
        (["fence", "check"], "RESOURCE is missing"),
        (["fence", "check", "r"], "TOKEN is missing"),
        (["fence", "chekc", "r", "1"], "no fence command 'chekc'; did you mean check?"),
        (["fence", "check", "r", "1", "2"], "one word too many: '2'"),
        (["fence", "check", "r", "x"], "a fencing token is a whole number"),
        (["fence", "check", "r", "-1"], "there is no option -1"),
        (["fence", "check", "r", "0"], "from 1 to 2^63 - 1"),
        (["fence", "check", "r", "9" * 19], "from 1 to 2^63 - 1"),
        (["fence", "check", "r", "9" * 20], "a fencing token is a whole number"),
        (["fence", "check", "", "1"], "the resource's name is empty"),
        (["fence", "check", "a\x1bb", "1"], "control character"),
        (["fence", "check", "r", "1", "--url", "nonsense://"], "unknown kind of store"),
    ],
)
def test_mistakes(stage: Stage, words: list[str], said: str) -> None:
    ended = stage.run(*words)
    assert (ended.status, ended.out) == (2, ""), ended
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_the_store_must_be_named(stage: Stage) -> None:
    env = stage.environment()
    del env["HOLDFAST_URL"]
    ended = stage.run("fence", "check", "r", "1", env=env)
    assert (ended.status, "--url, --store or $HOLDFAST_URL" in ended.err) == (2, True)
