"""How the nodes stand, as many threads may say at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from holdfast.clock import system_clock
from holdfast.stores.redlock.members import settings_of
from holdfast.stores.redlock.membership import Board, Marker, Seat, merge_known
from holdfast.stores.urls import parse

MARKER = Marker(b"life", 1, 1, 1, b"", b"")


class Overtaken(list[Seat]):
    """Whoever looks at all of them is overtaken, once, by one that begins to vote."""

    overtaking: threading.Thread | None = None

    def __iter__(self) -> Iterator[Seat]:
        yield from super().__iter__()
        if self.overtaking is None:
            self.overtaking = threading.Thread(target=self[1].votes, args=(MARKER,))
            self.overtaking.start()
            self.overtaking.join(0.5)  # it may have to wait for us


def test_what_two_nodes_change_at_once_is_not_lost() -> None:
    """Otherwise one that votes would not be asked, for as long as nothing changes."""
    board = Board(settings_of(parse("redlock://a:1,b:1,c:1"), {}), system_clock())
    board.seats = seats = Overtaken(board.seats)
    board.seats[0].votes(MARKER)
    assert seats.overtaking is not None
    seats.overtaking.join(10.0)
    assert board.voting() == 2
    assert board.lives == (1, 1, 0)


def test_of_each_node_the_latest_life_that_anybody_knows_counts() -> None:
    assert merge_known([b"b:1=2", b"a:1=3,b:1=1", b"", b"a:1=1"]) == b"a:1=3,b:1=2"
