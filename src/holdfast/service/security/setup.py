"""The security of one service, put together from its settings."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..app import Middleware
from ..operations import Operation
from ..settings import Settings
from . import session_key, token_file
from .connection import guarded_protocol
from .exposure import check_certificate, check_exposure
from .guard import Guard
from .logged_out import LoggedOut
from .login import LogIn
from .origin import Origins
from .roster import Roster
from .sessions import Sessions
from .tokens import Tokens


@dataclass(frozen=True)
class Security:
    """The parts of a service that keep it safe."""

    tokens: Tokens
    """Its authority."""
    middleware: Sequence[Middleware]
    operations: Sequence[Operation]
    """The operations beside those on locks: to log in and out."""
    server_options: dict[str, Any]
    """Options of uvicorn."""


def secure(settings: Settings) -> Security:
    """Returns the security of a service; raises ConfigError if it must not listen where it should."""
    tls = settings.tls_cert is not None
    path = settings.token_file or token_file.default_path()
    roster = Roster(path)
    usable = 0 if roster.open else roster.usable()
    check_exposure(settings.host, usable, tls, settings.behind_tls_proxy)
    https = tls or settings.behind_tls_proxy
    origins = Origins(settings.allowed_hosts, https)
    # A service without tokens makes no files. Should it get tokens, sessions end with this process.
    key = secrets.token_bytes(session_key.LENGTH)
    if not roster.open:
        key = session_key.for_service(path)
    tokens = Tokens(roster, Sessions(key, roster, LoggedOut(path), https), origins, settings)
    server: dict[str, Any] = {
        "http": guarded_protocol(settings),
        "ws": "none",
        "timeout_keep_alive": settings.idle_within,
        "proxy_headers": settings.behind_tls_proxy,
        "forwarded_allow_ips": list(settings.proxies),
    }
    if settings.tls_cert is not None and settings.tls_key is not None:
        check_certificate(settings.tls_cert, settings.tls_key)
        server.update(ssl_certfile=settings.tls_cert, ssl_keyfile=settings.tls_key)
    guard = partial(Guard, origins=origins, head_limit=settings.head_limit)
    return Security(tokens, (guard,), LogIn(tokens).operations(), server)
