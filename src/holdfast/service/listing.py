"""Lists in pages: all pages of one list are of the same look at the store, which reads all of it.

The first page looks anew. The next ones are of that look while it is young: otherwise each page of a
long list would cost as much as the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..model import LockState

if TYPE_CHECKING:
    from .store import Store

KEPT_FOR = 5.0
"""Seconds for which a look serves the next pages."""
MOST = 8
"""Looks that are kept at the same time."""


class Look(NamedTuple):
    """All locks whose names begin with some prefix, by name, as they were seen once."""

    states: Sequence[LockState]
    at: float
    """When that was: seconds since the epoch, by our clock."""


class Listing:
    """The latest looks at one namespace."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looks: dict[tuple[str, ...], Look] = {}

    async def look(self, prefixes: tuple[str, ...], again: bool) -> Look:
        """Returns a look at the locks that begin with one of `prefixes`; `again`: a next page."""
        known = self._looks.get(prefixes) if again else None
        if known is not None:
            return known
        states: list[LockState] = []
        for prefix in prefixes:
            states += await self._store.list(prefix)
        states.sort(key=lambda state: state.name)
        session = await self._store.session()
        found = Look(states, session.clock.wall())
        self._keep(prefixes, found)
        return found

    def _keep(self, prefixes: tuple[str, ...], look: Look) -> None:
        self._looks.pop(prefixes, None)
        while len(self._looks) >= MOST:
            del self._looks[next(iter(self._looks))]
        self._looks[prefixes] = look

        def drop() -> None:
            if self._looks.get(prefixes) is look:
                del self._looks[prefixes]

        asyncio.get_running_loop().call_later(KEPT_FOR, drop)
