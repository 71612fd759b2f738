"""Promises: what a store still promises under a fault, read from its `Guarantees`.

Exclusion and the order of tokens are promised under every fault, unless the store declares otherwise
in its guarantees. So a break that is not declared counts against the store; a declared one is reported.
"""

from __future__ import annotations

from typing import NamedTuple

from ..guarantees import Guarantees


class Promise(NamedTuple):
    """The promises that must hold under one fault; the rest is reported."""

    exclusion: bool
    tokens: bool
    declared: str
    """The words of the guarantees that take a promise back; empty if nothing does."""


class Weakness(NamedTuple):
    """Words in the guarantees of a store that take promises back under some faults."""

    field: str
    """The field of `Guarantees` in which they stand."""
    words: str
    faults: tuple[str, ...]
    exclusion: bool = True
    """Whether they take exclusion back."""
    tokens: bool = False
    """Whether they take the order of tokens back."""


WEAKNESSES = (
    # A clock that is stepped.
    Weakness("clock_dependence", "ends leases early or late", ("clock",)),
    Weakness("clock_dependence", "exclusion: the nodes' wall clocks", ("clock",)),
    # A leader that stood still, for whatever reason. Holders are told, but not before.
    Weakness("clock_dependence", "may end living leases", ("store-pause", "slow-disk")),
    # Data that is lost.
    Weakness("survives", "as far as it saved its data", ("amnesia",)),
    Weakness("survives", "not the loss of the file", ("amnesia",)),
    Weakness("token_source", "if the data is lost and the clock is set back", ("amnesia",)),
    # A replica that takes over, and a primary that does not know it yet.
    Weakness("consistency", "a failover may forget the latest grants", ("failover",)),
    Weakness(
        "consistency",
        "goes on granting to those it can still reach",
        ("failover", "partition", "cut"),
    ),
    Weakness("consistency", "the primary that the sentinels name", ("store-crash", "store-pause")),
    Weakness(
        "consistency", "cut off from the others goes on granting", ("failover", "partition", "cut")
    ),
    Weakness("consistency", "one server for each lock", ("store-crash", "store-pause")),
    Weakness(
        "token_source",
        "each counts by its own clock",
        ("failover", "partition", "cut", "store-crash", "store-pause"),
        exclusion=False,
        tokens=True,
    ),
)
"""A store that declares one more of its weaknesses in other words needs a line here."""


def promised(guarantees: Guarantees, fault: str) -> Promise:
    """Returns what a store with these guarantees promises while this fault, and no other, happens."""
    found = [
        weakness
        for weakness in WEAKNESSES
        if fault in weakness.faults and weakness.words in getattr(guarantees, weakness.field)
    ]
    sentences = dict.fromkeys(f"{one.field}: {_sentence(guarantees, one)}" for one in found)
    declared = "; ".join(sentences)
    return Promise(
        exclusion=not any(one.exclusion for one in found),
        tokens=not any(one.tokens for one in found),
        declared=declared,
    )


def _sentence(guarantees: Guarantees, weakness: Weakness) -> str:
    """Returns the part of a field, between semicolons or full stops, in which the words stand."""
    text: str = getattr(guarantees, weakness.field)
    parts = text.replace(". ", "; ").split("; ")
    return next((part for part in parts if weakness.words in part), weakness.words)
