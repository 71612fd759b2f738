"""Groups of locks: the one label that comes from users, and how many values it may have.

The name of a lock is never a label: there may be millions, and each would cost the monitoring memory
for ever. A group is made of the name by a rule; only so many are told apart.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ConfigError
from ..events import report
from ..interrupts import let_through

OTHER = "other"
MOST = 1000

Rule = str | Callable[[str], str]
"""A separator (the group is what stands before it in the name), or a function from name to group."""


class Groups:
    """The groups that have been seen, at most `limit` of them; all others are `other`."""

    def __init__(self, rule: Rule | None, limit: int) -> None:
        if rule is not None and (not rule or not (isinstance(rule, str) or callable(rule))):
            raise ConfigError(
                "group is a separator such as ':', or a function from a lock's name to its group, "
                f"not {rule!r:.80}"
            )
        if type(limit) is not int or not 1 <= limit <= MOST:
            raise ConfigError(f"groups is a number from 1 to {MOST}, not {limit!r:.40}")
        self._rule = rule
        self._limit = limit
        self._known: set[str] = set()
        self._reported = False

    def of(self, name: str) -> str:
        """Returns the group of a lock."""
        rule = self._rule
        if rule is None:
            return ""
        if isinstance(rule, str):
            group, found, _ = name.partition(rule)
            if not found:
                return OTHER
        else:
            group = self._called(rule, name)
        if group not in self._known:
            if len(self._known) >= self._limit:
                return OTHER
            self._known.add(group)
        return group

    def _called(self, rule: Callable[[str], str], name: str) -> str:
        try:
            group = rule(name)
            if type(group) is not str:
                raise TypeError(f"it returned {type(group).__name__}, not a text")
        except Exception as error:
            let_through(error)
            if not self._reported:  # once: it would fail for each event
                self._reported = True
                report(f"the function that groups locks for metrics failed on {name!r}", error)
            return OTHER
        return group[:100]
