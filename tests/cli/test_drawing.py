"""Columns, bars and texts, drawn in the room that there is."""

from __future__ import annotations

import io

import pytest

from holdfast.cli.drawing import Cell, Column, Pen, clip, visible, width
from holdfast.cli.durations import briefly
from holdfast.cli.lock_rows import remains
from holdfast.model import Label, Participant


def test_what_is_not_visible_is_written_as_its_code() -> None:
    assert visible("plain, größer, 名前, 🔒") == "plain, größer, 名前, 🔒"
    assert visible("\0\x1b\x7f\x9b\n\r\t") == r"\u0000\u001b\u007f\u009b\n\r\t"
    assert visible("\u202e\u2028\ud800\u200b") == r"\u202e\u2028\ud800\u200b"
    assert all(visible(chr(code)).isprintable() for code in range(0x11000))


@pytest.mark.parametrize(
    ("text", "columns"),
    [("", 0), ("abc", 3), ("größe", 5), ("名前", 4), ("e\u0301", 1), ("🔒", 2)],
)
def test_the_room_that_a_text_needs(text: str, columns: int) -> None:
    assert width(text) == columns


def test_a_text_is_cut_where_it_matters_least() -> None:
    assert clip("invoice:42", 10) == "invoice:42"
    assert clip("invoice:42", 6) == "invoi…"
    assert clip("invoice:42", 6, "start") == "…ce:42"
    assert clip("invoice:42", 6, "middle") == "inv…42"
    assert clip("名前名前", 4) == "名…"
    for side in ("start", "middle", "end"):
        for columns in range(1, 12):
            assert width(clip("名a前b名c前", columns, side)) <= columns


def test_columns_are_aligned_and_give_way_together() -> None:
    pen = Pen(io.StringIO())
    columns = [Column("NAME", least=4), Column("N", right=True), Column("WHO", least=4)]
    rows = [
        [Cell("名前"), Cell("1"), Cell("somebody else")],
        [Cell("a-longer-name"), Cell("22"), Cell("me")],
    ]
    assert pen.table(columns, rows) == [
        "NAME            N  WHO",
        "名前            1  somebody else",
        "a-longer-name  22  me",
    ]
    assert pen.table(columns, rows, room=20) == [
        "NAME      N  WHO",
        "名前      1  somebo…",
        "a-long…  22  me",
    ]
    assert pen.table(columns, rows, room=12) == [
        "NA…   N  WHO",
        "名…   1  so…",
        "a-…  22  me",
    ]
    narrow = pen.table(columns, rows, room=1)  # as narrow as it gets
    assert max(map(width, narrow)) == 1 + 2 + 2 + 2 + 1


def test_one_long_text_does_not_cut_all_those_of_another_column() -> None:
    pen = Pen(io.StringIO())
    columns = [Column("NAME", least=8, side="middle"), Column("WHO", least=8, side="middle")]
    people = [Cell(f"somebody (db-{number}:350{number})") for number in range(4)]
    names = [
        Cell("a/very/long/name/of/a/file"),
        *(Cell(f"invoice:{number}") for number in range(3)),
    ]
    table = pen.table(columns, list(zip(names, people, strict=True)), room=36)
    assert table[1] == "a/very/…a/file  somebody (db-0:3500)"
    assert table[2] == "invoice:0       somebody (db-1:3501)"
    assert all(who.text in line for who, line in zip(people, table[1:], strict=True))
    # The other way round, too.
    table = pen.table(columns, list(zip(people, names, strict=True)), room=36)
    assert all(who.text in line for who, line in zip(people, table[1:], strict=True))


def test_columns_that_are_spare_are_left_out_where_there_is_no_room() -> None:
    pen = Pen(io.StringIO())
    columns = [
        Column("NAME", least=6),
        Column("TOKEN", least=8, side="start", spare=1),
        Column("AGE", spare=2),
    ]
    rows = [[Cell("a-long-name"), Cell("1234567890123456"), Cell("4.2s")]]
    for room in range(1, 40):
        assert max(map(width, pen.table(columns, rows, room=room))) <= room
    assert pen.table(columns, rows, room=18) == ["NAME         AGE", "a-long-name  4.2s"]
    assert pen.table(columns, rows, room=8) == ["NAME", "a-long-…"]


def test_bars() -> None:
    pen = Pen(io.StringIO())
    assert [pen.bar(share, 4) for share in (-1.0, 0.0, 0.5, 1.0, 7.0)] == [
        "────",
        "────",
        "━━──",
        "━━━━",
        "━━━━",
    ]


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (-1, "0.0s"),
        (0, "0.0s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (3599.7, "1h00m"),
        (86399.9, "1d"),
        (90000, "1d1h"),
    ],
)
def test_lengths_of_time_in_few_characters(length: float, text: str) -> None:
    assert briefly(length) == text


@pytest.mark.parametrize(
    ("ttl", "remaining", "full"),
    [
        (2.0, 2.0, 8),
        (2.0, 1.0, 4),
        (600.0, 300.0, 4),
        (10.0, 20.0, 8),
        (None, 15.0, 4),
        (5.0, 0.0, 0),
    ],
)
def test_a_bar_is_full_while_the_whole_ttl_is_left(
    ttl: float | None, remaining: float, full: int
) -> None:
    pen = Pen(io.StringIO())
    pen.terminal = True
    holder = Participant("owner", Label("host", 1), 7, 0.0, remaining, ttl=ttl)
    assert remains(pen, holder).text.count("━") == full
