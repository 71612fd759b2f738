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
