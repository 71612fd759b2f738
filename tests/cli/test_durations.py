from __future__ import annotations

import pytest

from holdfast.cli.arguments import UsageError
from holdfast.cli.durations import seconds


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30s", 30.0),
        ("30", 30.0),
        ("500ms", 0.5),
        ("1.5m", 90.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        (".5s", 0.5),
        ("5.s", 5.0),
        ("0", 0.0),
    ],
)
def test_lengths_of_time(text: str, length: float) -> None:
    assert seconds("--ttl", text) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "abc",
        "-1s",
        "+1s",
        "1e3s",
        "inf",
        "nan",
        "1_0s",
        "1 s",
        "5x",
        "5sm",
        "1.2.3s",
        "٣s",
    ],
)
def test_what_is_no_length_of_time_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"--ttl .* such as --ttl 30s"):
        seconds("--ttl", text)


@pytest.mark.parametrize("text", ["367d", "9" * 400])
def test_too_long(text: str) -> None:
    with pytest.raises(UsageError, match="at most 366d"):
        seconds("--wait", text)
