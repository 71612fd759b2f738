"""The rules of the protocol, each of which can be broken on its own.

`SHIPPED` keeps them all. A broken variant differs from it, or from `BY_THE_CLOCK`, in one rule, so
that what the search finds is that rule's reason to exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of clients and nodes. The defaults are what ships."""

    phase2: Literal["hold", "owner", "always"] = "hold"
    """The hold that phase 2 asks for: the very one of phase 1; any of this owner; none."""

    late_reply_counted: bool = False
    """A phase 1 reply from after the token was chosen counts, if its value is not below the token."""

    owner_used_again: bool = False
    """A client begins its next round under the owner id of a round that has ended."""

    restart: Literal["out", "votes", "votes with data"] = "out"
    """The effect of a restart: the node is out; none; none if its marker came back."""

    wait: Literal["first", "after reading", "none"] = "first"
    """The time at which a node that is out waits for the longest TTL."""

    reads: int | None = None
    """The number of other nodes that a rejoin reads; None is a majority of all nodes."""

    reads_voting_only: bool = True
    """A rejoin reads only nodes that vote."""

    seals: bool = True
    """A read also writes the new incarnation there."""

    drops_votes: bool = True
    """A client drops the vote of a node that another counted node knows to be newer."""

    passes_seals_on: bool = True
    """A rejoin also takes over the incarnations known to the nodes that it read."""

    notes_whom_it_read: bool = True
    """... and the incarnations of these nodes themselves."""

    rejoin_counter: Literal["set", "raised"] = "set"
    """The last step of a rejoin sets the node's counter to what was read; or only ever raises it."""

    rejoin_tied: bool = True
    """The last step of a rejoin is refused by another incarnation than the one it was meant for."""

    take_tied: bool = True
    """Phase 1 is refused by another incarnation than the one in which the round believed."""

    phase2_tied: bool = True
    """Phase 2 is refused by another incarnation than the one that answered phase 1."""

    phase2_same_run: bool = True
    """Phase 2 only goes to the run of the server that answered phase 1. A server that has restarted
    from a snapshot, and does not vote, has the marker of an earlier incarnation: no script can tell."""

    holds_end_with_incarnation: bool = False
    """A hold that a snapshot brought back is no hold. Safe either way, with the rules above."""

    deadline_from: Literal["sending", "reply"] = "sending"
    """The moment from which the client's own deadline counts."""

    number_noted: bool = True
    """The number of a node's new life is noted on it before others are told: the first one proposed
    counts, and ends a first start that has not come to this node. Otherwise each client has its own."""

    noted_may_start: bool = False
    """A node that was noted for a first start, and finds that others vote, starts at once."""

    majority_lost: Literal["stop", "clock", "seen"] = "stop"
    """The way back where too few others vote to be read: none; after the wait alone, with counters
    above everything handed out, as the clock has them; with the highest counter that was seen."""

    numbers_from_clock: bool = True
    """Where nodes come back by the clock, the number of every new life comes from the clock, too."""


SHIPPED = Rules()
"""The rules as they are while a majority remembers. No clock has a part in the order of tokens."""
BY_THE_CLOCK = Rules(majority_lost="clock")
"""The rules where a majority may forget. *Any* node may come back by the clock at *any* moment after
its wait: a client that wrongly believes that a majority was lost does no harm. The clock is assumed to
be above every counter so far: that is what is declared, and not searched."""
