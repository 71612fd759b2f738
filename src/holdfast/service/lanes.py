"""Lanes: backends side by side, so that two locks with one owner id do not disturb each other.

An owner id stands for one attempt at one lock, and a backend knows those who wait by that id alone: its
wake-ups name no lock. But callers of a service make their ids by themselves, and do not know of each
other. So a request whose owner id is in use here for another lock is carried out on a backend of its
own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..refusals import owner_used_again

if TYPE_CHECKING:
    from .store import Store

MOST = 8
"""Locks of one namespace for which one owner id may be in use at the same time."""
BOUND_STORES = ("zookeeper",)
"""Stores whose leases hang on the session that they were granted through: they have one lane."""


class Lanes:
    """The backends of one namespace; the first is that of nearly all requests."""

    def __init__(self, first: Store, another: Callable[[], Store]) -> None:
        self.stores = [first]
        self._another = another
        self.bound = first.guarantees.store in BOUND_STORES

    def use(self, name: str, owner: str, queue: bool = False) -> Use:
        """Returns the use of a lane by a request of this owner at this lock, for `with`.

        `queue`: it may have to wait, so it has to be alone with its owner id. Raises `ConfigError` if
        that id is in use for too many other locks.
        """
        stores = self.stores
        store = stores[0]
        if len(stores) > 1 or store.name_of(owner) not in (None, name):
            store = self._choose(name, owner, queue)
        return Use(store, name, owner)

    def _choose(self, name: str, owner: str, queue: bool) -> Store:
        free: Store | None = None
        for store in self.stores:
            used_for = store.name_of(owner)
            if used_for == name:
                return store
            if used_for is None and free is None:
                free = store
        if free is not None:
            return free
        if self.bound or (len(self.stores) >= MOST and not queue):
            return self.stores[0]  # which refuses by itself what would not be alone
        if len(self.stores) >= MOST:
            raise owner_used_again(owner)  # not with the name, which may be of others
        self.stores.append(self._another())
        return self.stores[-1]


class Use:
    """A request under way: no other lock's request with its owner id comes into its lane meanwhile."""

    __slots__ = ("_counted", "_name", "_owner", "_store")

    def __init__(self, store: Store, name: str, owner: str) -> None:
        self._store = store
        self._name = name
        self._owner = owner

    def __enter__(self) -> Store:
        uses = self._store.uses
        used = uses.get(self._owner)
        # One that has no lane of its own leaves the lane to the lock that it is in use for.
        self._counted = used is None or used[0] == self._name
        if self._counted:
            uses[self._owner] = self._name, 1 if used is None else used[1] + 1
        return self._store

    def __exit__(self, *error: object) -> None:
        if self._counted:
            uses = self._store.uses
            name, count = uses.pop(self._owner)
            if count > 1:
                uses[self._owner] = name, count - 1
