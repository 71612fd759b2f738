"""The nodes that a URL names, as people write them."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.stores.redis.address import hosts_of
from holdfast.stores.redlock.address import parse_settings
from holdfast.stores.urls import parse


def members(url: str) -> tuple[str, ...]:
    return parse_settings(parse(url), {}).members


def test_blanks_between_nodes_are_no_part_of_their_names() -> None:
    assert members("redlock://a:1, b:2 ,c:3") == ("a:1", "b:2", "c:3")
    assert members("redlock:// u:p@a, b, c /0") == ("a:6379", "b:6379", "c:6379")


def test_an_ipv6_address_keeps_its_brackets() -> None:
    """Without them nobody could tell where the port begins, or write the name into a URL again."""
    assert members("redlock://[::1]:7001,[::1]:7002,[fe80::1]") == (
        "[::1]:7001",
        "[::1]:7002",
        "[fe80::1]:6379",
    )


def test_one_node_written_in_two_ways_is_refused() -> None:
    with pytest.raises(ConfigError, match="names each node once"):
        members("redlock://a:6379, a,b")


def test_blanks_between_sentinels_are_no_part_of_their_names() -> None:
    hosts, _, _, _ = hosts_of(parse("redis+sentinel://a:1, [::1]:2/service"), 26379)
    assert hosts == [("a", 1), ("::1", 2)]
