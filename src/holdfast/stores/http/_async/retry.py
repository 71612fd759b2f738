"""Requests to a lock service: one service after the other, until one answers or the time is over.

A request whose answer was lost is sent again if that does no harm: what is asked for an owner is
answered for the same owner in the same way. A caller that has to know that an earlier try may still
arrive is told by `unanswered`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ...._runtime.aio import Signal
from ....clock import Clock
from ....errors import BackendUnavailable
from ....interrupts import let_through
from ..address import Address
from ..codec import Nonsense
from ..problems import error_of, pause_of
from ..wire.aio import Wire
from ..wire.failures import Failure
from ..wire.http1 import Answer

UNREACHABLE = 2.0
"""Seconds for which no service may be of use before a request is given up. One that restarts is back by
then."""
PAUSE, LONGEST_PAUSE = 0.01, 0.2
SHORTEST_TRY = 0.5
PASSING = (429, 502, 503, 504)
"""The statuses of answers by a service that may do better later."""
JSON_TYPES = ("application/json", "application/problem+json")


class Reply(NamedTuple):
    """An answer of a service that was understood."""

    answer: Answer
    data: Any
    """The body."""
    lost: bool
    """Whether an earlier try was not answered, and may have been carried out."""

    @property
    def status(self) -> int:
        return self.answer.status


class Retrier:
    """Requests to one service after the other, until one answers."""

    def __init__(self, wire: Wire, address: Address, clock: Clock) -> None:
        self.wire = wire
        self._clock = clock
        self._services = len(address.endpoints)
        self._share = self._services + 1 if self._services > 1 else 1
        """The number of parts into which the time of a request is divided; one service may take one."""

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        deadline: float,
        unanswered: Callable[[], None] | None = None,
        *,
        repeat: bool = True,
        ahead: bool = False,
    ) -> Reply:
        """Returns the reply to a request, which may be a refusal; raises `BackendUnavailable`.

        `repeat`: it may be sent again though it may have been carried out. `ahead`: it does not wait
        until other requests are done.
        """
        clock, wire = self._clock, self.wire
        pause, tries, lost = PAUSE, 0, False
        began = clock.now()
        while True:
            tries += 1
            endpoint = wire.endpoint
            left = deadline - clock.now()
            wanted = 0.0
            try:
                answer = await wire.call(
                    method, path, body, clock.now() + self._patience(left), endpoint, ahead
                )
                status = answer.status
                if status < 500 and status != 429:
                    return Reply(answer, _body_of(answer), lost)
                error: Exception = error_of(answer, _body_of(answer, strict=False))
                wanted = pause_of(answer)
                untouched = status == 429
                if status in PASSING:
                    again = untouched or clock.now() - began < UNREACHABLE
                else:
                    again = tries < self._services
            except Failure as failure:
                error = failure.in_words()
                untouched = failure.untouched
                again = not failure.unreachable or clock.now() - began < UNREACHABLE
            except Nonsense as nonsense:
                error = BackendUnavailable(
                    f"the server at {endpoint} did not answer as a lock service does: {nonsense}; is "
                    "this its address?"
                )
                untouched, again = False, tries < self._services
            except BaseException:
                if unanswered is not None:
                    unanswered()
                raise
            if not untouched:
                lost = True
                if unanswered is not None:
                    unanswered()
            wire.turn_from(endpoint)  # for the next request, at least
            if tries >= self._services:
                pause = max(pause, wanted)
            if (
                wire.closed
                or not again
                or not (repeat or untouched)
                or clock.now() + (pause if tries >= self._services else 0.0) >= deadline
            ):
                raise error
            if tries >= self._services:
                await Signal(clock).wait(clock.now() + pause)
                pause = min(max(pause, PAUSE) * 2, LONGEST_PAUSE)

    def _patience(self, left: float) -> float:
        """Returns the seconds that one service may take, so that there is time left for the others."""
        return max(left / self._share, min(left, SHORTEST_TRY), 0.001)


def _body_of(answer: Answer, strict: bool = True) -> Any:
    """Returns the body of an answer; None if it is not JSON and need not be."""
    try:
        if 300 <= answer.status < 400:
            raise Nonsense(f"it answered {answer.status}, and names another place")
        if answer.media_type not in JSON_TYPES:
            kind = answer.media_type or "nothing"
            raise Nonsense(f"it answered {answer.status} with {kind[:80]!r}")
        return json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        let_through(error)
        if not strict:
            return None
        if isinstance(error, Nonsense):
            raise
        raise Nonsense("its answer is not complete") from None
