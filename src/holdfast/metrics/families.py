"""Families of figures: counters, gauges and histograms, by labels. No lock of their own, no text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Generic, NamedTuple, TypeVar

Labels = tuple[str, ...]


class Sample(NamedTuple):
    """One line of what is shown: the name's ending, the labels, the number."""

    ending: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Counter:
    """A number that only rises."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def samples(self, labels: tuple[tuple[str, str], ...]) -> Iterator[Sample]:
        yield Sample("", labels, self.value)


class Gauge(Counter):
    """A number that rises and falls."""

    __slots__ = ()


class Histogram:
    """The number of observations up to each bound, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def samples(self, labels: tuple[tuple[str, str], ...]) -> Iterator[Sample]:
        below = 0
        for bound, count in zip((*self.bounds, inf), self.counts, strict=True):
            below += count
            # A float in any case: to OpenMetrics 1 and 1.0 are two labels.
            le = number(bound) if bound == inf else repr(float(bound))
            yield Sample("_bucket", (*labels, ("le", le)), below)
        yield Sample("_sum", labels, self.sum)
        # Counted from the buckets: it agrees with them whatever interrupted an observation.
        yield Sample("_count", labels, below)


Figure = TypeVar("Figure", bound=Counter | Histogram)


class Family(Generic[Figure]):
    """All figures with one name: one for each combination of labels that has been seen."""

    def __init__(
        self, kind: str, name: str, help: str, labels: Labels, make: Callable[[], Figure]
    ) -> None:
        self.kind = kind
        self.name = name
        self.help = help
        self.labels = labels
        self._make = make
        self._figures: dict[Labels, Figure] = {}

    def of(self, *labels: str) -> Figure:
        """Returns the figure with these labels, which begins at zero."""
        figure = self._figures.get(labels)
        if figure is None:
            assert len(labels) == len(self.labels)
            figure = self._figures[labels] = self._make()
        return figure

    def samples(self) -> Iterator[Sample]:
        for values, figure in sorted(self._figures.items()):
            yield from figure.samples(tuple(zip(self.labels, values, strict=True)))

    def figures(self) -> list[Figure]:
        return list(self._figures.values())

    def clear(self) -> None:
        self._figures.clear()


def counters(name: str, help: str, *labels: str) -> Family[Counter]:
    return Family("counter", name, help, labels, Counter)


def gauges(name: str, help: str, *labels: str) -> Family[Gauge]:
    return Family("gauge", name, help, labels, Gauge)


def histograms(name: str, help: str, bounds: Sequence[float], *labels: str) -> Family[Histogram]:
    return Family("histogram", name, help, labels, lambda: Histogram(bounds))


def number(value: float) -> str:
    """Returns a number as Prometheus writes it."""
    if value == inf:
        return "+Inf"
    whole = int(value)
    return str(whole) if whole == value else repr(value)
