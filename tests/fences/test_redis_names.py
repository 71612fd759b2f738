"""Redis: keys of every kind each have a mark of their own, and what is no key is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import holdfast
from fences.redis_sites import ClusterSite
from holdfast.fences import RedisFence
from holdfast.fences.redis_keys import mark_of
from stores import redis_server


@pytest.fixture
def client() -> Iterator[Any]:
    redis_server()("FLUSHALL")
    with redis.Redis(port=redis_server().port) as made:
        yield made


def test_keys_that_differ_by_braces_only_have_marks_of_their_own(client: Any) -> None:
    fence = RedisFence(client)
    keys = ["x", "{x}", "{{x}}", "x}", "{x", "{x}:", "{x}y", "x}y", "{x}y}", "{}", "{}x", "}{"]
    assert len({mark_of(key) for key in keys}) == len(keys)
    for token, key in enumerate(reversed(keys), 1):
        fence.set(key, key, token)
    assert [fence.highest(key) for key in reversed(keys)] == list(range(1, len(keys) + 1))


@pytest.mark.parametrize("ttl", [0, -1, "60", True])
def test_a_wrong_ttl_is_called_a_ttl(client: Any, ttl: Any) -> None:
    with pytest.raises(holdfast.ConfigError, match="ttl must be"):
        RedisFence(client).set("x", "a", 34, ttl=ttl)
    assert client.keys("*") == []


def test_the_fences_own_keys_are_nobodys_resource(client: Any) -> None:
    """Whoever wrote there would change what a fence remembers."""
    fence = RedisFence(client)
    fence.set("x", "a", 34)
    for key in (mark_of("x"), "holdfast-fence-floors", "holdfast-fence-resets"):
        with pytest.raises(holdfast.ConfigError, match="the fence's own"):
            fence.set(key, "0 0 ", 35)
        with pytest.raises(holdfast.ConfigError, match="the fence's own"):
            fence.delete(key, 35)
    with pytest.raises(holdfast.StaleToken):
        fence.set("x", "late", 33)


def test_keys_with_braces_in_a_cluster(tmp_path: Path) -> None:
    """What a cluster keeps elsewhere than its mark is refused, by a word and before it is written."""
    site = ClusterSite(tmp_path)
    for key in ("x}", "{}", "{}x", "x}y"):
        for ttl in (None, 60):
            with pytest.raises(holdfast.ConfigError, match="closing brace"):
                site.fence.set(key, "a", 34, ttl=ttl)
        with pytest.raises(holdfast.ConfigError, match="closing brace"):
            site.fence.delete(key, 34)
        site.fence.guard(key, 34)  # which needs the mark alone
        with pytest.raises(holdfast.StaleToken):
            site.fence.guard(key, 33)
    for key in ("{x", "{x}y", "{{x}}", "{x}y}"):
        site.fence.set(key, "a", 34)
        with pytest.raises(holdfast.StaleToken):
            site.fence.set(key, "b", 33)
    site.close()
