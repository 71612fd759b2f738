"""Locks as the text of JSON: what is written quickly is what the views say."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import Label, LockState, Participant
from holdfast.service.answers import dumps
from holdfast.service.lock_texts import AT_ONCE, FIRST, in_parts
from holdfast.service.views import state_view

finite = st.floats(allow_nan=False, allow_infinity=False)
participants = st.lists(
    st.builds(
        Participant,
        st.text(),
        st.builds(Label, st.text(), st.integers(), st.text()),
        st.integers(),
        finite,
        finite,
        st.integers(),
        st.none() | st.integers(),
        st.none() | finite,
    ),
    max_size=3,
).map(tuple)
locks = st.builds(
    LockState,
    st.text(),
    participants,
    participants,
    st.integers(),
    st.text(),
    st.integers(),
    st.lists(st.text(), max_size=2).map(tuple),
)


def whole(states: list[LockState]) -> list[dict[str, Any]]:
    """Returns the locks of all parts, one after the other."""
    return [lock for text, _ in in_parts(states) for lock in json.loads(text)]


@settings(max_examples=200, deadline=None, database=None)
@given(st.lists(locks, max_size=3, unique_by=lambda state: state.name))
def test_a_list_is_the_json_of_its_views(states: list[LockState]) -> None:
    expected = {one.name: json.loads(dumps(state_view(one))) for one in states}
    assert {one["name"]: one for one in whole(states)} == expected


def test_a_long_list_comes_in_parts_and_what_is_waited_for_most_comes_first() -> None:
    label = Label("host", 1, "text")
    someone = Participant("o", label, 1, 1.0, 2.0)
    states = [
        LockState(f"lock:{number:05}", (someone,), (someone,) * (number // 1000), number)
        for number in range(FIRST + 2 * AT_ONCE + 1)
    ]
    parts = [(json.loads(text), is_last) for text, is_last in in_parts(states)]
    assert [len(locks) for locks, _ in parts] == [FIRST, AT_ONCE, AT_ONCE, 1]
    assert [is_last for _, is_last in parts] == [False, False, False, True]
    names = [one["name"] for locks, _ in parts for one in locks]
    assert names[0] == "lock:04000"
    assert sorted(names) == [one.name for one in states]


def test_a_list_of_nothing_has_one_part() -> None:
    assert list(in_parts([])) == [("[]", True)]
