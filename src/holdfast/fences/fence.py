"""The base of all fences, and the guard that a lease offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ConfigError, GuaranteeError, StaleToken
from . import floors, rules
from .floors import Floors
from .rules import FencedLease


class Fence:
    """The base of every fence: it marks a thing as one that `protects=` takes."""

    __holdfast_fence__ = True

    def __init__(self, *, single_use: bool = False) -> None:
        if type(single_use) is not bool:
            raise ConfigError(f"single_use must be True or False, not {single_use!r:.80}")
        self.single_use = single_use

    def shortcoming(self) -> str:
        """Returns what a lock for correctness needs instead of this fence; empty if it will do."""
        return ""


class BoundFence:
    """A fence in the hand of one lease: every call shows that lease, so it cannot be forgotten.

    `lease.guard(…)` is the fence's own `guard(…)`; its other verbs are there too, such as
    `lease.guard.set(key, value)` or `lease.guard.write(path, data)`.
    """

    __slots__ = ("_fence", "_lease")

    def __init__(self, fence: object, lease: FencedLease) -> None:
        self._fence = fence
        self._lease = lease

    def __repr__(self) -> str:
        return f"<{type(self._fence).__name__} for {self._lease!r}>"

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.__getattr__("guard")(*args, **options)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb.startswith("_"):
            raise AttributeError(verb)
        method = getattr(self._fence, verb, None)
        if not callable(method):
            raise AttributeError(f"{type(self._fence).__name__} has no {verb}()")

        def show(*args: Any, **options: Any) -> Any:
            return method(*args, token=self._lease, **options)

        return show


def prove(write: Callable[[int], object], where: str) -> None:
    """Tests a fence where it stands: a probe passes with token 2, and not with 1.

    Raises `GuaranteeError` if the older token is let through.
    """
    write(2)
    try:
        write(1)
    except StaleToken:
        return
    raise not_installed(where, "it let token 1 pass after token 2")


def not_installed(where: str, why: str) -> GuaranteeError:
    return GuaranteeError(f"there is no working fence at {where}: {why}")


def refuse_high_floors(where: str, known: Floors) -> None:
    """Raises `GuaranteeError` if a floor is one that no store's tokens will ever reach."""
    highest = max(floors.highest(known.values())[:2])
    if highest > rules.latest():
        raise GuaranteeError(
            f"the fence at {where} lets nobody write to a resource that is new to it: a token of "
            f"{highest} was pruned, which no store has granted; see reset_floors()"
        )
