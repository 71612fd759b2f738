"""`redis://`, `rediss://`, `redis+unix://`: the adapter to one Redis server, or one Valkey.

Each verb is one script on the server, so it happens whole or not at all. A command whose answer is
lost with its connection is asked again, with the same owner, while there is time; what ends without an
answer is remembered as doubtful, and the release that follows leaves a tombstone: if the command
arrives after all, it is refused. A command that is only late stays in its place on the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, cast

from ... import checks, guarantees
from ..._runtime.aio import Signal
from ...clock import BootClock
from ...entries import CLAIM_WINDOW, HEARTBEAT, MISSED_HEARTBEATS, Claim
from ...errors import BackendUnavailable, ConfigError
from ...ledger import kind_in_words
from ...model import (
    GONE,
    Busy,
    Granted,
    Label,
    LockState,
    Outcome,
    Queued,
    Renewed,
    Waiting,
)
from ...redis.address import TLS_OPTIONS, Address, address_of
from ...redis.aio import Wire
from ...redis.answers import lock_state, millis, request
from ...redis.keys import LockKeys, Naming
from ...redis.protocol import PASSING, Lost, bulk, code_of, pack, refusal, require_hiredis
from ...redis.scripts import scripts
from ...urls import Target, merge_options
from ..contract import Backend, Ticket

OPEN_LIMIT = 10.0
TRIES = 3
"""How often a command is sent whose connections break under it."""
PAUSE = 0.02
"""Seconds before a server is asked again that was loading its data, or busy."""
MARKED, UNMARKED = bulk(b"60000"), bulk(b"0")
"""Milliseconds for which a request that arrives after its owner has left is refused."""
CACHED = 4096
"""Beginnings of commands kept ready."""
AUDIT_RECORDS = b"1000"
SCAN_COUNT = b"1000"


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[guarantees.Guarantees, Callable[[], Backend]]:
    """Check everything that can be checked without opening; answers how to open."""
    known = {"heartbeat": HEARTBEAT, "claim_window": CLAIM_WINDOW, "key": None, "db": 0}
    settings = merge_options(target, options, {**known, **TLS_OPTIONS})
    heartbeat = checks.ttl(settings["heartbeat"], "heartbeat")
    claim_window = checks.ttl(settings["claim_window"], "claim_window")
    address = address_of(target, settings)
    naming = Naming(namespace, settings["key"])
    require_hiredis()
    return guarantees.REDIS, lambda: RedisBackend(address, naming, heartbeat, claim_window)


class _Prepared(NamedTuple):
    ttl: float
    kind: str
    weight: int
    capacity: int
    barge: bool
    label: Label
    command: bytes


class RedisBackend:
    guarantees = guarantees.REDIS

    def __init__(
        self, address: Address, naming: Naming, heartbeat: float, claim_window: float
    ) -> None:
        self._address = address
        self._naming = naming
        self.clock = BootClock()
        self.heartbeat = heartbeat
        self.claim_window = claim_window
        self._wire = Wire(address, self.clock, naming.channels)
        self._scripts = scripts()
        self._asks: dict[str, _Prepared] = {}
        self._releases: dict[str, bytes] = {}
        self._doubtful: dict[str, None] = {}
        """Owners whose acquire ended without an answer: it may still arrive."""
        self._special: dict[str, None] = {}
        """Owners that wait, or share a lock: `keep` does not know them."""

    async def open(self) -> None:
        by = self.clock.now() + OPEN_LIMIT
        try:
            await self._wire.open(by)
            await self._load(by)
        except BaseException:
            await self._wire.close()
            raise

    async def acquire(self, ticket: Ticket, by: float) -> Granted | Queued | Busy:
        kept = self._asks.get(ticket.name)
        if (
            kept is None
            or kept.ttl != ticket.ttl
            or kept.kind != ticket.kind
            or kept.weight != ticket.weight
            or kept.capacity != ticket.capacity
            or kept.barge != ticket.barge
            or kept.label is not ticket.label
        ):
            kept = self._prepared(ticket)
        owner = ticket.owner
        end = b"$%d\r\n%b\r\n" % (len(owner), owner.encode())
        try:
            reply = await self._wire.ask(ticket, kept.command, end, by)
        except Lost as error:
            # Asked again with the same owner, which gets the same answer if it was carried out.
            self._doubtful[owner] = None
            reply = await self._again(error, self._asking(ticket, kept.command, end, by), by)
        except BaseException:
            self._doubtful[owner] = None
            raise
        if type(reply) is int and kept.capacity == 1:
            return Granted(reply, ticket.ttl)
        return await self._answered(ticket, reply, self._asking(ticket, kept.command, end, by), by)

    async def _answered(
        self, ticket: Ticket, reply: Any, ask: Callable[[], Awaitable[Any]], by: float
    ) -> Granted | Queued | Busy:
        """Every answer that is not simply a lock of one's own."""
        if isinstance(reply, Exception):
            try:
                reply = await self._settled(reply, ask, by)
            except BaseException:
                self._doubtful[ticket.owner] = None
                raise
            if isinstance(reply, Exception):
                raise self._refused(reply, ticket)
        if type(reply) is int:
            if ticket.capacity != 1:
                self._special[ticket.owner] = None
            return Granted(reply, ticket.ttl)
        place, left = reply
        if place < 0:
            return Busy(left / 1000)
        self._special[ticket.owner] = None
        return Queued(left / 1000)

    def _asking(
        self, ticket: Ticket, command: bytes, end: bytes, by: float
    ) -> Callable[[], Awaitable[Any]]:
        return lambda: self._wire.ask(ticket, command, end, by)

    async def renew(self, claims: Sequence[Claim], by: float) -> Sequence[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(claims)
        special = self._special
        plain = [i for i, claim in enumerate(claims) if claim.owner not in special]
        if plain:
            keys = [self._naming.of(claims[i].name).lock for i in plain]
            times = [
                part
                for i in plain
                for part in (claims[i].owner.encode(), b"%d" % millis(claims[i].ttl))
            ]
            command = self._scripts["keep"].command(len(keys), 3 * len(keys))
            command += b"".join([b"$%d\r\n%b\r\n" % (len(p), p) for p in keys + times])
            for i, token in zip(plain, await self._call(command, by), strict=True):
                if token:
                    outcomes[i] = Renewed(token, claims[i].ttl)
        rest = [i for i, outcome in enumerate(outcomes) if outcome is None]
        if rest:
            beats = [self._beat_command(claims[i]) for i in rest]
            for i, reply in zip(rest, await self._calls(beats, by), strict=True):
                outcomes[i] = self._outcome(claims[i], reply)
        return outcomes  # type: ignore[return-value]

    async def release(self, name: str, owner: str, by: float) -> bool:
        command = self._releases.get(name)
        if command is None:
            command = self._scripts["release"].command(3, 5) + _three(self._naming.of(name))
            _keep_ready(self._releases, name, command)
        if owner in self._special:
            self._forget(owner)
        mark = MARKED if owner in self._doubtful else UNMARKED
        command += b"%b$%d\r\n%b\r\n" % (mark, len(owner), owner.encode())
        try:
            reply = await self._wire.call(command, by)
            if type(reply) is not int:
                reply = await self._settled(reply, self._calling(command, by), by)
        except Lost as error:
            reply = await self._again(error, self._calling(command, by), by)
            if reply == 0:
                # Gone now, and it was there when we first asked, by our own clock: we freed it.
                reply = 1
        if type(reply) is not int:
            raise refusal(reply, self._address)
        if mark is MARKED:
            self._doubtful.pop(owner, None)
        return reply == 1

    def _calling(self, command: bytes, by: float) -> Callable[[], Awaitable[Any]]:
        return lambda: self._wire.call(command, by)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        grant = await self._wire.listen(ticket, until)
        if grant is not None:
            self._forget(ticket.owner, special=ticket.capacity != 1)
        return grant

    async def inspect(self, name: str, by: float) -> LockState:
        return lock_state(name, await self._call(self._look_command(name), by))

    async def list(self, prefix: str, by: float) -> Sequence[LockState]:
        names: set[str] = set()
        for pattern in self._naming.patterns(prefix):
            cursor = b"0"
            while True:
                command = pack(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", SCAN_COUNT)
                cursor, keys = await self._call(command, by)
                names.update(filter(None, map(self._naming.name_of, keys)))
                if cursor == b"0":
                    break
        found = sorted(name for name in names if name.startswith(prefix))
        states: list[LockState] = []
        for start in range(0, len(found), 100):
            some = found[start : start + 100]
            answers = await self._calls([self._look_command(name) for name in some], by)
            for name, answer in zip(some, answers, strict=True):
                if not isinstance(answer, Exception):  # else a key that is no lock at all
                    states.append(lock_state(name, answer))
        return [state for state in states if state.holders or state.waiters]

    async def force_release(self, name: str, actor: str, by: float) -> bool:
        keys = _three(self._naming.of(name)) + bulk(self._naming.audit)
        record = bulk(f"{actor} released {name}".encode()) + bulk(AUDIT_RECORDS)
        command = self._scripts["force"].command(4, 6) + keys + record
        return bool(await self._call(command, by))

    async def tether(self, name: str, owner: str, by: float) -> int | None:
        return None

    async def close(self) -> None:
        await self._wire.close()

    # Commands, made ready.

    def _prepared(self, ticket: Ticket) -> _Prepared:
        """The beginning of a request like this one, kept for the next one for the same lock."""
        patience = self.heartbeat * MISSED_HEARTBEATS
        asked = request(
            ticket.ttl,
            self.claim_window,
            patience,
            ticket.barge,
            ticket.weight,
            ticket.capacity,
            ticket.kind,
            ticket.label,
        )
        command = (
            self._scripts["acquire"].command(3, 8)
            + _three(self._naming.of(ticket.name))
            + bulk(b"%d" % ticket.capacity)
            + bulk(b"%d" % millis(ticket.ttl))
            + bulk(asked)
        )
        made = _Prepared(
            ticket.ttl,
            ticket.kind,
            ticket.weight,
            ticket.capacity,
            ticket.barge,
            ticket.label,
            command,
        )
        _keep_ready(self._asks, ticket.name, made)
        return made

    def _beat_command(self, claim: Claim) -> bytes:
        keys = _three(self._naming.of(claim.name))
        ttl = bulk(b"%d" % millis(claim.ttl))
        return self._scripts["beat"].command(3, 5) + keys + ttl + bulk(claim.owner.encode())

    def _look_command(self, name: str) -> bytes:
        return self._scripts["look"].command(3, 3) + _three(self._naming.of(name))

    # Answers.

    def _outcome(self, claim: Claim, reply: Any) -> Outcome:
        if isinstance(reply, Exception):
            raise refusal(reply, self._address)
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
        if code == "HFKIND":
            capacity, _, kind = rest.partition(" ")
            return ConfigError(
                f"{ticket.name!r} is in use as {kind_in_words(kind, int(capacity))}, so it cannot be "
                f"asked for as {kind_in_words(ticket.kind, ticket.capacity)} until it is free; use "
                "another name, or the same kind and size everywhere",
                name=ticket.name,
                owner=ticket.owner,
            )
        if code == "HFUSED":
            return ConfigError(
                f"the owner id {ticket.owner!r} is already used for {ticket.name!r}, by a request for "
                "something else; every attempt needs an owner id of its own",
                name=ticket.name,
                owner=ticket.owner,
            )
        if code == "HFLEFT":
            return BackendUnavailable(
                f"the request for {ticket.name!r} came after it had been given up",
                name=ticket.name,
                owner=ticket.owner,
            )
        return refusal(error, self._address)

    def _forget(self, owner: str, special: bool = False) -> None:
        if not special:
            self._special.pop(owner, None)
        self._wire.forget(owner)

    # Asking, and asking again.

    async def _call(self, command: bytes, by: float) -> Any:
        """For what may be repeated without harm. Raises for an error that the server answered."""
        try:
            reply = await self._wire.call(command, by)
            if isinstance(reply, Exception):
                reply = await self._settled(reply, self._calling(command, by), by)
        except Lost as error:
            reply = await self._again(error, self._calling(command, by), by)
        if isinstance(reply, Exception):
            raise refusal(reply, self._address)
        return reply

    async def _calls(self, commands: Sequence[bytes], by: float) -> Sequence[Any]:
        async def send() -> Any:
            return await self._wire.batch(commands, by)

        try:
            replies = await send()
            if any(code_of(r) == "NOSCRIPT" for r in replies if isinstance(r, Exception)):
                await self._load(by)
                replies = await send()
        except Lost as error:
            replies = await self._again(error, send, by)
        return cast(Sequence[Any], replies)

    async def _settled(self, reply: Any, send: Callable[[], Awaitable[Any]], by: float) -> Any:
        """An answer that is no passing refusal: scripts that the server forgot, or data it loads."""
        tries = TRIES
        while isinstance(reply, Exception):
            code = code_of(reply)
            if code == "NOSCRIPT" and tries:
                tries -= 1
                await self._load(by)
            elif code in PASSING and self.clock.now() + PAUSE < by:
                await Signal(self.clock).wait(self.clock.now() + PAUSE)
            else:
                break
            reply = await send()
        return reply

    async def _again(self, error: Lost, send: Callable[[], Awaitable[Any]], by: float) -> Any:
        """Its connection broke: on a new one, while there is time. What is only late is not asked."""
        for _ in range(TRIES - 1):
            if not error.broken or self.clock.now() >= by:
                break
            try:
                return await self._settled(await send(), send, by)
            except Lost as another:
                error = another
        raise error

    async def _load(self, by: float) -> None:
        loads = [script.load for script in self._scripts.values()]
        for reply in await self._wire.batch(loads, by):
            if isinstance(reply, Exception) and code_of(reply) not in PASSING:
                raise refusal(reply, self._address)


def _three(keys: LockKeys) -> bytes:
    return bulk(keys.lock) + bulk(keys.queue) + bulk(keys.counter)


def _keep_ready(cache: dict[str, Any], key: str, command: object) -> None:
    if len(cache) >= CACHED:
        cache.clear()
    cache[key] = command
