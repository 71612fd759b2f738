"""Options in the query of a URL: each plain value that a store takes, and what is refused by name."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

import holdfast
from holdfast.stores.options import StoreOptions
from holdfast.stores.urls import SCHEMES, merge_options, parse

URLS = {
    "memory": "memory://",
    "sqlite": "sqlite:///{folder}/locks.db",
    "etcd": "etcd://h",
    "http": "http://h",
    "https": "https://h",
    "mariadb": "mariadb://h/db",
    "mysql": "mysql://h/db",
    "postgresql": "postgresql://h/db",
    "postgres": "postgres://h/db",
    "redis": "redis://h",
    "rediss": "rediss://h",
    "redis+unix": "redis+unix:///socket",
    "redis+sentinel": "redis+sentinel://h/main",
    "redis+cluster": "redis+cluster://h",
    "redlock": "redlock://h1,h2,h3",
    "zookeeper": "zookeeper://h",
}


class Values(NamedTuple):
    """Two values of an option, as they stand in a URL."""

    good: str
    bad: str


SECONDS = Values("2.5", "-1")
SWITCH = Values("1", "2")
FILE = Values("", "/there/is/none")
PLAIN = {
    "appendfsync": Values("always", "sometimes"),
    "claim_window": SECONDS,
    "connections": Values("2", "0.5"),
    "db": Values("3", "1.5"),
    "fresh": Values("wait", "stop"),
    "heartbeat": SECONDS,
    "key": Values("lock:*", "lock"),
    "majority_lost": Values("stop", "wait"),
    "max_ttl": SECONDS,
    "min_replicas": Values("2", "-1"),
    "node_timeout": SECONDS,
    "sentinel_password": Values("s3cret", "\0"),
    "sentinel_tls": SWITCH,
    "sentinel_tls_ca": FILE,
    "sentinel_tls_cert": FILE,
    "sentinel_tls_key": FILE,
    "sentinel_user": Values("worker", "\0"),
    "tick": SECONDS,
    "tls": SWITCH,
    "tls_ca": FILE,
    "tls_cert": FILE,
    "tls_key": FILE,
    "token": Values("s3cret", "no token"),
    "token_base": Values("7", "-1"),
    "token_file": FILE,
}
OBJECTS = {"clock", "sasl", "sentinel_tls_context", "tls_context"}


@pytest.fixture(autouse=True)
def _unused() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # none of these managers is used
        yield


def options_of(url: str) -> list[str]:
    """Returns the options that the store of this URL takes, as it says itself."""
    with pytest.raises(holdfast.ConfigError) as raised:
        holdfast.connect(f"{url}?unknown=1")
    listed = re.search(r"it has: (.*)$", str(raised.value))
    assert listed is not None
    return listed[1].split(", ")


@pytest.fixture(params=SCHEMES)
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    return URLS[request.param].format(folder=tmp_path)


def test_each_plain_option_may_stand_in_the_url(url: str) -> None:
    for name in set(options_of(url)) - OBJECTS:
        holdfast.connect(f"{url}?{name}={PLAIN[name].good}")


def test_a_bad_value_is_refused_by_name(url: str) -> None:
    for name in set(options_of(url)) - OBJECTS:
        words = "database" if name == "db" else name
        with pytest.raises(holdfast.ConfigError, match=words):
            holdfast.connect(f"{url}?{name}={quote(PLAIN[name].bad)}")


def test_an_object_cannot_stand_in_the_url(url: str) -> None:
    for name in set(options_of(url)) & OBJECTS:
        with pytest.raises(holdfast.ConfigError, match=f"{name}.* cannot be given in the URL"):
            holdfast.connect(f"{url}?{name}=1")


def test_type_checkers_know_the_options_of_all_stores(tmp_path: Any) -> None:
    taken = {name for url in URLS.values() for name in options_of(url.format(folder=tmp_path))}
    assert taken == set(StoreOptions.__annotations__) == OBJECTS | set(PLAIN)


@pytest.mark.parametrize("text", ["x", "", "1e", "0x10", "--1"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(holdfast.ConfigError, match="'tick' must be a number"):
        holdfast.connect(f"zookeeper://h?tick={text}")


@pytest.mark.parametrize("text", ["nan", "inf", "9" * 400, "9" * 5000])
def test_a_number_without_end_is_refused(text: str) -> None:
    for url, name in (("zookeeper://h", "tick"), ("etcd://h", "token_base")):
        with pytest.raises(holdfast.ConfigError, match=name):
            holdfast.connect(f"{url}?{name}={text}")


def test_a_large_whole_number_is_not_rounded() -> None:
    target = parse("etcd://h?token_base=9007199254740993")
    assert merge_options(target, {}, {"token_base": 0}) == {"token_base": 9007199254740993}


def test_an_option_is_given_once() -> None:
    with pytest.raises(holdfast.ConfigError, match="'key' is given both"):
        holdfast.connect("redis://h?key=a*", key="b*")
    with pytest.raises(
        holdfast.ConfigError, match="'key' of the redis:// URL has no value, or two"
    ):
        holdfast.connect("redis://h?key=a*&key=b*")
