"""Logging in to the page, and out: `POST /v1/session` with the token in the body, and `DELETE`.

The token goes into no URL, which browsers and proxies remember, and into no storage that scripts can
read; the answer has a cookie that they cannot read either.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..answers import Answer
from ..call import Call
from ..field_checks import text
from ..fields import Field, Form
from ..operations import Operation
from ..problems import Problem
from . import audit
from .rate import Buckets
from .tokens import Tokens, address_of, too_many

_PATH = "/v1/session"
_MOST = 1024
"""Bytes that the body of a log-in may have."""
_BODY = Form(Field("token", text, {"type": "string", "maxLength": _MOST}, text="a bearer token"))


class LogIn:
    """Logging in to the page of one service."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._log_ins = Buckets(1 / 6, 20)

    def operations(self) -> Sequence[Operation]:
        """Returns how a session begins and ends."""
        return (
            Operation(
                "beginSession",
                "POST",
                _PATH,
                "Log in to the page: the answer has a cookie",
                self._begin,
                _BODY,
                answers={200: "Me"},
                problems=(400, 401, 403, 429),
                namespaced=False,
                public=True,
            ),
            Operation(
                "endSession",
                "DELETE",
                _PATH,
                "Log out of the page",
                self._end,
                answers={200: "Nothing"},
                problems=(403,),
                namespaced=False,
                public=True,
            ),
        )

    async def _begin(self, call: Call) -> Answer:
        """Begins a session: always a new one, whatever cookie the browser had before."""
        tokens, scope = self._tokens, call.scope
        address = address_of(scope)
        caller = tokens.recognise_text(await _token_in(call), scope)
        if caller is None:
            refusal = tokens.refuse(address)
            if refusal.kind == "unauthorized":  # too many of them would fill the log
                audit.write("log-in-refused", address=address)
            raise refusal
        if caller.badge.id:
            if after := self._log_ins.take(caller.badge.id):
                raise too_many("your token logs in too often", after)
            if (before := tokens.session_of(scope)) is not None:
                tokens.sessions.end(before)
            audit.write("log-in", by=caller.badge.name, token_id=caller.badge.id, address=address)
            cookie = tokens.sessions.begin(caller.badge)
            return Answer(200, tokens.describe(caller), ((b"set-cookie", cookie.encode()),))
        return Answer(200, tokens.describe(caller))

    async def _end(self, call: Call) -> Answer:
        """Ends the session whose cookie the request has."""
        tokens, scope = self._tokens, call.scope
        session = tokens.session_of(scope)
        if session is not None:
            tokens.check_page(scope)
            tokens.sessions.end(session)
        return Answer(200, {}, ((b"set-cookie", tokens.sessions.removal().encode()),))


async def _token_in(call: Call) -> str:
    """Returns the token in the body of a log-in. What was sent in its place is not repeated."""
    body = await call.read_json(_MOST)
    if not isinstance(body, dict) or set(body) != {"token"} or not isinstance(body["token"], str):
        raise Problem("bad-input", 'the body of a log-in is {"token": "holdfast_…"}')
    shown: str = body["token"]
    return shown.strip()
