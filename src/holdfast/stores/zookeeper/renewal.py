"""A renewal of many claims at once: one write for each session, and a read of what is not watched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...entries import Claim
from ...errors import GuaranteeError
from ...model import GONE, UNKNOWN, Outcome, Renewed, Waiting
from .attempt import DELETING, ENDED, HELD, MINTING, WAITING, Attempt, ResultCallback
from .requests import NoNodeError, Unanswered, get_children, get_data
from .session import ClientSession

if TYPE_CHECKING:
    from .attempts import Attempts


class Renewal:
    """One renewal, from its requests to the outcomes of all its claims."""

    def __init__(
        self, attempts: Attempts, claims: Sequence[Claim], on_result: ResultCallback
    ) -> None:
        self._attempts = attempts
        self._claims = claims
        self._on_result = on_result
        self._sent_at = attempts.clock.now()
        self._outcomes: list[Outcome] = [UNKNOWN] * len(claims)
        self._awaited = 1
        """Replies to come, and one for `start` itself."""

    def start(self) -> None:
        """Sends the requests. Called under the mutex."""
        by_session: dict[ClientSession, dict[int, Attempt]] = {}
        for number, claim in enumerate(self._claims):
            attempt = self._attempts.find(claim.name, claim.owner)
            if attempt is None or attempt.state == DELETING:
                self._outcomes[number] = GONE
                continue
            # The TTL that was asked for at first may have been more than there is: that is no new wish.
            longest = max(attempt.ttl, attempt.requested_ttl)
            if attempt.state == HELD and claim.ttl > longest:
                raise _too_long(attempt, claim.ttl)
            if attempt.state == MINTING or (attempt.state == HELD and not attempt.settled):
                self._attempts.advance(attempt)
                self._record(number, attempt)
            elif attempt.session.ready:
                by_session.setdefault(attempt.session, {})[number] = attempt
        for session, attempts in by_session.items():
            self._renew_on(session, attempts)
        self._count_reply()

    def _renew_on(self, session: ClientSession, attempts: dict[int, Attempt]) -> None:
        """Renews the claims of one session; `attempts` are by the number of their claim."""
        proved = False

        def on_proved(value: Any, error: Exception | None) -> None:
            nonlocal proved
            with self._attempts.mutex:
                proved = error is None
                for number, attempt in attempts.items():
                    if proved and attempt.watches_itself:
                        self._record(number, attempt)
                self._count_reply()

        def on_holder_read(
            number: int, attempt: Attempt, path: str, value: Any, error: Exception | None
        ) -> None:
            with self._attempts.mutex:
                if attempt.state != HELD or attempt.path != path:
                    session.unwatch(path, attempt)  # it was given another path meanwhile
                elif isinstance(error, NoNodeError):
                    self._attempts.lose(attempt)
                elif error is None:
                    attempt.watches_itself = True
                if proved and not isinstance(error, Unanswered):
                    self._record(number, attempt)
                self._count_reply()

        def on_queue_read(waiters: dict[int, Attempt], value: Any, error: Exception | None) -> None:
            with self._attempts.mutex:
                if proved and not isinstance(error, Unanswered):
                    names, pzxid = (value[0], value[1].pzxid) if error is None else ([], 0)
                    read = self._attempts.read_for_renewal(names, pzxid)
                    for number, attempt in waiters.items():
                        remaining = self._attempts.check_waiter(attempt, read)
                        self._record(number, attempt, remaining)
                self._count_reply()

        self._awaited += 1
        session.prove(on_proved)
        by_lock: dict[str, dict[int, Attempt]] = {}
        for number, attempt in attempts.items():
            if attempt.state == HELD and not attempt.watches_itself:
                self._awaited += 1
                watcher = session.watch(attempt.path, attempt)
                request = get_data(attempt.path, watcher)
                session.send(request, partial(on_holder_read, number, attempt, attempt.path))
            elif attempt.state == WAITING:
                by_lock.setdefault(attempt.lock_path, {})[number] = attempt
        # After the write on the same connection: what is read was true when that was agreed to, or
        # later.
        for lock_path, waiters in by_lock.items():
            self._awaited += 1
            session.send(get_children(lock_path), partial(on_queue_read, waiters))

    def _record(self, number: int, attempt: Attempt, remaining: float = 0.0) -> None:
        """Records the outcome of the claim `number`; once that is known, if a token is being minted."""
        session = attempt.home
        if attempt.state == HELD and attempt.settled:
            attempt.expires_at = max(attempt.expires_at, self._sent_at + attempt.ttl)
            since = session.vouch(self._sent_at)
            ttl = min(attempt.ttl, session.ttl)
            self._outcomes[number] = Renewed(attempt.token, ttl, since, attempt.granted_slot)
        elif attempt.state == WAITING:
            self._outcomes[number] = Waiting(remaining, attempt.vouch(self._sent_at))
        elif attempt.state in (DELETING, ENDED):
            self._outcomes[number] = GONE
        elif session.ready and (attempt.in_flight or attempt.moving_to is session):
            self._awaited += 1

            def on_minted() -> None:
                self._record(number, attempt)
                self._count_reply()

            attempt.on_minted.append(on_minted)

    def _count_reply(self) -> None:
        self._awaited -= 1
        if self._awaited == 0:
            self._on_result(self._outcomes)


def _too_long(attempt: Attempt, ttl: float) -> GuaranteeError:
    return GuaranteeError(
        f"{attempt.name!r} is held on a ZooKeeper session that gives it {attempt.ttl:g} s, so it "
        f"cannot be renewed for {ttl:g} s; acquire it with that ttl",
        name=attempt.name,
        owner=attempt.owner,
        token=attempt.token,
    )
