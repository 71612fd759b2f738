"""The rule of admission, against an exhaustive search of what could go wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from holdfast.admission import ALL, Contender, admitted, blocker, fits_behind


def contender(weight: int, capacity: int = 3, granted: bool = False, shape: str = "s") -> Contender:
    return Contender(weight, capacity, shape, granted)


def test_the_longest_prefix_that_fits_is_admitted() -> None:
    assert admitted([]) == 0
    assert admitted([contender(1), contender(2), contender(1)]) == 2
    assert admitted([contender(3), contender(1)]) == 1
    assert admitted([contender(1), contender(3), contender(1)]) == 1
    assert fits_behind([contender(1), contender(1)], 1, 3, "s")
    assert not fits_behind([contender(1), contender(1)], 2, 3, "s")


def test_another_kind_in_the_line_stops_it() -> None:
    assert admitted([contender(1), contender(1, shape="t"), contender(1)]) == 1


def test_who_watches_whom() -> None:
    mutex = [contender(1, 1, True), contender(1, 1), contender(1, 1)]
    assert [blocker(mutex, mine) for mine in range(3)] == [None, 0, 1]
    readers = [contender(1, granted=True), contender(1, granted=True), contender(3), contender(1)]
    assert [blocker(readers, mine) for mine in range(4)] == [None, None, ALL, 2]


def queues(longest: int, capacity: int) -> Iterator[tuple[int, ...]]:
    for length in range(longest + 1):
        yield from itertools.product(range(1, capacity + 1), repeat=length)


def test_no_order_of_leaving_and_granting_breaks_the_capacity() -> None:
    """A contender that is admitted by *any* copy of the queue, however old, fits when it is granted."""
    capacity = 3
    for weights in queues(4, capacity):
        start = tuple((number, weight, False) for number, weight in enumerate(weights))
        seen = {start}
        todo = [start]
        while todo:
            queue = todo.pop()
            held = sum(weight for _, weight, granted in queue if granted)
            assert held <= capacity, (weights, queue)
            free = admitted([contender(weight, capacity, granted) for _, weight, granted in queue])
            assert not any(granted for _, _, granted in queue[free:]), (weights, queue)
            after = [queue[:gone] + queue[gone + 1 :] for gone in range(len(queue))]
            for number in range(free):
                who, weight, _ = queue[number]
                after.append((*queue[:number], (who, weight, True), *queue[number + 1 :]))
            for following in after:
                if following not in seen:
                    seen.add(following)
                    todo.append(following)


def test_an_admitted_contender_was_watching_what_admitted_it() -> None:
    """Each waiter sees every change that admits it, if it watches as it should since its last look."""
    capacity = 3
    for weights in queues(4, capacity):
        queue = [contender(weight, capacity) for weight in weights]
        for mine in range(admitted(queue), len(queue)):
            watched = blocker(queue, mine)
            for gone in range(mine):
                rest = queue[:gone] + queue[gone + 1 :]
                if admitted(rest) >= mine and watched not in (ALL, gone):
                    # Not told of that going itself: then the one it watches is admitted by it
                    # too, and its grant is the change that is seen.
                    assert watched == mine - 1
                    assert watched >= admitted(queue)
                    assert admitted(rest) >= mine - 1
