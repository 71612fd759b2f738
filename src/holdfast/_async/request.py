"""The request of a lock object: the same each time that it is acquired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options import LockOptions, refuse_incorrect, refuse_unfair
from ..stores._async.contract import Terms
from .hold import Hold
from .lease import Lease

if TYPE_CHECKING:
    from .session import Session


class Request:
    """The lock, its kind and its options, of which a session makes the terms for its store once."""

    __slots__ = (
        "_terms",
        "capacity",
        "hold_type",
        "kind",
        "label_text",
        "lease_type",
        "name",
        "options",
        "weight",
    )

    def __init__(
        self,
        name: str,
        options: LockOptions,
        *,
        kind: str = "lock",
        weight: int = 1,
        capacity: int = 1,
        label_text: str | None = None,
        hold_type: type[Hold] = Hold,
        lease_type: type[Lease] = Lease,
    ) -> None:
        self.name = name
        self.options = options
        self.kind = kind
        self.weight = weight
        self.capacity = capacity
        self.label_text = label_text
        """The text that is shown in place of the manager's label: an election's value."""
        self.hold_type = hold_type
        self.lease_type = lease_type
        self._terms: Terms | None = None

    def terms_for(self, session: Session) -> Terms:
        """Returns what is asked of the store of `session`: the same object at every attempt."""
        terms = self._terms
        if terms is None or terms.home is not session:
            terms = self._terms = self._new_terms(session)
        return terms

    def _new_terms(self, session: Session) -> Terms:
        label, text, options = session.label, self.label_text, self.options
        if session.provisional:
            guarantees = session.backend.guarantees
            refuse_incorrect(self.name, options, guarantees, False, self.kind == "semaphore")
            refuse_unfair(self.name, options, guarantees)
        terms = Terms(
            self.name,
            options.ttl + options.lock_delay,
            label if text is None else label._replace(text=text),
            self.weight,
            self.capacity,
            self.kind,
            options.fair is False,
            options.renew,
            options.lock_delay,
        )
        terms.home = session
        return terms
