"""The authority that knows its callers by bearer tokens, and those of the page by their sessions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

from ..answers import Scope
from ..authority import Caller, Role, Weight
from ..problems import Problem
from .badge import Badge
from .limits import Limits
from .origin import Origins, header
from .rate import Buckets
from .revocation import Revocation
from .roster import Roster, RosterUnavailable
from .sessions import Session, Sessions

ANYBODY = Badge(
    id="",
    digest="",
    name="anybody",
    role="admin",
    prefixes=("",),
    namespace=None,
    created=0.0,
    expires=None,
)
"""The badge of every caller while there are no tokens, which is on loopback only."""
CUT = "holdfast.cut"
"""Where a request's scope may have the function that closes its connection at once."""
CUSTOM_HEADER = b"holdfast-request"
"""A header that the page sends with every request: no form can, and no page of another origin may."""
_SAFE = frozenset({"GET", "HEAD"})
_FORWARDED = frozenset({b"x-forwarded-for", b"forwarded", b"via", b"x-real-ip"})


class KnownCaller:
    """The caller of one request, by its badge."""

    __slots__ = ("badge", "cut", "session")

    def __init__(
        self, badge: Badge, session: Session | None, cut: Callable[[], None] | None
    ) -> None:
        self.badge = badge
        self.session = session
        """The session by which it is known; None if it has shown its token."""
        self.cut = cut
        """Closes its connection."""

    @property
    def title(self) -> str:
        return f"{self.badge.name} ({self.badge.id})" if self.badge.id else self.badge.name

    @property
    def key(self) -> str:
        """What all callers with the same token have in common."""
        return self.badge.id


class Tokens:
    """The authority of a service with a token file; as long as there is none, everybody may do all."""

    def __init__(
        self, roster: Roster, sessions: Sessions, origins: Origins, limits: Limits | None = None
    ) -> None:
        self.roster = roster
        self.sessions = sessions
        self._origins = origins
        self._limits = limits = limits or Limits()
        self._requests = Buckets(limits.requests_per_second, limits.requests_at_once)
        self._failures = Buckets(limits.failures_per_second, 10 * limits.failures_per_second)
        self._revocation = Revocation()
        self._under_way: Counter[tuple[str, Weight]] = Counter()

    def identify(self, scope: Scope) -> Caller:
        """Returns the caller of a request; raises 401 if it is not known."""
        shown = [value for name, value in scope["headers"] if name == b"authorization"]
        caller: KnownCaller | None = None
        if self._open():
            caller = self._anybody(scope)
        elif shown:
            # Several at once are none: which of them a proxy has looked at, nobody knows.
            caller = self._recognise(_bearer_in(shown[0]) if len(shown) == 1 else "", scope)
        else:
            session = self.session_of(scope)
            if session is not None:
                self.check_page(scope)
                caller = self._caller(session.badge, scope, session)
        if caller is None:
            raise self.refuse(address_of(scope))
        return caller

    def recognise_text(self, text: str, scope: Scope) -> KnownCaller | None:
        """Returns the caller who shows the token `text`; None if that is not good."""
        return self._anybody(scope) if self._open() else self._recognise(text, scope)

    def _anybody(self, scope: Scope) -> KnownCaller:
        """Returns the caller of a service without tokens, unless a proxy lets it in from outside."""
        if any(name in _FORWARDED for name, _ in scope["headers"]):
            raise Problem(
                "forbidden",
                "this service has no tokens, so it serves its own machine only, and no proxy; make "
                "a token first: holdfast token create",
            )
        return self._caller(ANYBODY, scope)

    def _recognise(self, text: str, scope: Scope) -> KnownCaller | None:
        try:
            badge = self.roster.recognise(text)
        except RosterUnavailable:
            raise _closed() from None
        return None if badge is None else self._caller(badge, scope)

    def session_of(self, scope: Scope) -> Session | None:
        """Returns the session whose cookie the request has; None if there is none, or not any more."""
        cookies = [value for name, value in scope["headers"] if name == b"cookie"]
        if not cookies:
            return None
        try:
            return self.sessions.find("; ".join(one.decode("latin-1") for one in cookies))
        except RosterUnavailable:
            raise _closed() from None

    def _open(self) -> bool:
        """Tells whether there is no token file, and never was one."""
        try:
            self.roster.badges()
        except RosterUnavailable:
            raise _closed() from None
        return self.roster.open

    def _caller(self, badge: Badge, scope: Scope, session: Session | None = None) -> KnownCaller:
        return KnownCaller(badge, session, scope.get(CUT))

    def refuse(self, address: str) -> Problem:
        """Returns the answer to a caller who is not known; 429 if too many came from there."""
        if after := self._failures.take(address):
            return too_many("too many requests without a good token came from your address", after)
        return Problem(
            "unauthorized",
            "show a token that is good: Authorization: Bearer holdfast_…",
            headers=((b"www-authenticate", b'Bearer realm="holdfast"'),),
        )

    def may(self, caller: Caller, role: Role, namespace: str, name: str) -> bool:
        """Tells whether the caller's token has the role and covers the name."""
        badge = _badge(caller)
        return badge.allows(role) and badge.covers(namespace, name)

    def may_see_metrics(self, caller: Caller) -> bool:
        """Tells whether the caller may see figures of the whole service: for `/metrics`."""
        badge = _badge(caller)
        everything = badge.namespace is None and "" in badge.prefixes
        return badge.role == "metrics" or (badge.allows("metrics") and everything)

    def prefixes(self, caller: Caller, namespace: str) -> Sequence[str]:
        """Returns the prefixes of the names that the caller may see, none of them inside another."""
        badge = _badge(caller)
        if not badge.allows("read") or badge.namespace not in (None, namespace):
            return ()
        kept: list[str] = []
        for prefix in sorted(badge.prefixes):
            if not (kept and prefix.startswith(kept[-1])):
                kept.append(prefix)
        return tuple(kept)

    def namespace(self, caller: Caller) -> str | None:
        """Returns the namespace that the caller's token is for; None if it is for all."""
        return _badge(caller).namespace

    def begin(self, caller: Caller, weight: Weight) -> None:
        """Counts what the caller begins; raises 429 if that is too much."""
        token_id = _badge(caller).id
        limits = self._limits
        if weight == "request":
            if token_id and (after := self._requests.take(token_id)):
                raise too_many("your token sends requests faster than it may", after)
            return
        most = limits.most_waits if weight == "wait" else limits.most_listeners
        if self._under_way[token_id, weight] >= most:
            what = "requests that wait" if weight == "wait" else "listeners"
            raise too_many(f"your token has {most} {what}, which is all that it may have", 1.0)
        self._under_way[token_id, weight] += 1
        known = cast(KnownCaller, caller)
        if known.cut is not None:
            self._revocation.watch(id(known), lambda: self.lasts(known), known.cut)

    def end(self, caller: Caller, weight: Weight) -> None:
        """Notes that what the caller began has ended."""
        if weight != "request":
            self._revocation.forget(id(caller))
            key = (_badge(caller).id, weight)
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]

    def limit_places(self, caller: Caller, places: int) -> None:
        """Raises 429 if a caller who keeps that many places in queues may have no further one."""
        most = self._limits.most_waits
        if places >= most:
            raise too_many(f"your token keeps {most} places in queues, which is all", 1.0)

    def lasts(self, caller: KnownCaller) -> bool:
        """Tells whether the caller would still be let in."""
        badge = caller.badge
        try:
            badges = self.roster.badges()
            if not badge.id:
                return self.roster.open
            if caller.session is not None and not self.sessions.lasts(caller.session):
                return False
            return badges.get(badge.id) == badge and self.roster.find(badge.id) is not None
        except RosterUnavailable:
            return False

    def describe(self, caller: Caller) -> dict[str, Any]:
        """Returns what the caller may know of itself, for `/v1/me`."""
        badge = _badge(caller)
        return {
            "caller": badge.name,
            "id": badge.id or None,
            "role": badge.role,
            "prefixes": list(badge.prefixes),
            "namespace": badge.namespace,
            "expires": badge.expires,
            "session": cast(KnownCaller, caller).session is not None,
        }

    def check_page(self, scope: Scope) -> None:
        """Refuses what a browser may have been made to send with its cookie by another page."""
        if scope["method"] in _SAFE:
            return
        if header(scope, CUSTOM_HEADER) is None or not self._origins.own(scope):
            raise Problem(
                "forbidden",
                "with a session in place of a token, a request that changes anything needs the "
                "header Holdfast-Request, and to come from the page itself",
            )


def _bearer_in(shown: bytes) -> str:
    """Returns the token in an `Authorization` header; empty if there is none."""
    scheme, _, text = shown.decode("latin-1").partition(" ")
    return text.strip(" ") if scheme.lower() == "bearer" else ""


def _badge(caller: Caller) -> Badge:
    return cast(KnownCaller, caller).badge


def _closed() -> Problem:
    return Problem(
        "closed", "the service cannot tell who its callers are, until its operator mends that"
    )


def address_of(scope: Scope) -> str:
    """Returns the address that the request came from; empty if it is not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def too_many(detail: str, after: float) -> Problem:
    """Returns the answer to a caller who may ask again `after` so many seconds."""
    seconds = str(max(math.ceil(after), 1)).encode()
    return Problem("too-many", detail, headers=((b"retry-after", seconds),))
