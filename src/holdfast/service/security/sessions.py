"""Sessions of the page: a cookie in place of the token, so that no script ever has the token.

A session is not kept anywhere. Its cookie says which token it is of, when it ends, and a random number;
a signature with the session key vouches for that. The digest of the token is signed along, so a session
ends with its token, at once, wherever that is revoked. Each log-in makes another session: nobody can
prepare one for somebody else to log in to.

Services with the same key and token file accept each other's sessions. What was logged out is
remembered in a file beside them until it would have ended by itself.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from .badge import Badge
from .logged_out import LoggedOut
from .roster import Roster

LIFETIME = 12 * 3600.0
"""Seconds after which a person has to log in again."""
_SHAPE = re.compile(r"([0-9A-Za-z]{10})\.([0-9]{1,12})\.([0-9a-f]{32})\.([0-9a-f]{64})", re.ASCII)


class Session(NamedTuple):
    """A session whose cookie was found to be good."""

    badge: Badge
    number: str
    ends: int
    """Seconds since the epoch."""


class Sessions:
    """The sessions that are signed with one key."""

    def __init__(
        self,
        key: bytes,
        roster: Roster,
        logged_out: LoggedOut,
        secure: bool,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`secure`: the page is reached by TLS, ours or a proxy's."""
        self._key = key
        self._roster = roster
        self._logged_out = logged_out
        self._secure = secure
        self._now = now
        # Cookies are shared by all ports of a host, so services with other keys have other cookies.
        tag = sha256(b"holdfast session cookie" + key).hexdigest()[:8]
        self.cookie = f"__Host-holdfast-{tag}" if secure else f"holdfast-{tag}"

    def begin(self, badge: Badge) -> str:
        """Returns the `Set-Cookie` header that begins a session of this token."""
        lasts = LIFETIME
        if badge.expires is not None:
            lasts = min(lasts, badge.expires - self._now())
        payload = f"{badge.id}.{int(self._now() + lasts)}.{secrets.token_hex(16)}"
        return self._header(f"{payload}.{self._sign(payload, badge)}", int(lasts))

    def find(self, cookies: str) -> Session | None:
        """Returns the session that a `Cookie` header shows; None if there is none, or not any more."""
        values = [
            value
            for name, _, value in (part.strip().partition("=") for part in cookies.split(";"))
            if name == self.cookie
        ]
        if len(values) != 1:  # another of that name was put there by somebody else
            return None
        shape = _SHAPE.fullmatch(values[0])
        if shape is None:
            return None
        token_id, ends, number, signature = shape.groups()
        badge = self._roster.find(token_id)
        if badge is None or int(ends) <= self._now():
            return None
        payload = f"{token_id}.{ends}.{number}"
        if not hmac.compare_digest(self._sign(payload, badge), signature):
            return None
        return None if number in self._logged_out else Session(badge, number, int(ends))

    def lasts(self, session: Session) -> bool:
        """Tells whether a session that was found still counts, if its token does."""
        return session.ends > self._now() and session.number not in self._logged_out

    def end(self, session: Session) -> None:
        """Ends a session, here and wherever the same files are used."""
        self._logged_out.add(session.number, session.ends)

    def removal(self) -> str:
        """Returns the `Set-Cookie` header that removes the cookie."""
        return self._header("", 0)

    def _sign(self, payload: str, badge: Badge) -> str:
        return hmac.new(self._key, f"{payload}.{badge.digest}".encode(), sha256).hexdigest()

    def _header(self, value: str, lasts: int) -> str:
        secure = "; Secure" if self._secure else ""
        return f"{self.cookie}={value}; Max-Age={lasts}; Path=/; HttpOnly; SameSite=Strict{secure}"
