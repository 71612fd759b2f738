"""`ls`, `show` and `break` on every store that other processes can see."""

from __future__ import annotations

import json
import os
import socket

import holdfast
from cli.neighbour import waiter
from cli.stage import Ended, Stage
from stores import UNFAIR


def fair(url: str) -> bool:
    return url.partition(":")[0] not in UNFAIR


def command(stage: Stage, url: str, *words: str) -> Ended:
    ended = stage.run(*words, env=stage.environment(HOLDFAST_URL=url))
    assert "Traceback" not in ended.err
    return ended


def test_what_is_shown_is_what_is_held(stage: Stage, url: str) -> None:
    with (
        holdfast.connect(url, label="by hand") as locks,
        locks.lock("a:one", ttl=60.0) as lease,
        locks.lock("b:two"),
    ):
        ended = command(stage, url, "ls")
        assert (ended.status, ended.err) == (0, "")
        head, one, two = ended.out.splitlines()
        assert head.split() == ["NAME", "TOKEN", "HELD", "REMAINS", "WAIT", "HOLDER"]
        assert one.split()[:2] == ["a:one", str(lease.token)]
        assert one.endswith(f"by hand ({socket.gethostname()}:{os.getpid()})")
        assert two.startswith("b:two ")
        assert len(command(stage, url, "ls", "b:").out.splitlines()) == 2
        assert command(stage, url, "ls", "c:").out == ""
        (found,) = json.loads(command(stage, url, "ls", "a:", "--json").out)
        shown = json.loads(command(stage, url, "show", "a:one", "--json").out)
        for state in (found, shown):
            assert (state["name"], state["held"], state["token"]) == ("a:one", True, lease.token)
            (holder,) = state["holders"]
            assert holder["owner"] == lease.owner
            assert (holder["label"], holder["pid"]) == ("by hand", os.getpid())
            assert 0 < holder["remaining"] <= 65
        ended = command(stage, url, "show", "a:one")
        assert ended.out.startswith(f"a:one  held\ntoken {lease.token}\n")


def test_breaking_gives_it_to_the_next(stage: Stage, url: str) -> None:
    with holdfast.connect(url) as locks:
        lease = locks.lock("x", ttl=60.0).acquire()
        ended = command(stage, url, "break", "x")
        assert (ended.status, "give --yes" in ended.err) == (2, True)
        assert locks.inspect("x").held
        ended = command(stage, url, "break", "x", "--yes")
        assert (ended.status, ended.out) == (0, "")
        assert f"'x' was taken away from {socket.gethostname()}:{os.getpid()}" in ended.err
        assert not locks.inspect("x").held
        with locks.lock("x", timeout=30.0) as next_one:
            assert next_one.token > lease.token
        ended = command(stage, url, "break", "x", "--yes", "--json")
        assert ended.status == 1
        assert json.loads(ended.out)["broken"] is False
        assert "'x' is not held" in ended.err


def test_breaking_raises_the_token_above_what_a_fence_has_seen(stage: Stage, url: str) -> None:
    with holdfast.connect(url) as locks:
        lease = locks.lock("x", ttl=60.0).acquire()
        raised = str(lease.token + 1_000_000_000)
        ended = command(stage, url, "break", "x", "--yes", "--token-above", raised)
        if ended.status == 2:  # as on etcd and ZooKeeper
            assert f"cannot be raised above {raised}" in ended.err
            lease.renew()
            raised = str(lease.token)
            ended = command(stage, url, "break", "x", "--yes", "--token-above", raised)
        assert ended.status == 0
        assert f"; its tokens are above {raised} now" in ended.err
        words = ("break", "x", "--yes", "--json", "--token-above", raised)
        ended = command(stage, url, *words)
        assert ended.status == 0
        said = json.loads(ended.out)
        assert (said["broken"], said["token_above"]) == (False, int(raised))
        assert locks.lock("x").acquire(timeout=30.0).token > int(raised)


def test_waiters_are_shown_in_order(stage: Stage, url: str) -> None:
    with (
        holdfast.connect(url) as locks,
        locks.lock("x", ttl=60.0),
        waiter(holdfast.connect(url, label="first"), "x"),
        waiter(holdfast.connect(url, label="second"), "x"),
    ):
        ended = command(stage, url, "show", "x")
        assert ended.out.startswith("x  held, 2 waiting\n")
        queue = ended.out.partition("WAITING")[2].splitlines()[1:]
        shown = [tuple(line.split()[:2]) for line in queue]
        assert shown in ([("1", "first"), ("2", "second")], [("1", "second"), ("2", "first")])
        assert not fair(url) or shown[0][1] == "first"
        assert command(stage, url, "ls").out.splitlines()[1].split()[4] == "2"
        state = json.loads(command(stage, url, "show", "x", "--json").out)
        labels = [one["label"] for one in state["waiters"]]
        assert sorted(labels) == ["first", "second"]
        assert not fair(url) or labels[0] == "first"


def test_a_semaphore_has_a_row_for_each_holder(stage: Stage, url: str) -> None:
    with holdfast.connect(url) as locks:
        pool = locks.semaphore("pool", permits=3)
        with pool.acquire(), pool.acquire():
            head, *rows = command(stage, url, "ls").out.splitlines()
            assert head.split()[:2] == ["NAME", "KIND"]
            assert rows[0].split()[:4] == ["pool", "2", "of", "3"]
            assert len(rows) == 2
            assert "semaphore, 2 of 3 held" in command(stage, url, "show", "pool").out


def test_a_once_is_shown_alike_while_it_is_done_and_when_it_was(stage: Stage, url: str) -> None:
    with holdfast.connect(url) as locks:
        lease = locks.once("job", 50.0, ttl=20.0)
        assert lease is not None
        for least in (0.0, 20.0):
            (state,) = json.loads(command(stage, url, "ls", "--json").out)
            (holder,) = state["holders"]
            assert (state["kind"], holder["ttl"]) == ("once", None)
            assert holder["remaining"] > least
            lease.release()
