"""`http://`, `https://`: the adapter to a lock service, which carries out each verb on its own store.

Every request is about an owner, and is answered for the same owner in the same way: so one whose answer
was lost is sent again, perhaps to another service. An owner whose acquire ended without an answer is
remembered as doubtful. Its release says so: the service then waits for such a request that it is
carrying out, refuses one that arrives later, and has its store refuse one that arrives elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from ...._runtime.aio import Signal
from ....clock import system_clock
from ....entries import CLAIM_WINDOW, HEARTBEAT, Claim
from ....errors import BackendUnavailable, LockError
from ....guarantees import Guarantees
from ....interrupts import let_through
from ....model import GONE, UNKNOWN, Busy, Gone, Granted, LockState, Observation, Outcome, Queued
from ..._async.contract import Backend, Terms, Ticket
from ...redis.owners import OwnerSet
from ...urls import Target, merge_options
from .. import codec
from ..address import OPTIONS, Address, address_of, timing_of
from ..batches import batches
from ..codec import Nonsense, encode, path_part
from ..guarantees import HTTP, guarantees_of
from ..problems import error_of, kind_of
from ..wire.aio import Wire
from .retry import Reply, Retrier
from .wakeups import Wakeups

Result = TypeVar("Result")

TOO_LARGE = 413
"""The status of an answer by a service, or a proxy, that takes less in one request."""
CLOSE_LIMIT = 1.0
"""Seconds for which `close` waits for the releases under way."""
PAGE = 500
"""Locks in one page of a list."""


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks all that can be checked without opening; returns the guarantees and a function to open."""
    settings = merge_options(target, options, OPTIONS)
    address, timing = address_of(target, settings), timing_of(settings)
    return HTTP, lambda: HttpBackend(address, namespace, timing)


class HttpBackend:
    """The adapter to one service, or to several on the same store."""

    def __init__(
        self, address: Address, namespace: str, timing: Mapping[str, float] | None = None
    ) -> None:
        """`timing` is what is wanted in place of the timing of the service's store."""
        self._address = address
        self.clock = system_clock()
        self.guarantees: Guarantees = HTTP
        self.heartbeat, self.claim_window = HEARTBEAT, CLAIM_WINDOW
        self._query = f"?namespace={quote(namespace, safe='')}"
        for name, seconds in (timing or {}).items():
            self._query += f"&{name}={seconds!r}"
        self._wire = Wire(address)
        self._retrier = Retrier(self._wire, address, self.clock)
        self._wakeups = Wakeups(self._wire, self.clock, self._query)
        self._doubtful_owners = OwnerSet()
        """Owners whose acquire ended without an answer: it may still arrive at the service."""
        self._releases: dict[object, None] = {}
        """The releases under way."""
        self._closing: Signal | None = None
        self._one_step = True
        """Whether the service takes several locks in one step, and gives none back by itself."""

    @property
    def look(self) -> Callable[[Iterable[str]], None]:
        """Function to call with the owners about whom `renew` is to be asked."""
        return self._wakeups.look

    @look.setter
    def look(self, function: Callable[[Iterable[str]], None]) -> None:
        self._wakeups.look = function

    async def open(self, deadline: float) -> None:
        try:
            reply = await self._retrier.call("GET", f"/v1/guarantees{self._query}", None, deadline)
            data = self._success(reply)
            try:
                self.guarantees = guarantees_of(data)
                self.heartbeat = float(data["heartbeat"])
                self.claim_window = float(data["claim_window"])
                self._one_step = data.get("one_step") is not False
            except (KeyError, TypeError, ValueError) as error:
                let_through(error)
                raise self._nonsense(reply, Nonsense("it did not tell its guarantees")) from error
        except BaseException:
            await self._wire.close()
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        owner, name = ticket.owner, ticket.name
        sent = self.clock.now()
        if ticket.queue:
            self._wakeups.expect(ticket)
        path, fields = self._prepared(ticket.terms)
        body = self._with_owner(fields, ticket)
        try:
            reply = await self._retrier.call(
                "POST", path, body, deadline, partial(self._doubtful_owners.add, owner)
            )
            if reply.status == 200:
                self._wakeups.forget(owner)
                return self._granted(reply, reply.data, name, owner, sent)
            if reply.status == 202:
                self._wakeups.listen()
                return self._read(reply, reply.data, codec.queued, name, owner, sent)
            if reply.status == 409 and kind_of(reply.data) == "busy":
                self._wakeups.forget(owner)
                answer = self._read(reply, reply.data, codec.busy)
                if owner in self._doubtful_owners:
                    # An earlier acquire of this owner may still arrive: nobody would release its grant.
                    await self.release(name, owner, deadline)
                return answer
            raise self._error(reply, name, owner)
        except BaseException:
            self._wakeups.forget(owner)
            raise

    async def acquire_all(
        self, tickets: Sequence[Ticket], deadline: float
    ) -> Sequence[Granted] | Busy:
        sent = self.clock.now()
        locks = [
            {**codec.fields_of(one.terms), "name": one.name, "owner": one.owner} for one in tickets
        ]

        def doubt() -> None:
            for ticket in tickets:
                self._doubtful_owners.add(ticket.owner)

        body = encode({"locks": locks}).encode()
        # A service that takes one after the other may still give back what another grants to a repeat.
        path, repeat = f"/v1/acquire{self._query}", self._one_step
        reply = await self._retrier.call("POST", path, body, deadline, doubt, repeat=repeat)
        if reply.status == 200:
            grants = self._list(reply, "grants", len(tickets))
            return [
                self._granted(reply, grant, one.name, one.owner, sent)
                for one, grant in zip(tickets, grants, strict=True)
            ]
        for ticket in tickets:
            if ticket.owner in self._doubtful_owners:
                await self.release(ticket.name, ticket.owner, deadline)
        if reply.status == 409 and kind_of(reply.data) == "busy":
            return self._read(reply, reply.data, codec.busy)
        raise self._error(reply)

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        failed: LockError | None = None
        answered = False
        for some in batches(claims):
            try:
                outcomes += await self._renew(some, deadline)
                answered = True
            except BackendUnavailable as error:
                failed = error
                outcomes += [UNKNOWN] * len(some)
        if failed is not None and not answered:
            raise failed
        return outcomes

    async def _renew(self, claims: Sequence[Claim], deadline: float) -> list[Outcome]:
        sent = self.clock.now()
        reply = await self._retrier.call(
            "POST", f"/v1/renew{self._query}", codec.claims_body(claims), deadline, ahead=True
        )
        if reply.status == TOO_LARGE and len(claims) > 1:
            half = len(claims) // 2
            first = await self._renew(claims[:half], deadline)
            return first + await self._renew(claims[half:], deadline)
        found = self._list(reply, "outcomes", len(claims))
        outcomes: list[Outcome] = []
        for claim, one in zip(claims, found, strict=True):
            outcome = self._read(reply, one, codec.outcome, claim, sent)
            if outcome is GONE and claim.owner in self._doubtful_owners:
                await self.release(claim.name, claim.owner, deadline)
            outcomes.append(outcome)
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        self._wakeups.forget(owner)
        doubtful = owner in self._doubtful_owners
        fields: dict[str, Any] = {"owner": owner}
        if doubtful:
            fields["doubtful"] = True
        under_way = object()
        self._releases[under_way] = None
        try:
            reply = await self._post(name, "release", fields, deadline)
        finally:
            self._releases.pop(under_way, None)
            if self._closing is not None:
                self._closing.set()
        if reply.status not in (200, 410):
            raise self._error(reply, name, owner)
        if doubtful:
            self._doubtful_owners.discard(owner)
        # By our own clock it was held when we first asked, so it was we who freed it.
        return reply.status == 200 or reply.lost

    async def release_all(self, pairs: Sequence[tuple[str, str]], deadline: float) -> list[bool]:
        """Releases the lock `name` of `owner` for each of `pairs`, as `release` does."""
        locks: list[dict[str, Any]] = []
        for name, owner in pairs:
            self._wakeups.forget(owner)
            locks.append({"name": name, "owner": owner})
            if owner in self._doubtful_owners:
                locks[-1]["doubtful"] = True
        body = encode({"locks": locks}).encode()
        reply = await self._retrier.call("POST", f"/v1/release{self._query}", body, deadline)
        if reply.status == TOO_LARGE and len(pairs) > 1:
            half = len(pairs) // 2
            first = await self.release_all(pairs[:half], deadline)
            return first + await self.release_all(pairs[half:], deadline)
        released = self._list(reply, "released", len(pairs))
        for _, owner in pairs:
            self._doubtful_owners.discard(owner)
        return [reply.lost or one is True for one in released]

    def doubt(self, owner: str) -> None:
        """Notes that an acquire of `owner`, which another process sent, may still arrive."""
        self._doubtful_owners.add(owner)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        return await ticket.wait(self.clock, until)

    async def inspect(self, name: str, deadline: float) -> LockState:
        path = f"/v1/locks/{path_part(name)}{self._query}"
        reply = await self._retrier.call("GET", path, None, deadline)
        return self._read(reply, self._success(reply), codec.lock_state)

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        states: list[LockState] = []
        after = ""
        patience = deadline - self.clock.now()
        while True:
            query = f"{self._query}&limit={PAGE}&prefix={quote(prefix, safe='')}"
            if after:
                query += f"&after={quote(after, safe='')}"
            reply = await self._retrier.call("GET", f"/v1/locks{query}", None, deadline)
            data = self._success(reply)
            found = self._list(reply, "locks")
            states += [self._read(reply, one, codec.lock_state) for one in found]
            following = data.get("next")
            if following is None:
                return states
            if not isinstance(following, str) or following <= after:
                raise self._nonsense(reply, Nonsense("its list does not come to an end"))
            after = following
            deadline = self.clock.now() + patience

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        query = f"{self._query}&actor={quote(actor, safe='')}"
        if above:
            query += f"&token_above={above}"
        path = f"/v1/locks/{path_part(name)}{query}"
        reply = await self._retrier.call("DELETE", path, None, deadline, repeat=False)
        return self._success(reply).get("released") is True

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int = 0, text: str | None = None
    ) -> bool:
        fields: dict[str, Any] = {"owner": owner}
        if weight:
            fields["weight"] = weight
        if text is not None:
            fields["text"] = text
        return self._done(await self._post(name, "amend", fields, deadline), name, owner)

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        fields = {"owner": owner, "ttl": ttl}
        return self._done(await self._post(name, "detach", fields, deadline), name, owner)

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        owner, name = ticket.owner, ticket.name
        sent = self.clock.now()
        fields = {**codec.fields_of(ticket.terms), "owner": owner, "giver": giver}
        doubt = partial(self._doubtful_owners.add, owner)
        reply = await self._post(name, "adopt", fields, deadline, doubt)
        if reply.status == 410:
            return GONE
        if reply.status != 200:
            raise self._error(reply, name, owner)
        return self._granted(reply, reply.data, name, owner, sent)

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        self._wakeups.expect(ticket)
        self._wakeups.listen()
        query = f"{self._query}&after={after}&owner={quote(ticket.owner, safe='')}"
        session = self._wakeups.session_for(ticket.owner)
        if session is not None:
            query += f"&session={session}"
        path = f"/v1/elections/{path_part(ticket.name)}/changes{query}"
        reply = await self._retrier.call("GET", path, None, deadline)
        return self._read(reply, self._success(reply), codec.observation)

    async def unobserve(self, ticket: Ticket, deadline: float) -> None:
        self._wakeups.forget(ticket.owner)
        path = f"/v1/elections/{path_part(ticket.name)}/changes{self._query}&owner={ticket.owner}"
        await self._retrier.call("DELETE", path, None, deadline)  # whatever it says

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def close(self, deadline: float | None = None) -> None:
        # A clean-up that goes on behind its cancelled caller may have to connect first.
        self._closing = Signal(self.clock)
        until = deadline or self.clock.now() + CLOSE_LIMIT
        while self._releases and await self._closing.wait(until):
            pass
        await self._wakeups.close()
        await self._wire.close()

    # Parts of the verbs.

    def _prepared(self, terms: Terms) -> tuple[str, str]:
        """Returns the path of an acquire, and its body as far as it is the same at every attempt."""
        prepared: tuple[str, str] | None = terms.prepared
        if prepared is None:
            path = f"/v1/locks/{path_part(terms.name)}/acquire{self._query}"
            prepared = terms.prepared = (path, encode(codec.fields_of(terms))[:-1])
        return prepared

    def _with_owner(self, fields: str, ticket: Ticket) -> bytes:
        queue = ',"queue":true' if ticket.queue else ""
        session = self._wakeups.session_for(ticket.owner)
        told = f',"session":"{session}"' if session is not None else ""
        return f'{fields},"owner":{encode(ticket.owner)}{queue}{told}}}'.encode()

    async def _post(
        self,
        name: str,
        verb: str,
        fields: dict[str, Any],
        deadline: float,
        unanswered: Callable[[], None] | None = None,
    ) -> Reply:
        path = f"/v1/locks/{path_part(name)}/{verb}{self._query}"
        return await self._retrier.call("POST", path, encode(fields).encode(), deadline, unanswered)

    def _granted(self, reply: Reply, value: Any, name: str, owner: str, sent: float) -> Granted:
        """Returns the grant in a reply. If it cannot be understood, the owner is doubtful."""
        try:
            grant = codec.granted(value, name, owner, sent)
        except Nonsense as error:
            self._doubtful_owners.add(owner)
            raise self._nonsense(reply, error) from None
        if self.guarantees.recall:
            self._wakeups.attend(owner)
        return grant

    def _done(self, reply: Reply, name: str, owner: str) -> bool:
        if reply.status not in (200, 410):
            raise self._error(reply, name, owner)
        return reply.status == 200

    def _success(self, reply: Reply) -> dict[str, Any]:
        """Returns the data of a reply that is no refusal."""
        if reply.status != 200:
            raise self._error(reply)
        return self._read(reply, reply.data, codec.object_of)

    def _list(self, reply: Reply, field: str, length: int | None = None) -> Sequence[Any]:
        """Returns a list in a reply that is no refusal."""
        return self._read(reply, self._success(reply), codec.list_of, field, length)

    def _read(self, reply: Reply, value: Any, read: Callable[..., Result], *args: Any) -> Result:
        """Returns what `read` makes of `value`, which is from `reply`."""
        try:
            return read(value, *args)
        except Nonsense as error:
            raise self._nonsense(reply, error) from None

    def _error(self, reply: Reply, name: str | None = None, owner: str | None = None) -> LockError:
        return error_of(reply.answer, reply.data, name, owner)

    def _nonsense(self, reply: Reply, error: Nonsense) -> BackendUnavailable:
        return BackendUnavailable(
            f"the server at {reply.answer.endpoint} did not answer as a lock service does: {error}; is "
            "this its address?"
        )
