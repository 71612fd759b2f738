"""The names of keys on a Redis server."""

from __future__ import annotations

import pytest

from holdfast.stores.redis.keys import Naming
from holdfast.stores.redis.wire.protocol import bulk


@pytest.mark.parametrize("form", [None, "lock:*", "schloß:{*}"])
@pytest.mark.parametrize("odd", [[], ["50%"], ["a}b"], ["Bäcker"], ["}", "%", "é"]])
def test_many_keys_are_packed_as_each_of_them_is(form: str | None, odd: list[str]) -> None:
    naming = Naming("na{me}%ü", form)
    names = ["a", "b" * 300, *odd, "c:d"]
    assert naming.packed(names) == b"".join(bulk(naming.lock_key(name)) for name in names)
