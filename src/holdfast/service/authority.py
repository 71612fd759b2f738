"""The authority: who a caller is, and what it may do. The one that allows everything is for loopback.

The service asks in this order: `identify` before the request is read, `begin` before it is carried out,
`may` for each name that it is about, `prefixes` for what lists and streams may show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from .answers import Scope

Role = Literal["read", "hold", "admin"]
"""What a caller may do with a name: look at it; take and give back its lock too; force it too."""
READ: Role = "read"
HOLD: Role = "hold"
ADMIN: Role = "admin"

Weight = Literal["request", "wait", "listen"]
"""What is begun: a request; a request that is held while it waits; a stream of events."""


class Caller(Protocol):
    """A caller, as its authority knows it."""

    @property
    def title(self) -> str:
        """The name by which people know the caller: for the audit and the access log."""
        ...

    @property
    def key(self) -> str:
        """What all requests of one client have in common: the id of its token; empty without one."""
        ...


class Authority(Protocol):
    """The judge of callers. It raises `Problem` to refuse one; none of its methods waits."""

    def identify(self, scope: Scope) -> Caller:
        """Returns the caller of a request; raises 401 if it is not known."""
        ...

    def may(self, caller: Caller, role: Role, namespace: str, name: str) -> bool:
        """Tells whether the caller may do with `name` what `role` stands for."""
        ...

    def prefixes(self, caller: Caller, namespace: str) -> Sequence[str]:
        """Returns the prefixes of the names that the caller may see; `("",)` is all of them."""
        ...

    def namespace(self, caller: Caller) -> str | None:
        """Returns the namespace of a request that names none; None: the first one of the service."""
        ...

    def begin(self, caller: Caller, weight: Weight) -> None:
        """Counts what the caller begins; raises 429 if it is too much. If not, `end` follows."""
        ...

    def end(self, caller: Caller, weight: Weight) -> None:
        """Notes that what the caller began has ended."""
        ...

    def limit_places(self, caller: Caller, places: int) -> None:
        """Raises 429 if a caller who keeps that many places in queues may have no further one."""
        ...

    def may_see_metrics(self, caller: Caller) -> bool:
        """Tells whether the caller may see figures of the whole service: for `/metrics`."""
        ...

    def describe(self, caller: Caller) -> dict[str, Any]:
        """Returns what the caller may know of itself, for `/v1/me`."""
        ...


class Anybody:
    """The caller of a service that knows nobody."""

    title = "anybody"
    key = ""


class Everything:
    """The authority that lets anybody do everything: for a service that listens on loopback only."""

    _anybody = Anybody()

    def identify(self, scope: Scope) -> Caller:
        return self._anybody

    def may(self, caller: Caller, role: Role, namespace: str, name: str) -> bool:
        return True

    def prefixes(self, caller: Caller, namespace: str) -> Sequence[str]:
        return ("",)

    def namespace(self, caller: Caller) -> str | None:
        return None

    def begin(self, caller: Caller, weight: Weight) -> None:
        pass

    def end(self, caller: Caller, weight: Weight) -> None:
        pass

    def limit_places(self, caller: Caller, places: int) -> None:
        pass

    def may_see_metrics(self, caller: Caller) -> bool:
        return True

    def describe(self, caller: Caller) -> dict[str, Any]:
        return {"caller": caller.title, "role": ADMIN, "prefixes": [""]}
