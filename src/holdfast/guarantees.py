"""What each store promises, as data: shown to people, and asked by the code that must refuse."""

from __future__ import annotations

from typing import NamedTuple


class Guarantees(NamedTuple):
    """What a lock on one kind of store can and cannot promise."""

    store: str
    consistency: str
    """What agreement stands behind a grant."""
    survives: str
    """Which failures of the store leave its locks and its tokens as they were."""
    auto_release: str
    """What frees the lock of a holder that died, and how soon."""
    clock_dependence: str
    """Which clocks have to behave for two holders never to overlap."""
    token_source: str
    """Where the fencing token comes from, and what could make it go back."""
    fair: bool
    """First come, first served; without it `fair=True` is refused."""
    wakeup: str
    """How a waiter learns that it is its turn."""
    safe_for: tuple[str, ...]
    """`efficiency`, and `correctness` where a fenced lock may stand on this store."""
    barging: bool = True
    """Whether `fair=False` lets newcomers overtake; where not, that permission is ignored."""
    renew_ttl: bool = True
    """Whether `lease.renew(ttl)` can change the TTL."""
    slots: bool = False
    """Whether a semaphore's lease has a `slot` that no other holder has meanwhile, to be fenced by."""
