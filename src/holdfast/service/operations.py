"""Operations: what can be asked. Routes and `/openapi.json` are made from a table of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from .answers import Answer, Send
from .authority import READ, Role
from .fields import Form

if TYPE_CHECKING:
    from .call import Call

Action = Callable[["Call"], Awaitable[Answer]]
Stream = Callable[["Call", Send], Awaitable[None]]

NO_FIELDS = Form()


class Operation(NamedTuple):
    """One thing that can be asked: a method and a path, what it takes, and what it does."""

    id: str
    method: str
    path: str
    """The path, with a parameter in braces at the most: `{name}`, `{resource}`."""
    summary: str
    action: Action | None
    body: Form | None = None
    """The fields of the body; None if it takes none."""
    query: Form = NO_FIELDS
    role: Role = READ
    """The role that the caller needs for the name in the path."""
    answers: dict[int, str] = {}  # noqa: RUF012  # nobody changes it
    """The statuses of good answers and what they are like: names of schemas in `openapi`."""
    problems: tuple[int, ...] = ()
    """The statuses of problems, beside those that every operation has."""
    stream: Stream | None = None
    """In place of an action: what sends an answer that goes on."""
    namespaced: bool = True
    """Whether a query may name the namespace."""
    public: bool = False
    """Whether it is answered without asking who the caller is, and while the service stops."""
    media_type: str = "application/json"
    """The media type of its good answers."""

    @property
    def parameter(self) -> str:
        """The parameter in the path; empty if there is none."""
        _, brace, rest = self.path.partition("{")
        return rest.partition("}")[0] if brace else ""
