"""`redis://`, `rediss://`, `redis+unix://`: the adapter to one Redis server, or one Valkey.

Each verb is one script on the server, so it happens whole or not at all. A command whose answer is
lost with its connection is asked again, with the same owner, while there is time; what ends without an
answer is remembered as doubtful, and the release that follows leaves a tombstone: if the command
arrives after all, it is refused. A command that is only late stays in its place on the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
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
from ..._async.contract import Backend, Ticket
from ...timing import TIMING_OPTIONS, Timing, timing_of
from ...urls import Target, merge_options
from .. import guarantees
from ..address import TLS_OPTIONS, Address, address_of
from ..answers import lock_state
from ..commands import Commands
from ..keys import Naming
from ..wire.aio import Finder, Wire
from ..wire.protocol import PASSING, Lost, require_hiredis
from .replicated import replicated
from .retry import Calls, Link
from .scan import lock_names

SHOWN_AT_ONCE = 100
REMEMBERED = 100_000
"""Owners that may need special care; the oldest are forgotten, which costs a round trip at most."""


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Check everything that can be checked without opening; answers how to open."""
    settings = merge_options(target, options, {**COMMON_OPTIONS, "db": 0})
    address = address_of(target, settings)
    require_hiredis()
    return made(address, namespace, settings)


def made(
    address: Address, namespace: str, settings: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    timing = timing_of(settings)
    naming = Naming(namespace, settings["key"])

    def make() -> RedisBackend:
        return RedisBackend(address, naming, timing)

    return replicated(guarantees.REDIS, make, settings)


COMMON_OPTIONS: dict[str, Any] = {
    **TIMING_OPTIONS,
    "key": None,
    "min_replicas": 0,
    **TLS_OPTIONS,
}


class RedisBackend:
    guarantees = guarantees.REDIS
    passing = PASSING

    def __init__(
        self,
        address: Address,
        naming: Naming,
        timing: Timing,
        finder: Finder | None = None,
    ) -> None:
        self._address = address
        self.clock = system_clock()
        self.heartbeat, self.claim_window = timing
        self._commands = Commands(naming, *timing)
        self._new_link = partial(self._link, address, naming, finder)
        self._wire = self._new_link()
        self._behind: Link | None = None
        """Of its own, because what is waited for there would hold up all the others."""
        self._calls = Calls(self._wire, self.clock, self._commands.loads, self.passing)
        self._doubtful: dict[str, None] = {}
        """Owners whose acquire ended without an answer: it may still arrive."""
        self._special: dict[str, None] = {}
        """Owners that wait, or share a lock: the renewal of many at once does not know them."""

    def _link(self, address: Address, naming: Naming, finder: Finder | None) -> Link:
        return Wire(address, self.clock, naming.channels, finder)

    async def open(self, deadline: float) -> None:
        try:
            await self._wire.open(deadline)
            await self._calls.load(deadline)
        except BaseException:
            await self._wire.close()
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        owner = ticket.owner
        terms = ticket.terms
        command = terms.prepared
        if command is None:
            command = terms.prepared = self._commands.ask(terms)
        end = b"$%d\r\n%b\r\n" % (len(owner), owner.encode())
        try:
            reply = await self._wire.ask(ticket, command, end, deadline)
            if type(reply) is Granted and terms.capacity == 1:
                return reply  # as below; before all else, because others wait for it by now
            if type(reply) is not bytes and (type(reply) is not int or reply < 0):
                reply = await self._asked(reply, ticket, command, end, deadline)
        except Lost as error:
            # Asked again with the same owner, which gets the same answer if it was carried out.
            remember(self._doubtful, owner)
            reply = await self._ask_again(error, ticket, command, end, deadline)
        except BaseException:
            remember(self._doubtful, owner)
            self._wire.forget(owner)
            raise
        if type(reply) is bytes:
            if owner in self._wire.waiting:
                self._wire.forget(owner)
            if terms.capacity != 1:
                remember(self._special, owner)
            return Granted(int(reply), terms.ttl)
        if type(reply) is Granted:
            return self._handed(reply, ticket)
        if type(reply) is not int:
            self._wire.forget(owner)
            raise self._refused(reply, ticket)
        if reply < 0:
            if owner in self._doubtful:
                # An earlier try of it may still arrive, and nobody would release what it gets.
                await self.release(ticket.name, owner, deadline)
            return Busy((-1 - reply) / 1000)
        remember(self._special, owner)
        return Queued(reply / 1000)

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        rest: Sequence[int] = range(len(claims))
        plain = [i for i in rest if claims[i].owner not in self._special] if self._special else rest
        outcomes: list[Outcome] = [UNKNOWN] * len(claims)
        if plain:
            all_plain = len(plain) == len(claims)
            kept = claims if all_plain else [claims[i] for i in plain]
            tokens = await self._calls.call(self._commands.keep(kept), deadline)
            if all_plain and 0 not in tokens:
                return [
                    quick_new(Renewed, (token, ttl, 0.0))
                    for token, (_, _, ttl) in zip(tokens, kept, strict=True)
                ]
            for i, token in zip(plain, tokens, strict=True):
                if token:
                    outcomes[i] = Renewed(token, claims[i].ttl)
        others = [i for i in rest if outcomes[i] is UNKNOWN]
        if others:
            replies = await self._calls.many(
                [self._commands.beat(claims[i]) for i in others], deadline
            )
            if len(others) == len(claims) and all(
                isinstance(reply, Exception) for reply in replies
            ):
                raise self._calls.refused(replies[0])
            for i, reply in zip(others, replies, strict=True):
                if isinstance(reply, Exception):
                    continue  # somebody has put something else there, which is no other's loss
                outcomes[i] = self._outcome(claims[i], reply)
                if outcomes[i] is GONE and claims[i].owner in self._doubtful:
                    await self.release(claims[i].name, claims[i].owner, deadline)
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        if owner in self._special:
            self._forget(owner)
        doubtful = owner in self._doubtful
        if doubtful:
            command = self._commands.release_doubtful(name, owner)
        else:
            command = self._commands.release(name, owner)
        try:
            reply = await self._wire.release(command, deadline)
            if type(reply) is not int:
                reply = await self._calls.settled(reply, self._calling(command, deadline), deadline)
        except Lost as error:
            reply = await self._calls.again(error, self._calling(command, deadline), deadline)
            if reply == 0:
                # Gone now, and it was there when we first asked, by our own clock: we freed it.
                reply = 1
        if type(reply) is not int:
            raise self._calls.refused(reply)
        if doubtful:
            self._doubtful.pop(owner, None)
        return reply == 1

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        grant = await self._wire.listen(ticket, until)
        if grant is not None and ticket.capacity == 1:
            self._special.pop(ticket.owner, None)
        return grant

    async def inspect(self, name: str, deadline: float) -> LockState:
        return lock_state(name, await self._calls.call(self._commands.look(name), deadline))

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        names = await self._names(prefix, deadline)
        found = sorted(name for name in names if name.startswith(prefix))
        states: list[LockState] = []
        for start in range(0, len(found), SHOWN_AT_ONCE):
            some = found[start : start + SHOWN_AT_ONCE]
            looks = [self._commands.look(name) for name in some]
            answers = await self._calls.many(looks, deadline)
            for name, answer in zip(some, answers, strict=True):
                if not isinstance(answer, Exception):  # else a key that is no lock at all
                    states.append(lock_state(name, answer))
        return [state for state in states if state.holders or state.waiters]

    async def force_release(self, name: str, actor: str, deadline: float) -> bool:
        return bool(await self._calls.call(self._commands.force(name, actor), deadline))

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def followed_by(self, claim: Claim, command: bytes, deadline: float) -> tuple[bool, Any]:
        """For `redis_replicated`: a renewal, and `command` behind it."""
        if self._behind is None:
            self._behind = self._new_link()
        shared = claim.owner in self._special
        renewal = self._commands.beat(claim) if shared else self._commands.keep([claim])
        reply, answer = await self._paired(self._behind, renewal, command, deadline)
        if isinstance(reply, Exception) or isinstance(answer, Exception):
            self._behind.turn_away()
            raise self._calls.refused(reply if isinstance(reply, Exception) else answer)
        return (reply[0] if type(reply) is list else reply) > 0, answer

    async def _paired(
        self, link: Link, command: bytes, then: bytes, deadline: float
    ) -> Sequence[Any]:
        return await link.batch([command, then], deadline)

    async def close(self) -> None:
        await self._wire.close()
        if self._behind is not None:
            await self._behind.close()

    # Their parts.

    def _handed(self, grant: Granted, ticket: Ticket) -> Granted:
        """The wake-up came together with the answer that it was put into the queue."""
        if ticket.capacity != 1:
            remember(self._special, ticket.owner)
        return grant

    async def _ask(self, ticket: Ticket, command: bytes, end: bytes, deadline: float) -> Any:
        reply = await self._wire.ask(ticket, command, end, deadline)
        if type(reply) is int and reply < 0 and ticket.queue:
            reply = await self._wire.enqueue(ticket, command, end, deadline)
        return reply

    async def _asked(
        self, reply: Any, ticket: Ticket, command: bytes, end: bytes, deadline: float
    ) -> Any:
        """The first answer was neither a grant nor a place in the queue."""
        if type(reply) is int and reply < 0 and ticket.queue:
            reply = await self._wire.enqueue(ticket, command, end, deadline)
        if isinstance(reply, Exception):
            send = partial(self._ask, ticket, command, end, deadline)
            reply = await self._calls.settled(reply, send, deadline)
        return reply

    async def _ask_again(
        self, error: Lost, ticket: Ticket, command: bytes, end: bytes, deadline: float
    ) -> Any:
        try:
            send = partial(self._ask, ticket, command, end, deadline)
            return await self._calls.again(error, send, deadline)
        except BaseException:
            self._wire.forget(ticket.owner)
            raise

    async def _names(self, prefix: str, deadline: float) -> set[str]:
        naming = self._commands.naming
        return await lock_names(naming, prefix, lambda command: self._calls.call(command, deadline))

    def _calling(self, command: bytes, deadline: float) -> Callable[[], Awaitable[Any]]:
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
        return self._calls.refused(error)

    def _forget(self, owner: str) -> None:
        self._special.pop(owner, None)
        self._wire.forget(owner)


def remember(owners: dict[str, None], owner: str) -> None:
    owners[owner] = None
    if len(owners) > REMEMBERED:
        owners.pop(next(iter(owners)), None)
