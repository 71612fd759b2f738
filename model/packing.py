"""States that differ only in names are made one, and each is kept in a few bytes.

Neither nodes nor attempts have names in the protocol, so states that differ by a permutation of them
have the same future. Any choice among them is sound; the better it is, the fewer states are searched.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import Any, NamedTuple, cast

from .state import NOBODY, Attempt, Cell, Node, State, Vote

Order = tuple[int, ...]


class Packed(NamedTuple):
    key: Hashable
    rows: Order
    """The attempts that became the first, the second, ..."""
    columns: Order
    """The nodes that became the first, the second, ..."""


class Packing:
    """The numbers of all nodes, cells and so on that occur; a packed state is a row of them."""

    def __init__(self, size: int, attempts: int) -> None:
        self._attempts = attempts
        self._numbers: dict[object, int] = {}
        self._things: list[object] = []
        self._turned: dict[tuple[int, Order], int] = {}
        self._straight = tuple(range(size))
        self._ranked = tuple(range(attempts))

    def pack(self, state: State) -> Packed:
        number = self._number
        rows = []
        for a, attempt in enumerate(state.attempts):
            cells = [number(cell) for cell in attempt[4]]
            rows.append((number(attempt[:4]), sorted(cells), a, cells))
        rows.sort()
        order = tuple([row[2] for row in rows])
        nodes = state.nodes
        if order != self._ranked:
            place = {a: i for i, a in enumerate(order)}
            place[NOBODY] = NOBODY
            nodes = tuple([renamed(node, place) for node in nodes])

        columns = [
            ([number(node), *[row[3][n] for row in rows]], n) for n, node in enumerate(nodes)
        ]
        columns.sort()
        turn = tuple([n for _, n in columns])
        packed = [number(state[2:]), *[row[0] for row in rows]]
        for column, _ in columns:
            packed += column
        if turn != self._straight and any([node.incarnation > 1 for node in nodes]):
            self._turn(packed, turn)
        return Packed(array("I", packed).tobytes(), order, turn)

    def unpack(self, key: bytes) -> State:
        things = self._things
        numbers = array("I", key)
        first = 1 + self._attempts
        width = first  # a node, and a cell for each attempt
        attempts = tuple(
            Attempt(
                *cast(tuple[int, int, int, int], things[numbers[a]]),
                cast(tuple[Cell, ...], tuple([things[n] for n in numbers[first + a :: width]])),
            )
            for a in range(1, first)
        )
        nodes = cast(tuple[Node, ...], tuple([things[n] for n in numbers[first::width]]))
        return State(nodes, attempts, *cast(tuple[int, int, int, int], things[numbers[0]]))

    def _number(self, thing: object) -> int:
        number = self._numbers.get(thing)
        if number is None:
            number = self._numbers[thing] = len(self._things)
            self._things.append(thing)
        return number

    def _turn(self, packed: list[int], turn: Order) -> None:
        """Puts what is kept by node (seals, reads) into the nodes' new order, too."""
        for at in range(1 + self._attempts, len(packed)):
            key = (packed[at], turn)
            number = self._turned.get(key)
            if number is None:
                thing = cast("Node | Cell", self._things[packed[at]])
                if isinstance(thing, Node):
                    number = self._number(turned_node(thing, turn))
                else:
                    number = self._number(turned_cell(thing, turn))
                self._turned[key] = number
            packed[at] = number


class Plain:
    """The packing for states that are small enough as they are."""

    def __init__(self, size: int, clients: int) -> None:
        self._names = tuple(range(clients)), tuple(range(size))

    def pack(self, state: Hashable) -> Packed:
        return Packed(state, *self._names)

    def unpack(self, key: Any) -> Any:
        return key


def renamed(node: Node, place: dict[int, int]) -> Node:
    """Returns the node with the owners' new names."""
    if node.image:
        (image,) = node.image
        node = node._replace(image=(image._replace(owner=place[image.owner]),))
    if node.owner != NOBODY:
        node = Node(node[0], place[node[1]], *node[2:])
    return node


def turned(values: tuple[int, ...], turn: Order) -> tuple[int, ...]:
    return tuple([values[n] for n in turn])


def turned_node(node: Node, turn: Order) -> Node:
    return node._replace(
        knows=turned(node.knows, turn),
        image=tuple(was._replace(knows=turned(was.knows, turn)) for was in node.image),
        read=turned(node.read, turn),
        learned=turned(node.learned, turn),
    )


def turned_cell(cell: Cell, turn: Order) -> Cell:
    votes = tuple(Vote(v[0], v[1], turned(v[2], turn), v[3]) for v in cell.votes)
    return Cell(cell.landed, votes, cell.tombstone)
