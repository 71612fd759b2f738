"""One attempt at a lock: a znode in the lock's queue, and the requests that are under way for it.

CREATING   its znode is to be created; perhaps it has been, and the reply was lost
WAITING    its znode is in the queue, behind others
MINTING    it is admitted, and the write whose zxid will be its token is under way
HELD       it is a holder; not *settled* yet, if it has waited and its znode is still where that was
DELETING   its znode is to be deleted
ENDED      its znode is not there any more
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ...model import Granted, Label
from .changes import Record
from .names import NO_SLOT, SEMAPHORE, Entry, entry_name, parsed, slot_path

if TYPE_CHECKING:
    from .session import ClientSession

CREATING, WAITING, MINTING, HELD = "creating", "waiting", "minting", "held"
DELETING, ENDED = "deleting", "ended"

WAITS = b"?"
"""The mark before the label in the data of a znode which says that its owner waits. A number there is
the token of a holder. Neither means that the token is the zxid of the creation."""

ResultCallback = Callable[[Any], None]
"""A function to call with the result of a verb, or with the exception to raise."""


class Ticket(Protocol):
    """The members of the engine's ticket that matter here; the same for both worlds."""

    terms: Any
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
        "counted_until",
        "czxid",
        "delay",
        "deletion_sent",
        "error",
        "expires_at",
        "expiry_timer",
        "final_result",
        "freed",
        "generation",
        "giver",
        "home",
        "in_flight",
        "kind",
        "label",
        "lock_path",
        "maybe_created",
        "maybe_deleted",
        "moving_to",
        "name",
        "on_deleted",
        "on_minted",
        "on_result",
        "owner",
        "parked",
        "path",
        "queue",
        "read_pzxid",
        "record",
        "refusal",
        "renew",
        "requested_ttl",
        "sent_at",
        "session",
        "settled",
        "slot",
        "state",
        "ticket",
        "token",
        "tries",
        "ttl",
        "waited",
        "waiting_session",
        "watched_blocks",
        "watched_path",
        "watched_waits",
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
        self.delay: float = ticket.terms.delay
        """Seconds, part of the TTL, for which the lock stays closed behind a lease that expired."""
        self.queue = ticket.queue
        """False if the attempt is not to wait."""
        self.label = encode_label(ticket.label)
        self.giver: Entry | None = None
        """The entry whose place its own is to take, if it adopts a lease."""
        self.record: Record | None = None
        """The changes of an election as they were read, until they may be others."""
        self.waited = False
        """Whether others were seen to be first."""
        self.home = session
        """The session for its TTL, on which a holder's znode is."""
        self.waiting_session: ClientSession | None = None
        """The session on which its znode is, or is to be, while it waits."""
        self.session = session
        """The session on which its znode is, or was before the latest move."""
        self.moving_to: ClientSession | None = None
        """The session to which a move was sent that has not been answered, or whose reply was lost."""
        self.parked = False
        """Whether its znode is on the session for waiting, and says that its owner waits."""
        self.counted_until = 0.0
        """The time until which a waiter may count on its place without another answer."""
        self.on_result: ResultCallback | None = on_result
        """The callback of the acquire that made this attempt, until it was called."""
        self.state = CREATING
        self.path = ""
        """The path of the znode, once it is known to be there."""
        self.czxid = 0
        """The zxid of the znode's creation."""
        self.token = 0
        self.slot = NO_SLOT
        """The slot of a semaphore that its entry has, or is to be given."""
        self.settled = False
        """Whether the holder's znode is on the session for its TTL, and says which token it has."""
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
        self.refusal: Exception | None = None
        """The error with which it does not let us create the lock's znode, if it does not."""
        self.changed = False
        """Whether something changed while the queue was being read, so that it has to be read again."""
        self.read_pzxid = 0
        """The zxid of the latest change of the queue, when that was last read."""
        self.watched_path = ""
        self.watched_blocks = self.watched_waits = False
        """Whether the entry that is watched keeps this owner from being admitted, and whether the owner
        of that entry waited when it was read."""
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
        entry = entry_name(
            self.owner, self.kind, self.capacity, self.weight, self.ttl, slot=self.slot
        )
        return f"{self.lock_path}/{entry}"

    @property
    def child(self) -> str:
        """The name of the znode below the lock's."""
        return self.path.rpartition("/")[2]

    @property
    def entry(self) -> Entry:
        """The entry that its znode is, once its path is known."""
        return parsed(self.child)

    @property
    def has_slot(self) -> bool:
        """Whether its entry has a slot of a semaphore."""
        return self.kind == SEMAPHORE and self.entry.slot != NO_SLOT

    @property
    def slot_path(self) -> str:
        """The path of the znode of the slot that its entry has; empty if it has none."""
        return slot_path(self.lock_path, self.entry.slot) if self.has_slot else ""

    @property
    def granted_slot(self) -> int | None:
        """The slot as the engine is told of it."""
        return None if self.slot == NO_SLOT else self.slot

    @property
    def exclusive(self) -> bool:
        """Whether nobody can hold the lock along with this attempt."""
        return self.weight == self.capacity

    @property
    def sessions(self) -> tuple[ClientSession, ...]:
        """The sessions whose end or loss concerns the attempt."""
        known = dict.fromkeys((self.home, self.session, self.moving_to, self.waiting_session))
        return tuple(session for session in known if session is not None)

    @property
    def doubtful_session(self) -> ClientSession:
        """The session that has sent what may have created its znode, or given it another path."""
        return self.moving_to or self.session

    def session_of(self, session_id: int) -> ClientSession | None:
        """Returns the session of that id, if the attempt has to do with it."""
        return next((one for one in self.sessions if one.session_id == session_id), None)

    def vouch(self, sent_at: float) -> float:
        """Returns the time from which the place of a waiter may be counted on, for the claim window.

        That is `sent_at`, at which an answered request was sent, or earlier; see `ClientSession.vouch`.
        """
        since = self.session.vouch(sent_at)
        if self.moving_to is not None:
            since = min(since, self.moving_to.vouch(sent_at))
        self.counted_until = max(self.counted_until, since + self.claim_window)
        return since

    @property
    def shown_label(self) -> Label:
        """The label as people are shown it."""
        return read_data(WAITS + self.label, None)[1]

    @property
    def shape(self) -> str:
        """The kind and the capacity, as one text."""
        return f"{self.kind},{self.capacity}"


def encode_label(label: Label) -> bytes:
    return f"\n{label.host}\n{label.pid}\n{label.text}".encode()


def relabel(label: bytes, text: str) -> bytes:
    """Returns an encoded label with another text."""
    _, host, pid, _ = label.split(b"\n", 3)
    return b"\n".join((b"", host, pid, text.encode()))


def read_data(data: bytes, stat: Any) -> tuple[int, Label]:
    """Returns the token and the label that the data of a znode says. A waiter's token is 0."""
    token, host, pid, text = (*data.decode(errors="replace").split("\n", 3), "", "", "")[:4]
    label = Label(host, int(pid) if _is_number(pid) else 0, text)
    if token == WAITS.decode():
        return 0, label
    return int(token) if _is_number(token) else stat.czxid, label


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
