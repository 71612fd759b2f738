"""Sets of owners that a client has to remember something about."""

from __future__ import annotations

LIMIT = 100_000


class OwnerSet(dict[str, None]):
    """A set of owners, in the order in which they were added.

    With too many it forgets the oldest, which costs a round trip at most.
    """

    def add(self, owner: str) -> None:
        self[owner] = None
        if len(self) > LIMIT:
            self.pop(next(iter(self)), None)

    def discard(self, owner: str) -> None:
        self.pop(owner, None)
