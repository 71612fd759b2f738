"""`redis://`, `rediss://`, `redis+unix://`: the adapter to one Redis server, or one Valkey.

Each verb is one script on the server, so it happens whole or not at all. A command whose reply is lost
with its connection is sent again, for the same owner, while there is time. An owner whose acquire ends
without a reply is remembered as doubtful, and its release leaves a tombstone: if the acquire arrives
after all, the server refuses it. A command that is only late stays in its place on the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ....clock import system_clock
from ....entries import Claim
from ....errors import BackendUnavailable, ConfigError
from ....guarantees import Guarantees
from ....model import (
    GONE,
    UNKNOWN,
    Busy,
    Granted,
    LockState,
    Outcome,
    Queued,
    Renewed,
    Waiting,
    quick_new,
)
from ....refusals import given_up, in_use_as, owner_used_again
from ..._async.contract import Backend, Terms, Ticket
from ...timing import TIMING_OPTIONS, Timing, timing_of
from ...urls import Target, merge_options
from .. import guarantees
from ..address import TLS_OPTIONS, Address, address_of
from ..answers import lock_state
from ..commands import AcquireCommand, Commands
from ..keys import Naming
from ..owners import OwnerSet
from ..wire.aio import PrimaryFinder, Wire
from ..wire.protocol import Lost, require_hiredis
from ..wire.refusals import TRANSIENT, code_of
from .elections import Elections
from .leases import HeldLeases
from .replicated import replicated
from .retry import AnyWire, Retrier
from .scan import lock_names

INSPECTED_AT_ONCE = 100


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks all that can be checked without opening; returns the guarantees and a function to open."""
    settings = merge_options(target, options, {**COMMON_OPTIONS, "db": 0})
    address = address_of(target, settings)
    require_hiredis()
    return prepare_server(address, namespace, settings)


def prepare_server(
    address: Address, namespace: str, settings: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Prepares the store at `address`, as `prepare` does for a URL."""
    from .several import OneServerBackend  # which is made of what is below

    timing = timing_of(settings)
    naming = Naming(namespace, settings["key"])

    def make() -> RedisBackend:
        return OneServerBackend(address, naming, timing)

    return replicated(guarantees.REDIS, make, settings)


COMMON_OPTIONS: dict[str, Any] = {
    **TIMING_OPTIONS,
    "key": str,
    "min_replicas": 0,
    **TLS_OPTIONS,
}


class RedisBackend(HeldLeases, Elections):
    """The adapter to one server; the base of those to sentinels and clusters."""

    guarantees = guarantees.REDIS
    transient = TRANSIENT

    def __init__(
        self,
        address: Address,
        naming: Naming,
        timing: Timing,
        finder: PrimaryFinder | None = None,
    ) -> None:
        self._address = address
        self.clock = system_clock()
        self.heartbeat, self.claim_window = timing
        self._commands = Commands(naming, *timing)
        self._new_wire = partial(self._make_wire, address, naming, finder)
        self._wire = self._new_wire()
        self.look: Callable[[Iterable[str]], None] = lambda owners: None
        self._wire.heed(naming.recalls, lambda owner: self.look([owner]))
        self._replica_wire: AnyWire | None = None
        """The wire for `renew_then`: a `WAIT` would hold up all other commands on its connection."""
        self._retrier = Retrier(self._wire, self.clock, self._commands.script_loads, self.transient)
        self._doubtful_owners = OwnerSet()
        """Owners whose acquire ended without a reply: it may still arrive at the server."""
        self._singly_renewed = OwnerSet()
        """Owners that wait, or share a lock. `scripts/keep.lua`, which renews many, knows neither."""

    def _make_wire(self, address: Address, naming: Naming, finder: PrimaryFinder | None) -> AnyWire:
        return Wire(address, self.clock, naming.channels, finder)

    async def open(self, deadline: float) -> None:
        try:
            await self._wire.open(deadline)
            await self._retrier.load_scripts(deadline)
        except BaseException:
            await self._wire.close()
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        owner = ticket.owner
        terms = ticket.terms
        command = (terms.prepared or self._prepare(terms)).command
        owner_argument = b"$%d\r\n%b\r\n" % (len(owner), owner.encode())
        try:
            reply = await self._wire.acquire(ticket, command, owner_argument, deadline)
            if type(reply) is Granted and terms.capacity == 1:
                return reply  # first of all, because others wait for the lock by now
            if type(reply) is not bytes and (type(reply) is not int or reply < 0):
                reply = await self._resolve_acquire(
                    reply, ticket, command, owner_argument, deadline
                )
        except Lost as error:
            # Sent again for the same owner, which gets the same reply if it was carried out.
            self._doubtful_owners.add(owner)
            reply = await self._retry_acquire(error, ticket, command, owner_argument, deadline)
        except BaseException:
            self._doubtful_owners.add(owner)
            self._wire.forget(owner)
            raise
        if type(reply) is bytes:
            if owner in self._wire.waiting:
                self._wire.forget(owner)
            if terms.capacity != 1:
                self._singly_renewed.add(owner)
            if not self._wire.attentive:
                self._wire.attend(owner)
            return Granted(int(reply), terms.ttl)
        if type(reply) is Granted:
            return self._accept_hand_over(reply, ticket)
        if type(reply) is not int:
            self._wire.forget(owner)
            raise self._refused(reply, ticket)
        if reply < 0:
            if owner in self._doubtful_owners:
                # An earlier acquire of this owner may still arrive: nobody would release its grant.
                await self.release(ticket.name, owner, deadline)
            return Busy((-1 - reply) / 1000)
        self._singly_renewed.add(owner)
        return Queued(reply / 1000)

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        if not self._wire.attentive:
            self._wire.attend("")  # locks that were handed to us are heard of from here on
        rest: Sequence[int] = range(len(claims))
        plain = (
            [i for i in rest if claims[i].owner not in self._singly_renewed]
            if self._singly_renewed
            else rest
        )
        outcomes: list[Outcome] = [UNKNOWN] * len(claims)
        if plain:
            all_plain = len(plain) == len(claims)
            kept = claims if all_plain else [claims[i] for i in plain]
            tokens = await self._retrier.call(self._commands.renew_many(kept), deadline)
            if all_plain and 0 not in tokens:
                return [
                    quick_new(Renewed, (token, ttl, 0.0, None))
                    for token, (_, _, ttl) in zip(tokens, kept, strict=True)
                ]
            for i, token in zip(plain, tokens, strict=True):
                if token:
                    outcomes[i] = Renewed(token, claims[i].ttl)
        others = [i for i in rest if outcomes[i] is UNKNOWN]
        if others:
            replies = await self._retrier.call_many(
                [self._commands.renew_one(claims[i]) for i in others], deadline
            )
            if len(others) == len(claims) and all(
                isinstance(reply, Exception) for reply in replies
            ):
                raise self._retrier.error_for(replies[0])
            for i, reply in zip(others, replies, strict=True):
                if isinstance(reply, Exception):
                    continue  # another client has put something else at this key
                outcomes[i] = self._outcome(claims[i], reply)
                if outcomes[i] is GONE and claims[i].owner in self._doubtful_owners:
                    await self.release(claims[i].name, claims[i].owner, deadline)
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        if owner in self._singly_renewed:
            self._forget(owner)
        doubtful = owner in self._doubtful_owners
        if doubtful:
            command = self._commands.release_and_refuse(name, owner)
        else:
            command = self._commands.release(name, owner)
        try:
            reply = await self._wire.release(command, deadline)
            if type(reply) is not int:
                reply = await self._retrier.retry_refused(
                    reply, self._sender(command, deadline), deadline
                )
        except Lost as error:
            reply = await self._retrier.retry_lost(error, self._sender(command, deadline), deadline)
            if reply == 0:
                # By our own clock it was held when we first asked, so it was we who freed it.
                reply = 1
        if type(reply) is not int:
            raise self._retrier.error_for(reply)
        if doubtful:
            self._doubtful_owners.discard(owner)
        return reply == 1

    def doubt(self, owner: str) -> None:
        """Notes that an acquire of `owner`, which another process sent, may still arrive."""
        self._doubtful_owners.add(owner)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        grant = await self._wire.listen(ticket, until)
        if grant is not None and ticket.capacity == 1:
            self._singly_renewed.discard(ticket.owner)
        return grant

    async def inspect(self, name: str, deadline: float) -> LockState:
        return lock_state(name, await self._retrier.call(self._commands.inspect(name), deadline))

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        names = await self._lock_names(prefix, deadline)
        found = sorted(name for name in names if name.startswith(prefix))
        states: list[LockState] = []
        for start in range(0, len(found), INSPECTED_AT_ONCE):
            some = found[start : start + INSPECTED_AT_ONCE]
            commands = [self._commands.inspect(name) for name in some]
            replies = await self._retrier.call_many(commands, deadline)
            for name, reply in zip(some, replies, strict=True):
                if not isinstance(reply, Exception):
                    states.append(lock_state(name, reply))
                elif code_of(reply) == "NOPERM":
                    raise self._retrier.error_for(reply)
                # Otherwise the key is no lock at all.
        return [state for state in states if state.holders or state.waiters]

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        command = self._commands.force_release(name, actor, above)
        return bool(await self._retrier.call(command, deadline))

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def renew_then(self, claim: Claim, command: bytes, deadline: float) -> tuple[bool, Any]:
        """Renews a lease and sends `command` behind it; returns if it was renewed, and the reply."""
        if self._replica_wire is None:
            self._replica_wire = self._new_wire()
        shared = claim.owner in self._singly_renewed
        renewal = self._commands.renew_one(claim) if shared else self._commands.renew_many([claim])
        renewed, reply = await self._call_pair(self._replica_wire, renewal, command, deadline)
        if isinstance(renewed, Exception) or isinstance(reply, Exception):
            self._replica_wire.drop_connections()
            refused = renewed if isinstance(renewed, Exception) else reply
            raise self._retrier.error_for(refused)
        return (renewed[0] if type(renewed) is list else renewed) > 0, reply

    async def _call_pair(
        self, wire: AnyWire, command: bytes, then: bytes, deadline: float
    ) -> Sequence[Any]:
        return await wire.batch([command, then], deadline)

    async def close(self, deadline: float | None = None) -> None:
        await self._wire.close()
        if self._replica_wire is not None:
            await self._replica_wire.close()

    # Parts of the verbs.

    def _prepare(self, terms: Terms) -> AcquireCommand:
        """Returns the command for these terms, which keep it from now on."""
        prepared = terms.prepared = self._commands.acquire(terms)
        return prepared

    def _accept_hand_over(self, grant: Granted, ticket: Ticket) -> Granted:
        """Takes a grant whose wake-up came together with the reply that the ticket is in the queue."""
        if ticket.capacity != 1:
            self._singly_renewed.add(ticket.owner)
        return grant

    async def _send_acquire(
        self, ticket: Ticket, command: bytes, owner_argument: bytes, deadline: float
    ) -> Any:
        reply = await self._wire.acquire(ticket, command, owner_argument, deadline)
        if type(reply) is int and reply < 0 and ticket.queue:
            reply = await self._wire.enqueue(ticket, command, owner_argument, deadline)
        return reply

    async def _resolve_acquire(
        self, reply: Any, ticket: Ticket, command: bytes, owner_argument: bytes, deadline: float
    ) -> Any:
        """Returns the final reply, where the first one was no grant and no place in the queue."""
        if type(reply) is int and reply < 0 and ticket.queue:
            reply = await self._wire.enqueue(ticket, command, owner_argument, deadline)
        if isinstance(reply, Exception):
            send = partial(self._send_acquire, ticket, command, owner_argument, deadline)
            reply = await self._retrier.retry_refused(reply, send, deadline)
        return reply

    async def _retry_acquire(
        self, error: Lost, ticket: Ticket, command: bytes, owner_argument: bytes, deadline: float
    ) -> Any:
        try:
            send = partial(self._send_acquire, ticket, command, owner_argument, deadline)
            return await self._retrier.retry_lost(error, send, deadline)
        except BaseException:
            self._wire.forget(ticket.owner)
            raise

    async def _lock_names(self, prefix: str, deadline: float) -> set[str]:
        naming = self._commands.naming
        return await lock_names(
            naming, prefix, lambda command: self._retrier.call(command, deadline)
        )

    def _sender(self, command: bytes, deadline: float) -> Callable[[], Awaitable[Any]]:
        return lambda: self._wire.call(command, deadline)

    def _outcome(self, claim: Claim, reply: Any) -> Outcome:
        if type(reply) is int:
            if reply > 0:
                return Renewed(reply, claim.ttl)
            self._forget(claim.owner)
            return GONE
        token, ms = reply
        if token == 0:
            return Waiting(ms / 1000)
        self._wire.forget(claim.owner)
        return Renewed(token, min(claim.ttl, ms / 1000))

    def _refused(self, error: Exception, ticket: Ticket) -> BackendUnavailable | ConfigError:
        code, _, rest = str(error).partition(" ")
        name, owner = ticket.name, ticket.owner
        if code == "HFKIND":
            capacity, _, kind = rest.partition(" ")
            return in_use_as(name, owner, (kind, int(capacity)), (ticket.kind, ticket.capacity))
        if code == "HFUSED":
            return owner_used_again(owner, name)
        if code == "HFLEFT":
            return given_up(name, owner)
        return self._retrier.error_for(error)

    def _forget(self, owner: str) -> None:
        self._singly_renewed.discard(owner)
        self._wire.forget(owner)
