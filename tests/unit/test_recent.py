"""The smallest of the values that were noted lately."""

from __future__ import annotations

from math import inf

from holdfast.recent import RecentMinimum


def test_the_smallest_counts_for_at_least_a_span_and_less_than_three() -> None:
    recent = RecentMinimum(10.0)
    assert recent.value(0.0) == inf
    recent.note(5.0, 0.0)
    recent.note(2.0, 9.0)
    recent.note(7.0, 12.0)
    assert recent.value(18.9) == 2.0  # noted less than a span ago
    assert recent.value(23.0) == 7.0
    assert recent.value(60.0) == inf


def test_a_long_silence_forgets_everything() -> None:
    recent = RecentMinimum(10.0)
    recent.note(1.0, 0.0)
    recent.note(4.0, 20.0)
    assert recent.value(20.0) == 4.0
