"""A lease as a text: what was written is read again, and nothing else."""

from __future__ import annotations

import pytest

from holdfast import ConfigError
from holdfast.exported import Export, decode, encode


@pytest.mark.parametrize("name", ["x", "xy", "xyz", "ünï/çødé 🔒", "n" * 300])
def test_what_was_written_is_read_again(name: str) -> None:
    export = Export("redis:billing", name, "0123456789abcdef", 2**60, "lock", 1, 1, 30.0, 0.0, "")
    text = encode(export)
    assert decode(text) == export
    for bad in (text + "!", text + "A", text[:-1], text[1:], text.replace(".", ""), " " + text):
        with pytest.raises(ConfigError):
            decode(bad)


@pytest.mark.parametrize(
    "change",
    [
        *({"name": ""}, {"owner": "a b"}, {"ttl": -1.0}, {"weight": 0}, {"capacity": "1"}),
        *({"kind": 7}, {"lock_delay": None}, {"realm": None}, {"text": 7}),
    ],
)
def test_values_that_make_no_sense_are_refused(change: dict[str, object]) -> None:
    export = Export("redis:billing", "x", "0123", 5, "lock", 1, 1, 30.0, 0.0, "")
    with pytest.raises(ConfigError):
        decode(encode(export._replace(**change)))  # type: ignore[arg-type]
