"""One attempt at a lock, as a node in its queue: what is known of it, and what is under way for it.

ASKING     to be created; perhaps it has been, and the answer was lost
WAITING    in the queue behind others
TAKING     nobody is before it any more: the write that makes it the holder is under way
HELD       it is the holder
LEAVING    to be deleted
OVER       it is not there any more
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ...model import Granted, Label
from .names import entry_name

if TYPE_CHECKING:
    from .session import Link

ASKING, WAITING, TAKING, HELD = "asking", "waiting", "taking", "held"
LEAVING, OVER = "leaving", "over"

TAKEN = b"*"
"""Before the label in a node's data: its token is the zxid of this write. A number there is the token
itself; nothing says that it is the zxid of the creation, if it holds the lock."""

Done = Callable[[Any], None]
"""Told the result, or the exception to raise."""


class Asked(Protocol):
    """A ticket, as far as it matters here."""

    name: str
    owner: str
    ttl: float
    label: Label
    weight: int
    capacity: int
    kind: str
    queue: bool
    renew: bool

    def tell(self, grant: Granted | None = None) -> None: ...


class Node:
    __slots__ = (
        "answer",
        "asked",
        "busy",
        "capacity",
        "claim",
        "doubtful",
        "expires",
        "final",
        "freed",
        "going",
        "kind",
        "label",
        "left",
        "link",
        "marked",
        "name",
        "owner",
        "parent",
        "path",
        "renewed",
        "ring",
        "sent",
        "sequence",
        "session",
        "settled",
        "sole",
        "state",
        "stirred",
        "ticket",
        "token",
        "tries",
        "trouble",
        "ttl",
        "turn",
        "unsure",
        "wait",
        "watched",
        "watching",
        "weight",
        "zxid",
    )

    def __init__(self, ticket: Asked, parent: str, link: Link, answer: Done, sent: float) -> None:
        self.ticket = ticket
        self.sent = sent
        self.name = ticket.name
        self.parent = parent
        self.owner = ticket.owner
        self.kind = ticket.kind
        self.capacity = ticket.capacity
        self.weight = ticket.weight
        self.asked = ticket.ttl
        """The TTL that was asked for."""
        self.renewed = ticket.renew
        """False: it ends with its TTL."""
        self.wait = ticket.queue
        self.label = _written(ticket.label)
        self.link = link
        self.answer: Done | None = answer
        """Of the request that made it, until that is answered."""
        self.state = ASKING
        self.path = ""
        """Of the node, once it is known to be there."""
        self.sequence = 0
        self.session = 0
        self.zxid = 0
        self.token = 0
        self.marked = True
        """Whether the node says which token it has."""
        self.ttl = self.asked
        self.claim = 0.0
        self.expires = 0.0
        self.busy = False
        """Something is under way whose answer moves it on."""
        self.turn = 0
        """Answers to what was sent in an earlier turn are not for it any more."""
        self.tries = 0
        self.unsure = False
        """It may have been created without our knowing."""
        self.trouble: Exception | None = None
        self.stirred = False
        """Something changed while we were looking: look again."""
        self.sole = ""
        """The path of the only node before it, if that is what it watches."""
        self.watching = ""
        self.watched = False
        """Whether we are told when it is deleted by a foreign hand, while it is held."""
        self.going = False
        """Its deletion is under way."""
        self.doubtful = False
        """A deletion was sent whose answer was lost."""
        self.freed = False
        """Whether it was held when it left."""
        self.final: Any = None
        """What to answer once it has been deleted."""
        self.left: list[Done] = []
        self.settled: list[Callable[[], None]] = []
        """To be told when it is not TAKING any more."""
        self.ring: Callable[[], None] | None = None

    @property
    def prefix(self) -> str:
        entry = entry_name(self.owner, self.kind, self.capacity, self.weight, self.ttl)
        return f"{self.parent}/{entry}"

    @property
    def child(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def alone(self) -> bool:
        """Whether nobody can hold the lock along with it."""
        return self.weight == self.capacity

    @property
    def shape(self) -> str:
        return f"{self.kind},{self.capacity}"


def _written(label: Label) -> bytes:
    return f"\n{label.host}\n{label.pid}\n{label.text}".encode()


def read_data(data: bytes, stat: Any) -> tuple[int, Label]:
    """What the data of a holder's node says: its token, and its label."""
    token, host, pid, text = (*data.decode(errors="replace").split("\n", 3), "", "", "")[:4]
    by_write = stat.mzxid if token == TAKEN.decode() else stat.czxid
    minted = int(token) if _number(token) else by_write
    return minted, Label(host, int(pid) if _number(pid) else 0, text)


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
