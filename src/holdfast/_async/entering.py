"""`with`: leaving ends the very lease that entering took, in whatever task or thread that happens.

A lock may be shared, and a body may be left by another task or thread than entered it (generators are,
under some frameworks). So each `with` statement has an `Exit` of its own: Python looks `__exit__` up
once for each, just before it calls `__enter__`, keeps what it found until the body has ended, and
calls it then. An `Exit` that goes without having been called says so too: an exception from a signal's
handler came just before, and the lease of a body that is over must not stay.

Code that calls `__enter__` by hand, as `ExitStack` does, has no such statement. It may enter a lock
again only when the lease that it entered before has been left.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from threading import local
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar, overload
from weakref import ref

from ..errors import LockError

if TYPE_CHECKING:
    from .session import Session
    from .usage import Body, Usage, Watch


class EnteredHold(Protocol):
    """The engine's side of a lease, of one lock or of several, as `with` uses it."""

    @property
    def _session(self) -> Session: ...
    @property
    def _usage(self) -> Usage: ...
    def _abandon(self, depth: int) -> None: ...
    async def _release_quietly(self) -> bool: ...


class Entered(Protocol):
    """A lease, of one lock or of several, as `with` uses it."""

    @property
    def _hold(self) -> EnteredHold: ...
    def _begin(self) -> Body: ...
    async def _leave(self, error: BaseException | None, body: Body) -> None: ...


Leased = TypeVar("Leased", bound=Entered)
"""The type of lease that is entered."""


STATEMENT = 24 if sys.version_info >= (3, 14) else 0
"""Bytes from the instruction of a `with` statement that looks `__exit__` up to that which calls
`__enter__`: one and the same, until Python 3.14. Code that calls it by hand is further away."""


class _LookedUp(local):
    """The exits that a thread has looked up, and whose `__enter__` it has not called yet."""

    def __init__(self) -> None:
        self.exits: list[ref[Exit]] = []


_looked_up = _LookedUp()


class Exit:
    """The `__exit__` of one `with` statement."""

    __slots__ = ("__weakref__", "_body", "_frame", "_instruction", "_lease", "_thing", "_watch")

    def __init__(self, thing: Enterable[Any], frame: FrameType | None) -> None:
        self._thing = thing
        self._frame = frame
        """The frame that has looked it up, until `__enter__` is called; and its instruction."""
        self._instruction = frame.f_lasti if frame is not None else -1
        self._lease: Entered | None = None
        """The lease that was entered."""
        self._body: Body | None = None
        self._watch: Watch | None = None

    def is_of(self, thing: Enterable[Any], frame: FrameType) -> bool:
        """Tells whether the statement that calls `__enter__` of `thing` in `frame` looked this up."""
        if self._thing is not thing or self._frame is not frame:
            return False
        return 0 <= frame.f_lasti - self._instruction <= STATEMENT

    def __call__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Coroutine[Any, Any, None]:
        return self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        if self._lease is not None and self._body is not None:
            lease, body = self._lease, self._body
        else:
            lease, body = self._thing._take_by_hand()
        hold = lease._hold
        depth = hold._usage.depth
        try:
            if self._watch is not None:
                hold._usage.take_drop(self._watch)
                self._watch = None  # and nobody refers to it any more
            await lease._leave(error, body)
        except LockError:
            raise
        except BaseException:
            try:
                _abandon(hold, body, depth)
            except BaseException:  # another interrupt, perhaps at the very entry of it
                _abandon(hold, body, depth)
                raise
            raise
        finally:
            self._lease = None


def _on_drop(watch: Watch) -> None:
    """Gives up the lease of a body that is over, and whose exit was never called."""
    hold = watch.hold
    if hold._usage.take_drop(watch):
        _abandon(hold, watch.body, hold._usage.depth)


def _abandon(hold: EnteredHold, body: Body | None, depth: int) -> None:
    """Gives up the lease of a body that is over, which was entered at `depth`."""
    hold._usage.end(body)
    hold._abandon(depth)


class _ExitOfEach:
    """The attribute `__exit__`: another `Exit` each time that it is looked up."""

    @overload
    def __get__(self, thing: None, kind: type[Enterable[Any]]) -> Any: ...
    @overload
    def __get__(self, thing: Enterable[Any], kind: type[Enterable[Any]]) -> Exit: ...
    def __get__(self, thing: Enterable[Any] | None, kind: type[Enterable[Any]]) -> Any:
        if thing is None:
            return _leave_by_hand
        one = Exit(thing, sys._getframe(1))
        exits = _looked_up.exits
        while exits and exits[-1]() is None:
            exits.pop()  # looked up, and not for a `with` statement
        exits.append(ref(one))
        return one


def _leave_by_hand(
    thing: Enterable[Any],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> Coroutine[Any, Any, None]:
    return Exit(thing, None)._leave(error)


def exit_of(thing: Enterable[Any], frame: FrameType) -> Exit | None:
    """Returns the exit of the statement that enters `thing` in this frame; None: it does so by hand."""
    exits = _looked_up.exits
    while exits:
        one = exits.pop()()
        if one is not None and one.is_of(thing, frame):
            one._frame = None
            return one
    return None


class Enterable(ABC, Generic[Leased]):
    """A lock or a lease: `with` enters it."""

    __slots__ = ()

    def __aenter__(self) -> Coroutine[Any, Any, Leased]:
        return self._enter(exit_of(self, sys._getframe(1)))

    if TYPE_CHECKING:

        async def __aexit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None: ...

    else:
        __aexit__ = _ExitOfEach()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: it belongs to its manager and its "
            "process. Make another one there; lease.export() lets another process go on with a lease"
        )

    async def _enter(self, one: Exit | None) -> Leased:
        if one is None:
            self._check_by_hand()
        lease = await self._to_enter()
        usage = lease._hold._usage
        depth = usage.depth
        body: Body | None = None
        try:
            body = lease._begin()
            if one is None:
                self._note_by_hand(lease, body)
            else:
                one._lease = lease
                one._body = body
                one._watch = usage.watch(lease._hold, one, _on_drop)
                one._watch.body = body
        except BaseException:  # refused, or interrupted on the threshold
            try:
                await self._back_out(lease, body, one, depth)
            except BaseException:  # another interrupt, perhaps at the very entry of it
                await self._back_out(lease, body, one, depth)
                raise
            raise
        usage.given = True
        return lease

    async def _back_out(
        self, lease: Leased, body: Body | None, one: Exit | None, depth: int
    ) -> None:
        """Undoes an entry that failed, and gives back a lease that was taken for it, at `depth`."""
        lease._hold._usage.end(body)
        lease._hold._usage.unwatch(one)
        entered: object = lease
        if entered is not self and lease._hold._usage.depth == depth:  # else that is done already
            await lease._hold._release_quietly()

    @abstractmethod
    async def _to_enter(self) -> Leased:
        """Returns the lease to enter."""

    @abstractmethod
    def _check_by_hand(self) -> None:
        """Refuses to be entered by hand, where it is clear already that its exit could be mistaken."""

    @abstractmethod
    def _note_by_hand(self, lease: Leased, body: Body) -> None:
        """Remembers a lease that was entered by hand; refuses it if its exit could be mistaken."""

    @abstractmethod
    def _take_by_hand(self) -> tuple[Leased, Body]:
        """Returns the lease that was entered by hand, and is being left; and its body."""
