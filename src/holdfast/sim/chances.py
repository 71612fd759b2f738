"""The chances that a write on a simulated connection goes wrong, and in which way.

slow        it arrives later, up to seconds
lost        it never arrives, and the connection breaks, at once or only much later
unanswered  it arrives, but its reply does not, and the connection breaks
overtaken   the connection breaks first, and the write arrives after that
replayed    it arrives a second time, later, as if a machine on the way had sent it again
"""

from __future__ import annotations


class Chances:
    """The chance of each fault, for one write. `slowest` is the longest delay, in seconds."""

    def __init__(
        self,
        slow: float = 0.0,
        slowest: float = 1.0,
        lost: float = 0.0,
        unanswered: float = 0.0,
        overtaken: float = 0.0,
        replayed: float = 0.0,
    ) -> None:
        self.slow = slow
        self.slowest = slowest
        self.lost = lost
        self.unanswered = unanswered
        self.overtaken = overtaken
        self.replayed = replayed
        self.any = lost + unanswered + overtaken + replayed
        """The chance that anything but a delay happens to a write."""


NO_FAULTS = Chances()
