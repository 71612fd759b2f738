"""One attempt at a lock: a znode in the lock's queue, and the requests that are under way for it.

CREATING   its znode is to be created; perhaps it has been, and the reply was lost
WAITING    its znode is in the queue, behind others
MINTING    it is admitted, and the write whose zxid will be its token is under way
HELD       it is a holder
DELETING   its znode is to be deleted
ENDED      its znode is not there any more
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ...model import Granted, Label
from .names import entry_name

if TYPE_CHECKING:
    from .session import ClientSession

CREATING, WAITING, MINTING, HELD = "creating", "waiting", "minting", "held"
DELETING, ENDED = "deleting", "ended"

MINTED_HERE = b"*"
"""The mark before the label in a holder's data which says that its token is the zxid of this write. A
number there is the token itself. Neither means that the token is the zxid of the creation."""

ResultCallback = Callable[[Any], None]
"""A function to call with the result of a verb, or with the exception to raise."""


class Ticket(Protocol):
    """The members of the engine's ticket that matter here; the same for both worlds."""

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


class Attempt:
    """The state of one attempt. It is changed under the mutex only."""

    __slots__ = (
        "capacity",
        "changed",
        "claim_window",
        "czxid",
        "deletion_sent",
        "error",
        "expires_at",
        "expiry_timer",
        "final_result",
        "freed",
        "generation",
        "in_flight",
        "kind",
        "label",
        "lock_path",
        "maybe_created",
        "maybe_deleted",
        "name",
        "on_deleted",
        "on_minted",
        "on_result",
        "owner",
        "path",
        "queue",
        "renew",
        "requested_ttl",
        "sent_at",
        "session",
        "sole_predecessor",
        "state",
        "ticket",
        "token",
        "token_shown",
        "tries",
        "ttl",
        "watched_path",
        "watches_itself",
        "weight",
    )

    def __init__(
        self,
        ticket: Ticket,
        lock_path: str,
        session: ClientSession,
        on_result: ResultCallback,
        sent_at: float,
    ) -> None:
        self.ticket = ticket
        self.sent_at = sent_at
        self.name = ticket.name
        self.lock_path = lock_path
        self.owner = ticket.owner
        self.kind = ticket.kind
        self.capacity = ticket.capacity
        self.weight = ticket.weight
        self.requested_ttl = ticket.ttl
        self.renew = ticket.renew
        """False if the lease is to end with its TTL."""
        self.queue = ticket.queue
        """False if the attempt is not to wait."""
        self.label = _encode_label(ticket.label)
        self.session = session
        self.on_result: ResultCallback | None = on_result
        """The callback of the acquire that made this attempt, until it was called."""
        self.state = CREATING
        self.path = ""
        """The path of the znode, once it is known to be there."""
        self.czxid = 0
        """The zxid of the znode's creation."""
        self.token = 0
        self.token_shown = True
        """Whether the znode says which token its holder has."""
        self.ttl = self.requested_ttl
        """The TTL that the session can give."""
        self.claim_window = 0.0
        self.expires_at = 0.0
        self.in_flight = False
        """Whether a request is under way whose reply moves the attempt on."""
        self.generation = 0
        """A number that rises when replies to earlier requests do not concern the attempt any more."""
        self.tries = 0
        """Creations that were sent."""
        self.maybe_created = False
        """Whether the znode may have been created without our knowing."""
        self.error: Exception | None = None
        """The error with which ZooKeeper refused the latest creation or deletion."""
        self.changed = False
        """Whether something changed while the queue was being read, so that it has to be read again."""
        self.sole_predecessor = ""
        """The path of the only entry before ours, if that is the one that is watched."""
        self.watched_path = ""
        self.watches_itself = False
        """Whether a watch will tell that a foreign hand deletes the holder's znode."""
        self.deletion_sent = False
        self.maybe_deleted = False
        """Whether a deletion was sent whose reply was lost."""
        self.freed = False
        """Whether the deletion ended a lease."""
        self.final_result: Any = None
        """The result to return once the znode has been deleted."""
        self.on_deleted: list[ResultCallback] = []
        """The callbacks of releases; called with `freed`."""
        self.on_minted: list[Callable[[], None]] = []
        """Functions to call when the state is not MINTING any more."""
        self.expiry_timer: Callable[[], None] | None = None

    @property
    def path_prefix(self) -> str:
        """The path of the znode, without the sequence number that the server appends."""
        entry = entry_name(self.owner, self.kind, self.capacity, self.weight, self.ttl)
        return f"{self.lock_path}/{entry}"

    @property
    def child(self) -> str:
        """The name of the znode below the lock's."""
        return self.path.rpartition("/")[2]

    @property
    def exclusive(self) -> bool:
        """Whether nobody can hold the lock along with this attempt."""
        return self.weight == self.capacity

    @property
    def shape(self) -> str:
        """The kind and the capacity, as one text."""
        return f"{self.kind},{self.capacity}"


def _encode_label(label: Label) -> bytes:
    return f"\n{label.host}\n{label.pid}\n{label.text}".encode()


def read_data(data: bytes, stat: Any) -> tuple[int, Label]:
    """Returns the token and the label that the data of a holder's znode says."""
    token, host, pid, text = (*data.decode(errors="replace").split("\n", 3), "", "", "")[:4]
    by_write = stat.mzxid if token == MINTED_HERE.decode() else stat.czxid
    minted = int(token) if _is_number(token) else by_write
    return minted, Label(host, int(pid) if _is_number(pid) else 0, text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
