"""Locks as the text of JSON: what is written quickly is what the views say."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import Label, LockState, Participant
from holdfast.service.answers import dumps
from holdfast.service.lock_texts import AT_ONCE, with_locks
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


@settings(max_examples=200, deadline=None, database=None)
@given(st.lists(locks, max_size=3))
def test_a_list_is_the_json_of_its_views(states: list[LockState]) -> None:
    expected = dumps({"at": 1.5, "locks": [state_view(one) for one in states]})
    assert "".join(with_locks({"at": 1.5}, states)) == expected


def test_a_long_list_is_whole() -> None:
    label = Label("host", 1, "text")
    states = [
        LockState(f"lock:{number}", (Participant("o", label, number, 1.0, 2.0),), (), number)
        for number in range(2 * AT_ONCE + 1)
    ]
    pieces = list(with_locks({"at": 1.5}, states))
    assert len(pieces) == 5
    expected = dumps({"at": 1.5, "locks": [state_view(one) for one in states]})
    assert "".join(pieces) == expected
