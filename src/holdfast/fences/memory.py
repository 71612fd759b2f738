"""A fence in this process's memory: for tests, and for resources that live in the process too."""

from __future__ import annotations

import time
from threading import Lock
from types import TracebackType

from . import rules
from .fence import Fence, prove
from .resource_turns import ResourceTurns
from .rules import Credential, Mark, Token


class MemoryFence(Fence):
    """Remembers for as long as the process lives. Threads and tasks may share it."""

    def __init__(self, *, single_use: bool = False) -> None:
        super().__init__(single_use=single_use)
        self._mutex = Lock()
        self._marks: dict[str, Mark] = {}
        self._touched: dict[str, float] = {}
        self._floors: dict[str, int] = {}
        self._turns = ResourceTurns()
        self.resets: list[tuple[float, str, str, Mark]] = []
        """Every `reset`: when, by whom, of which resource, and what had been remembered."""

    def guard(self, resource: str, token: Token) -> None:
        """Lets this token pass, and remembers it; raises `StaleToken` if a higher one has passed.

        Waits for a `hold` that is under way. What you do next is another step. If it must not be
        overtaken, do it inside `hold`, which in asyncio is the only one that can wait.
        """
        with self.hold(resource, token):
            pass

    def hold(self, resource: str, token: Token) -> HeldResource:
        """`with fence.hold(resource, token):` the write: nobody else's comes between.

        The token counts as seen from the beginning, also if the body fails: it may have written
        half. In asyncio: `async with`.
        """
        return HeldResource(self, rules.resource_name(resource), rules.credential(token))

    def highest(self, resource: str) -> int:
        """Returns the highest token seen; 0 if none was."""
        return self._marks.get(rules.resource_name(resource), Mark()).highest

    def reset(self, resource: str, *, by: str, to: int = 0) -> int:
        """Forgets the highest token and the lock, and begins again at `to`; returns the old token.

        For when a store's tokens have fallen, or the resource moved to another lock. Until a holder
        has written, an old token may pass: stop the writers first. Kept in `resets`.
        """
        resource = rules.resource_name(resource)
        by, to = rules.beginning(by, to)
        with self._mutex:
            mark = self._marks.get(resource, Mark())
            self._marks[resource] = Mark(to)
            self._touched[resource] = time.monotonic()
            self.resets.append((time.time(), by, resource, mark))
        return mark.highest

    def prune(self, older_than: float) -> int:
        """Forgets resources not written to for so many seconds; returns how many.

        Old tokens are kept out all the same: what is forgotten counts as the least that a
        resource new to this fence has seen.
        """
        limit = time.monotonic() - rules.age(older_than)
        with self._mutex:
            old = [name for name, touched in self._touched.items() if touched <= limit]
            self._floors = rules.raised(self._floors, [self._marks[name] for name in old])
            for name in old:
                del self._marks[name], self._touched[name]
        return len(old)

    def verify(self) -> None:
        """Proves that it refuses; raises `GuaranteeError` otherwise."""
        probe = MemoryFence()
        prove(lambda token: probe.guard("probe", token), "this process")

    def _pass(self, resource: str, given: Credential) -> Mark | None:
        """Lets `given` pass; returns the mark from before, None if there was none."""
        with self._mutex:
            before = mark = self._marks.get(resource)
            if mark is None:
                mark = rules.unknown(self._floors, given)
            refused = rules.refusal(resource, mark, given, self.single_use)
            if refused is not None:
                raise refused
            if not given.reader:
                self._marks[resource] = rules.after(mark, given)
                self._touched[resource] = time.monotonic()
            return before

    def _retract(self, resource: str, before: Mark | None, given: Credential) -> None:
        """Takes back that `given` has passed, unless the mark was reset or pruned meanwhile."""
        with self._mutex:
            mark = self._marks.get(resource)
            if mark is None or mark.highest != given.token:
                return
            if before is None:
                del self._marks[resource], self._touched[resource]
            else:
                self._marks[resource] = before


class HeldResource:
    """The turn at one resource of a `MemoryFence`, for the body of `with`."""

    def __init__(self, fence: MemoryFence, resource: str, given: Credential) -> None:
        self._fence = fence
        self._resource = resource
        self._given = given
        self._before: Mark | None = None

    def __enter__(self) -> None:
        self._fence._turns.begin(self._resource)
        self._check()

    async def __aenter__(self) -> None:
        await self._fence._turns.begin_in_loop(self._resource)
        self._check()

    def _check(self) -> None:
        try:
            self._before = self._fence._pass(self._resource, self._given)
        except BaseException:
            self._fence._turns.end(self._resource)
            raise

    def retract(self) -> None:
        """Takes back, inside the body, that the token counts as seen: its holder wrote nothing."""
        if not self._given.reader:
            self._fence._retract(self._resource, self._before, self._given)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._fence._turns.end(self._resource)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._fence._turns.end(self._resource)
