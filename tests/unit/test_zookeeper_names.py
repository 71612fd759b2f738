"""The names of znodes: their order across the wrap, odd owners, URLs."""

from __future__ import annotations

import random
from urllib.parse import unquote

import pytest

import holdfast
from holdfast.stores.tls import TLS_OPTIONS
from holdfast.stores.urls import parse as parse_url
from holdfast.stores.zookeeper.address import address_of
from holdfast.stores.zookeeper.names import (
    Naming,
    decode_name,
    encode_name,
    entry_name,
    ordered_entries,
    parse,
)


def entry(number: int, owner: str = "me") -> str:
    # As the server does it: a signed number of 32 bits, padded to ten places.
    signed = (number + 2**31) % 2**32 - 2**31
    return f"{entry_name(owner, 'lock', 1, 1, 30.0)}{signed:010d}"


@pytest.mark.parametrize("first", [0, 2**31 - 3, 2**32 - 3, 2**31 + 5])
def test_the_order_goes_on_when_the_sequence_wraps(first: int) -> None:
    names = [entry(first + number) for number in range(6)]
    for _ in range(20):
        shuffled = random.sample(names, len(names))
        assert [one.name for one in ordered_entries(shuffled)] == names


@pytest.mark.parametrize("owner", ["a,b", "100%", "a/b", "-", "~", "..", "0123456789"])
def test_any_owner_is_read_back(owner: str) -> None:
    found = parse(entry(7, owner))
    assert found is not None
    assert (found.owner, found.kind, found.capacity, found.weight) == (owner, "lock", 1, 1)
    assert (found.ttl, found.sequence) == (30.0, 7)


def test_a_foreign_znode_is_not_in_the_queue() -> None:
    names = ["lock-0000000001", "a,b,c", "a,lock,1,1,1000,x", entry(3)]
    assert [one.name for one in ordered_entries(names)] == [entry(3)]


@pytest.mark.parametrize("name", [".", "..", "a/b", "100%", "é", ".hidden", "x" * 1024])
def test_a_lock_s_name_is_one_part_of_a_path(name: str) -> None:
    assert "/" not in encode_name(name)
    assert encode_name(name) not in (".", "..")
    assert decode_name(encode_name(name)) == name


@pytest.mark.parametrize(
    "name", ["a%zz", "%", "%4", "é%41", "\\x41%42", "\\%5C", "%FF", "a\\N{DASH}%20"]
)
def test_a_foreign_name_is_read_as_it_always_was(name: str) -> None:
    assert decode_name(name) == unquote(name)


def test_every_parent_is_made_before_its_children() -> None:
    assert Naming("/a/b", "ns").needed() == [
        "/a",
        "/a/b",
        "/a/b/ns",
        "/a/b/ns/locks",
        "/a/b/ns/sessions",
        "/a/b/ns/recall",
    ]


def test_a_url_names_hosts_a_chroot_and_credentials() -> None:
    target = parse_url("zookeeper://ann:s%40cret@h1:2182,h2,[::1]:2181/a/b")
    address = address_of(target, {**TLS_OPTIONS, "sasl": None})
    assert address.hosts == "h1:2182,h2:2181,[::1]:2181"
    assert address.chroot == "/a/b"
    assert address.credentials == "ann:s@cret"
    assert "s@cret" not in f"{address} {address!r} {target}"


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://",
        "zookeeper://h1,,h2",
        "zookeeper://h1:0",
        "zookeeper://h1:99999",
        "zookeeper://[::1",
        "zookeeper://ann@h1",
        "zookeeper://ann:12/34@h1",
        "zookeeper://ann:12?34=5@h1",
        "zookeeper://h1/../x",
        "zookeeper://h1?tick=0",
        "zookeeper://h1?sasl=x",
    ],
)
def test_a_bad_url_is_refused(url: str) -> None:
    with pytest.raises(holdfast.ConfigError) as refused:
        holdfast.connect(url)
    assert "99999" not in str(refused.value)


def test_bad_options_are_refused() -> None:
    with pytest.raises(holdfast.ConfigError, match="mechanism"):
        holdfast.connect("zookeeper://h1", sasl={"username": "x"})
    with pytest.raises(holdfast.ConfigError, match="not both"):
        holdfast.connect("zookeeper://a:b@h1", sasl={"mechanism": "PLAIN"})
