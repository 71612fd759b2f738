"""The states of a lease, as a table.

    HELD        granted, and its end by our own clock lies ahead
    UNCERTAIN   as HELD, but the store did not answer the last renewal: it may end soon
    LOST        over without our doing: its end came, or the store told us; final
    RELEASED    over by our own doing; final

A lease counts as held in HELD and UNCERTAIN, and only before its deadline: the clock is asked each
time, so that a process that was frozen past its deadline finds itself without the lease even
before anything had the chance to move it to LOST. What is not in the table changes nothing.
"""

from __future__ import annotations

from typing import Final

HELD: Final = "held"
UNCERTAIN: Final = "uncertain"
LOST: Final = "lost"
RELEASED: Final = "released"

RENEWED: Final = "renewed"  # the store confirmed it
DOUBTED: Final = "doubted"  # the store did not answer
ENDED: Final = "ended"  # the deadline passed, or the store says that it is gone
FREED: Final = "freed"  # we released it

TRANSITIONS: Final[dict[tuple[str, str], str]] = {
    (HELD, RENEWED): HELD,
    (HELD, DOUBTED): UNCERTAIN,
    (HELD, ENDED): LOST,
    (HELD, FREED): RELEASED,
    (UNCERTAIN, RENEWED): HELD,
    (UNCERTAIN, DOUBTED): UNCERTAIN,
    (UNCERTAIN, ENDED): LOST,
    (UNCERTAIN, FREED): RELEASED,
}


def after(state: str, event: str) -> str:
    """Returns the state that `event` leads to; `state` itself where the event means nothing."""
    return TRANSITIONS.get((state, event), state)


ENOUGH_OF_A_CLAIM = 0.25
"""The part of a claim window that must be left for a hand-over to be used unconfirmed."""


def drift_margin(ttl: float) -> float:
    """Returns how much earlier than the store we end a lease: 1 % for clocks that run apart, 2 ms."""
    margin = ttl * 0.01 + 0.002
    return margin if margin < ttl * 0.5 else ttl * 0.5


def handed_for(window: float) -> tuple[float, float]:
    """Returns how long a hand-over for `window` lasts for us, and how much must be left to use it."""
    return window - drift_margin(window), window * ENOUGH_OF_A_CLAIM
