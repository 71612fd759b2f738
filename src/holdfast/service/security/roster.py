"""The roster: the badges of a running service, as the token file has them now.

It looks at the file before each use, so that a token that was revoked is refused by the next request. A
file that is damaged, unsafe or gone lets nobody in: the callers are told that the service cannot tell
who they are, not that their tokens are wrong.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable

from ...errors import ConfigError
from . import token_file
from .badge import Badge
from .bearer import Bearer, parse
from .private_files import Mark, Unread, mark_of

_log = logging.getLogger("holdfast.service.security")
_NOBODY = "0" * 64
"""A digest that no token has, compared with where there is no badge: that takes as long."""


class RosterUnavailable(Exception):
    """Raised when the token file cannot be used, so nobody is let in until it is mended."""


class Roster:
    """The badges that count now. Without a token file, since this service started, it is open."""

    def __init__(self, path: str, now: Callable[[], float] = time.time) -> None:
        """Reads the file. Raises ConfigError if there is one that cannot be used."""
        self.path = path
        self._now = now
        self._badges: dict[str, Badge] = {}
        self._mark: Mark | None = None
        self._fault = ""
        self.open = True
        """True while there has never been a token file: then everybody who can connect may do all."""
        if mark_of(path) is not None:
            self._load()
            if self._fault:
                raise ConfigError(self._fault)

    def badges(self) -> dict[str, Badge]:
        """Returns the badges by id, those that have expired too; raises RosterUnavailable."""
        mark = mark_of(self.path)
        if mark != self._mark and (mark is not None or not self.open):
            self._load()
        if self._fault:
            raise RosterUnavailable(self._fault)
        return self._badges

    def usable(self) -> int:
        """Returns the number of tokens that have not expired."""
        now = self._now()
        return sum(not badge.expired(now) for badge in self.badges().values())

    def find(self, token_id: str) -> Badge | None:
        """Returns the badge of that id, unless it has expired."""
        badge = self.badges().get(token_id)
        return None if badge is None or badge.expired(self._now()) else badge

    def recognise(self, text: str) -> Badge | None:
        """Returns the badge of a bearer token; None for one that is unknown, revoked or expired."""
        badges = self.badges()
        bearer = parse(text)
        if bearer is None:
            return None
        return self._match(bearer, badges)

    def _match(self, bearer: Bearer, badges: dict[str, Badge]) -> Badge | None:
        badge = badges.get(bearer.id)
        digest = _NOBODY if badge is None else badge.digest
        same = hmac.compare_digest(bearer.digest, digest)
        if badge is None or not same or badge.expired(self._now()):
            return None
        return badge

    def _load(self) -> None:
        self.open = False
        self._badges = {}
        # Before it is read, so that what takes its place meanwhile is looked at again. Mode and owner
        # are in its time of change.
        before = mark_of(self.path)
        try:
            self._badges, self._mark = token_file.load(self.path)
            self._fault = ""
            _log.info("the token file %s was read: %d tokens", self.path, len(self._badges))
        except FileNotFoundError:
            self._mark = None
            self._fail(f"the token file {self.path} is gone")
        except Unread as error:
            self._mark = None  # the same file may be read by the next look
            self._fail(str(error))
        except ConfigError as error:
            self._mark = before
            self._fail(str(error))

    def _fail(self, fault: str) -> None:
        if fault != self._fault:
            _log.error("nobody is let in: %s", fault)
        self._fault = fault
