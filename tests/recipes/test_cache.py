"""A cache without a stampede: one computes, also when another was killed or the store is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.chaos.servers.proxy import Proxy
from recipes.players import TTL, Cast, cast, until, waited_for
from stores import redis

OLD = "<p>old</p>"


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Cast]:
    with cast(tmp_path, "cache") as made:
        yield made


def put_old_value(readers: Cast) -> None:
    path = readers.folder / "front-page.html"
    path.write_text(f"{OLD}\n")
    os.utime(path, (0, 0))


def test_another_computes_when_the_one_that_did_was_killed(readers: Cast) -> None:
    crowd = [readers.player(stop_at="compute") for _ in range(5)]
    waited_for(readers.url, "front-page", 4)
    until(lambda: sum(one.stops for one in crowd) == 1, "a computation")
    next(one for one in crowd if one.stops).kill()
    until(lambda: sum(one.stops for one in crowd) == 2, "a second computation")
    living = [one for one in crowd if one.process.poll() is None]
    for one in living:
        one.go_through()
    values = [one.succeeded() for one in living]
    assert len(values) == 4
    assert all(value == values[0] for value in values)
    assert sum(one.stops for one in crowd) == 2


def test_the_old_value_is_taken_while_one_computes(readers: Cast) -> None:
    put_old_value(readers)
    first = readers.player(stop_at="compute")
    first.stopped()
    assert readers.player().succeeded() == [OLD]
    first.go()
    fresh = first.succeeded()
    assert fresh == [f"<p>made by process {first.pid}</p>"]
    assert readers.player().succeeded() == fresh


def test_one_that_was_paused_still_has_its_value(readers: Cast) -> None:
    first = readers.player("--ttl", str(TTL), stop_at="after:compute")
    first.stopped()
    first.freeze()
    second = readers.player()
    second.succeeded()
    first.thaw()
    first.go()
    assert first.succeeded() == [f"<p>made by process {first.pid}</p>"]


def test_without_the_store_the_old_value_is_taken(readers: Cast, tmp_path: Path) -> None:
    put_old_value(readers)
    with redis(tmp_path) as url:
        proxy = Proxy(int(url.rpartition(":")[2].partition("/")[0]))
        try:
            proxy.stalled = True
            assert readers.player(url=proxy.url).succeeded() == [OLD]
        finally:
            proxy.close()
