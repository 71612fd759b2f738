"""The membership, as many threads may change it at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from holdfast.clock import system_clock
from holdfast.stores.redlock.address import parse_settings
from holdfast.stores.redlock.membership import Marker, NodeState, NodeTable, merge_known
from holdfast.stores.urls import parse

MARKER = Marker(b"life", 1, 1, 1, b"", b"")


class Overtaken(list[NodeState]):
    """A list of nodes whose reader is overtaken, once, by one that begins to vote."""

    overtaking: threading.Thread | None = None

    def __iter__(self) -> Iterator[NodeState]:
        yield from super().__iter__()
        if self.overtaking is None:
            self.overtaking = threading.Thread(target=self[1].let_vote, args=(MARKER,))
            self.overtaking.start()
            self.overtaking.join(0.5)  # it may have to wait for us


def test_what_two_nodes_change_at_once_is_not_lost() -> None:
    """Otherwise one that votes would not be asked, for as long as nothing changes."""
    table = NodeTable(parse_settings(parse("redlock://a:1,b:1,c:1"), {}), system_clock())
    table.nodes = states = Overtaken(table.nodes)
    table.nodes[0].let_vote(MARKER)
    assert states.overtaking is not None
    states.overtaking.join(10.0)
    assert table.voting_count() == 2
    assert table.lives == (1, 1, 0)


def test_of_each_node_the_latest_life_that_anybody_knows_counts() -> None:
    assert merge_known([b"b:1=2", b"a:1=3,b:1=1", b"", b"a:1=1"]) == b"a:1=3,b:1=2"
