"""Objects: new attributes for the same bytes are written, or refused, and never dropped in silence."""

from __future__ import annotations

import os
from typing import Any

import obstore
import pytest

import holdfast
from holdfast.fences import ObjectFence
from stores import gcs_server, s3_server

CSV, TEXT = {"Content-Type": "text/csv"}, {"Content-Type": "text/plain"}


def content_type(store: Any) -> str:
    found: str = obstore.get(store, "x").attributes["Content-Type"]
    return found


def test_where_a_version_is_the_hash_of_the_bytes() -> None:
    store = s3_server().bucket(f"b{os.urandom(8).hex()}")
    fence = ObjectFence(store)
    fence.put("x", b"a,b\n", 34, attributes=CSV)
    for same in (CSV, None, {}):
        fence.put("x", b"a,b\n", 34, attributes=same)
    with pytest.raises(holdfast.GuaranteeError, match="stamp=True"):
        fence.put("x", b"a,b\n", 34, attributes=TEXT)
    assert content_type(store) == "text/csv"


@pytest.mark.parametrize("kind", ["gcs", "stamped"])
def test_elsewhere_they_are_written(kind: str) -> None:
    server: Any = gcs_server if kind == "gcs" else s3_server
    store = server().bucket(f"b{os.urandom(8).hex()}")
    fence = ObjectFence(store, stamp=kind == "stamped")
    fence.put("x", b"a,b\n", 34, attributes=CSV)
    fence.put("x", b"a,b\n", 34, attributes=TEXT)
    assert content_type(store) == "text/plain"


@pytest.mark.parametrize("name", ["holdfastreader", "holdfasttoken", "HoldfastLock", "holdfast"])
def test_attributes_that_the_fence_would_take_for_its_own_are_refused(name: str) -> None:
    store = s3_server().bucket(f"b{os.urandom(8).hex()}")
    fence = ObjectFence(store)
    with pytest.raises(holdfast.ConfigError, match="the fence's own"):
        fence.put("x", b"a", 34, attributes={name: "999"})
    assert fence.highest("x") == 0
    fence.put("x", b"a", 34)


def test_bytes_that_begin_like_a_stamp_are_not_cut_off() -> None:
    store = s3_server().bucket(f"b{os.urandom(8).hex()}")
    body = b"holdfast-stamp 0123456789abcdef01234567\nmine"
    with pytest.raises(holdfast.ConfigError, match="stamp=True"):
        ObjectFence(store).put("x", body, 34)
    stamped = ObjectFence(store, stamp=True)
    stamped.put("x", body, 34)
    assert stamped.get("x") == body
    stamped.put("x", b"holdfast-stamp of another kind\n", 34)
    assert stamped.get("x") == b"holdfast-stamp of another kind\n"


def test_a_reset_of_what_is_not_there_keeps_no_number() -> None:
    fence = ObjectFence(s3_server().bucket(f"b{os.urandom(8).hex()}"))
    assert fence.reset("x", by="a test") == 0
    with pytest.raises(holdfast.GuaranteeError, match="put an empty one first"):
        fence.reset("x", by="a test", to=100)


def test_who_has_reset_it_stays_on_record() -> None:
    store = gcs_server().bucket(f"b{os.urandom(8).hex()}")
    fence = ObjectFence(store)
    fence.put("x", b"a", 34)
    fence.reset("x", by="a test", to=40)
    fence.put("x", b"b", 41, attributes=CSV)
    assert "a%20test" in obstore.get(store, "x").attributes["holdfastreset"]
    assert content_type(store) == "text/csv"
