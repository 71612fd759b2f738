"""A fence in this process's memory: for tests, and for resources that live in the process too."""

from __future__ import annotations

import time
from threading import Lock
from types import TracebackType

from .. import forks
from . import floors, rules
from .fence import Fence, prove, refuse_high_floors
from .floors import Floor
from .resource_turns import Place, ResourceTurns
from .rules import Credential, FencedLease, Mark, Token


class MemoryFence(Fence):
    """Remembers for as long as the process lives. Threads and tasks may share it.

    A forked child begins with what its parent remembers, and then remembers for itself.
    """

    def __init__(self, *, single_use: bool = False) -> None:
        super().__init__(single_use=single_use)
        self._mutex = Lock()
        self._marks: dict[str, Mark] = {}
        self._touched: dict[str, float] = {}
        self._floors: dict[str, Floor] = {}
        self._turns = ResourceTurns()
        self.resets: list[tuple[float, str, str, Mark]] = []
        """Every reset: when, by whom, of which resource (empty for floors), and what was there."""
        forks.survive(self)

    def _after_fork(self) -> None:
        self._mutex = Lock()  # another thread may have held it, half-way
        now = time.monotonic()
        self._touched = {name: self._touched.get(name, now) for name in self._marks}

    def _alone(self) -> Lock:
        """Returns the mutex, this process's own."""
        forks.current()  # begins afresh in a child that Python was not told of
        return self._mutex

    def guard(self, resource: str, token: Token) -> None:
        """Lets this token pass, and remembers it; raises `StaleToken` if a higher one has passed.

        Waits for a `hold` that is under way. What you do next is another step. If it must not be
        overtaken, do it inside `hold`, which in asyncio is the only one that can wait.
        """
        with HeldResource(self, rules.resource_name(resource), rules.credential(token)):
            pass

    def hold(self, resource: str, token: Token) -> HeldResource:
        """`with fence.hold(resource, token):` the write: nobody else's comes between.

        The token counts as seen from the beginning, also if the body fails: it may have written
        half. In asyncio: `async with`.
        """
        return HeldResource(self, rules.resource_name(resource), rules.writer(token))

    def highest(self, resource: str) -> int:
        """Returns the highest token of a writer; 0 if none was seen."""
        return self._marks.get(rules.resource_name(resource), Mark()).highest

    def reset(self, resource: str, *, by: str, to: int = 0) -> int:
        """Forgets the highest token and the lock, and begins again at `to`; returns the old token.

        For when a store's tokens have fallen, or the resource moved to another lock. Until a holder
        has written, an old token may pass: stop the writers first. Kept in `resets`.
        """
        resource = rules.resource_name(resource)
        by, to = rules.beginning(by, to)
        with self._alone():
            mark = self._marks.get(resource, Mark())
            self._marks[resource] = Mark(to)
            self._touched[resource] = time.monotonic()
            self.resets.append((time.time(), by, resource, mark))
        return mark.highest

    def prune(self, older_than: float) -> int:
        """Forgets resources at which no token was shown for so many seconds; returns how many.

        Old tokens are kept out all the same: what is forgotten counts as the least that a
        resource new to this fence has seen. So give it longer than a holder goes without a write.
        """
        limit = time.monotonic() - rules.age(older_than)
        with self._alone():
            old = {
                name: self._marks[name]
                for name, touched in self._touched.items()
                if touched <= limit and floors.prunable(self._marks[name])
            }
            living = [mark for name, mark in self._marks.items() if name not in old]
            # First: whoever is interrupted, or forked, half-way has lost no mark.
            self._floors = floors.raised(self._floors, old.values(), living)
            for name in old:
                del self._touched[name], self._marks[name]
        return len(old)

    def reset_floors(self, *, by: str, lock: str | FencedLease | None = None, to: int = 0) -> None:
        """Sets what pruned resources have left behind, for one lock or for all, to `to`.

        For when a number that no store has granted was pruned, and shuts out everybody. Stop the
        writers first: until holders have written, old tokens may pass. Kept in `resets`.
        """
        by, to = rules.beginning(by, to)
        named = floors.lock_named(lock)
        with self._alone():
            self._floors, were = floors.reset(self._floors, named, to)
            for where, floor in were:
                mark = Mark(floor.highest, where, floor.reader)
                self.resets.append((time.time(), by, "", mark))

    def verify(self) -> None:
        """Proves that it refuses; raises `GuaranteeError` otherwise."""
        refuse_high_floors("this process", self._floors)
        probe = MemoryFence()
        prove(lambda token: probe.guard("holdfast probe", token), "this process")

    def shortcoming(self) -> str:
        return "a fence that other processes share (a MemoryFence is this process's own)"

    def _pass(self, resource: str, given: Credential) -> tuple[Mark | None, Mark]:
        """Lets `given` pass; returns the mark from before, None if there was none, and the new one."""
        with self._alone():
            before = mark = self._marks.get(resource)
            if mark is None:
                mark = floors.unknown(self._floors, given)
            refused = rules.refusal(resource, mark, given, self.single_use)
            if refused is not None:
                raise refused
            after = self._marks[resource] = rules.after(mark, given)
            self._touched[resource] = time.monotonic()
            return before, after

    def _retract(self, resource: str, before: Mark | None, after: Mark) -> None:
        """Puts a mark back as it was, unless it was reset or pruned meanwhile."""
        with self._alone():
            if self._marks.get(resource) != after:
                return
            if before is None:
                del self._marks[resource], self._touched[resource]
            else:
                self._marks[resource] = before


class HeldResource:
    """The turn at one resource of a `MemoryFence`, for the body of `with`."""

    def __init__(self, fence: MemoryFence, resource: str, given: Credential) -> None:
        self._place: Place | None = None
        self._fence = fence
        self._resource = resource
        self._given = given
        self._marks: tuple[Mark | None, Mark] = (None, Mark())
        """The mark from before, and the one that this hold made."""

    def __enter__(self) -> None:
        place = Place(self._fence._turns, self._resource, self)
        try:
            place.begin()
            self._marks = self._fence._pass(self._resource, self._given)
            self._place = place  # not before: until then it may be another's, who entered this too
        except BaseException:
            place.leave()
            raise

    async def __aenter__(self) -> None:
        place = Place(self._fence._turns, self._resource, self)
        try:
            await place.begin_in_loop()
            self._marks = self._fence._pass(self._resource, self._given)
            self._place = place
        except BaseException:
            place.leave()
            raise

    @property
    def changed(self) -> bool:
        """True if this hold has changed the mark; a token that is in it already changes nothing."""
        before, after = self._marks
        return before != after

    def retract(self) -> None:
        """Takes back, inside the body, that the token counts as seen: its holder wrote nothing."""
        self._fence._retract(self._resource, *self._marks)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._place is not None
        self._place.leave()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)
