"""The grant: how an attempt that is admitted becomes a holder, and gets its token.

*The token is a zxid at which we had become a holder*, after every entry that could not hold the lock
along with us had gone.

- That is the zxid of our creation, if the read that follows it shows us admitted and no child of the
  lock came or went since: the lock's pzxid is still our czxid.
- Later, for an attempt that holds the lock alone, it is the pzxid of a read that shows us first: at
  least the deletion that let us in, and below our own deletion, which every later token is above.
- Attempts that share the lock could read the same number. They write to their own znode, on the
  condition that it is as they left it, and the zxid of that write is the token.

*Another's clock never makes us a holder.* The read may come from a server that was cut off. But it is
used only while our last answered *write* still vouches for the session, and so for our znode; the
engine counts from that write. A write to our znode follows at once: it shows the token, and would
fail.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...model import Granted
from .attempt import CREATING, HELD, MINTED_HERE, MINTING, Attempt
from .creation import Creation
from .requests import BadVersionError, Unanswered, get_data, set_data


class Grants(Creation):
    """The steps that make an attempt a holder. Called under the mutex."""

    def _admit(self, attempt: Attempt, pzxid: int) -> None:
        """Grants the lock, after a read that showed us admitted and `pzxid` as the latest change."""
        if pzxid == attempt.czxid and attempt.state == CREATING:
            self._hold(attempt, attempt.czxid)
        elif attempt.exclusive:
            self._hold(attempt, pzxid)
            self._show_token(attempt)
        else:
            attempt.state = MINTING
            self._advance(attempt)

    def _mint(self, attempt: Attempt) -> None:
        """Writes to our own znode, if it is as it was created; the zxid of that is the token."""
        self._unwatch(attempt)
        attempt.in_flight = True
        sent_at = self.clock.now()
        data = MINTED_HERE + attempt.label
        self._send(attempt, set_data(attempt.path, data, 0), partial(self._on_minted, sent_at))

    def _on_minted(self, sent_at: float, attempt: Attempt, value: Any, error: Any) -> None:
        attempt.in_flight = False
        if error is None:
            if attempt.state == MINTING:
                self._hold(attempt, value.mzxid, sent_at)
            else:
                attempt.freed = True
                self._advance(attempt)
        elif isinstance(error, BadVersionError):
            # We wrote it earlier, and the reply was lost: nobody else writes there.
            attempt.in_flight = True
            self._send(attempt, get_data(attempt.path), partial(self._on_minted_earlier, sent_at))
        elif isinstance(error, Unanswered):
            return
        elif attempt.state == MINTING:
            self._lose(attempt)

    def _on_minted_earlier(self, sent_at: float, attempt: Attempt, value: Any, error: Any) -> None:
        self._on_minted(sent_at, attempt, value[1] if error is None else None, error)

    def _show_token(self, attempt: Attempt) -> None:
        """Writes the token to our znode, so that everybody sees it and the next waiter wakes up."""
        data = b"%d" % attempt.token + attempt.label
        self._send(attempt, set_data(attempt.path, data, 0), self._on_token_shown)

    def _on_token_shown(self, attempt: Attempt, value: Any, error: Any) -> None:
        if error is None or isinstance(error, BadVersionError):
            attempt.token_shown = True  # or it was before, and the reply was lost
        elif not isinstance(error, Unanswered) and attempt.state == HELD:
            self._lose(attempt)

    def _hold(self, attempt: Attempt, token: int, sent_at: float | None = None) -> None:
        """Makes `attempt` a holder, and tells its caller or its waiter.

        A waiter is handed the lock for the claim window, and confirms it by a renewal.
        """
        first_ttl = attempt.ttl if attempt.on_result is not None else attempt.claim_window
        self._unwatch(attempt)
        attempt.state = HELD
        attempt.token = token
        attempt.token_shown = not (attempt.exclusive and token != attempt.czxid)
        attempt.expires_at = (self.clock.now() if sent_at is None else sent_at) + first_ttl
        attempt.expiry_timer = partial(self._expire_if_due, attempt)
        self._alarm.at(attempt.expires_at, attempt.expiry_timer)
        if attempt.on_result is not None:
            since = attempt.session.vouch(attempt.sent_at)
            self._return_result(attempt, Granted(token, attempt.ttl, False, since))
        else:
            attempt.ticket.tell(Granted(token, attempt.ttl, True))
        self._notify_minted(attempt)
