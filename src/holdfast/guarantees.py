"""Guarantees: what a store promises, as data that people are shown and that the code asks."""

from __future__ import annotations

from typing import NamedTuple

MAX_DETACHED = 366 * 86400.0
"""Seconds for which most stores can keep what nobody renews."""


class Guarantees(NamedTuple):
    """The promises of one kind of store, and their limits."""

    store: str
    consistency: str
    """The agreement that stands behind a grant."""
    survives: str
    """The failures of the store that leave its locks and its tokens as they were."""
    auto_release: str
    """The way in which the lock of a holder that died is freed, and how soon."""
    clock_dependence: str
    """The clocks that have to behave for two holders never to overlap."""
    token_source: str
    """The source of the fencing token, and all that could make it go back."""
    fair: bool
    """First come, first served; without it `fair=True` is refused."""
    wakeup: str
    """The way in which a waiter learns that it is its turn."""
    safe_for: tuple[str, ...]
    """`efficiency`, and `correctness` where a fenced lock may stand on this store."""
    barging: bool = True
    """Whether `fair=False` lets newcomers overtake; where not, that permission is ignored."""
    renew_ttl: bool = True
    """Whether `lease.renew(ttl)` can change the TTL."""
    slots: bool = False
    """Whether a semaphore's lease has a `slot` that no other holder has meanwhile, to be fenced by."""
    recall: bool = False
    """Whether a holder is told of a forced release at once; where not, at its next renewal. (There a
    lease with `renew=False` is never asked about, and ends with its TTL.)"""
    every_change: bool = False
    """Whether whoever observes an election sees every change; where not, two between two looks are seen
    as one."""
    longest_detached: float = MAX_DETACHED
    """The most seconds that a lease can outlive its holder's manager: a period of `once`, an export."""


class Provisional(Guarantees):
    """The promises of a store that is asked for its own when it is reached, which replace these."""

    __slots__ = ()
