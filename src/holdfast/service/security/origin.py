"""Where a request comes from: which host its sender believes to speak to, and which page sent it.

**DNS rebinding.** A hostile page whose name was made to point at our address is of the same origin to
its browser, and may read what we say. But the name is in the `Host` header. So we answer only to names
that are ours. An address in place of a name is no such trick: the browser has really connected to it.

**Other origins.** A page of another origin, even on another port of this machine, may send us requests.
Browsers name its origin in `Origin`, or say `cross-site` in `Sec-Fetch-Site`. Both are refused, reading
or writing, with a token or without. No header of ours ever invites another origin (CORS). What a link
may open is the page itself: it shows nothing until it has asked, and that is of our own origin.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from ..answers import Scope
from ..problems import Problem

LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback"})
PROBES = frozenset({"/healthz", "/readyz"})
"""Paths that tell nothing but whether we work: whoever probes may call us as it likes."""
MOST_ACCEPTED = 1000
_DEFAULT_PORTS = {"http": "80", "https": "443"}


class Origins:
    """The names that a service answers to."""

    def __init__(self, names: Iterable[str] = (), https: bool = False) -> None:
        """`names`: those that the operator allows beside loopback. `https`: TLS, ours or a proxy's."""
        self._names = LOOPBACK_NAMES | {name.lower().rstrip(".") for name in names}
        self._https = https
        self._accepted: set[str] = set()
        """`Host` headers that were found to be good."""

    def check(self, scope: Scope) -> None:
        """Raises `Problem` if the request must not be answered; `its_own` tells of the rest."""
        if scope["path"] in PROBES:
            return
        host = self._host(scope)
        origin = header(scope, b"origin")
        if origin is not None and not self._same(origin, host, scope):
            raise Problem("forbidden", "requests of pages of another origin are refused")
        site = header(scope, b"sec-fetch-site")
        if site in ("cross-site", "same-site") and not _opens_page(scope):
            raise Problem("forbidden", "requests of pages of another origin are refused")

    def own(self, scope: Scope) -> bool:
        """Tells whether a browser says that our own page has sent the request, which `check` passed."""
        return (
            header(scope, b"origin") is not None
            or header(scope, b"sec-fetch-site") == "same-origin"
        )

    def _host(self, scope: Scope) -> str:
        """Returns the `Host` header; raises `Problem` if it names no host of ours."""
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            raise Problem("bad-request", "a request has exactly one Host header")
        host: str = hosts[0].decode("latin-1").lower()
        if host in self._accepted:
            return host
        name = _name_of(host)
        if name is None or not (name in self._names or _is_address(name)):
            raise Problem(
                "misdirected",
                "this service does not answer to the name in the Host header; its operator can "
                "allow it by --allowed-host",
            )
        if len(self._accepted) < MOST_ACCEPTED:
            self._accepted.add(host)
        return host

    def _same(self, origin: str, host: str, scope: Scope) -> bool:
        """Tells whether `origin` is the one of our page, when the browser calls us `host`."""
        scheme, separator, netloc = origin.lower().partition("://")
        wanted = "https" if self._https or scope.get("scheme") == "https" else "http"
        if not separator or scheme != wanted:
            return False
        port = _DEFAULT_PORTS[scheme]
        return netloc.removesuffix(f":{port}") == host.removesuffix(f":{port}")


def header(scope: Scope, name: bytes) -> str | None:
    """Returns the value of a header; None if there is none, and nonsense if there are several."""
    values = [value for key, value in scope["headers"] if key == name]
    if not values:
        return None
    return values[0].decode("latin-1") if len(values) == 1 else "\0"


def _name_of(host: str) -> str | None:
    """Returns the host in `host[:port]`, without its port; None if that is no host."""
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    if name is None or (port is None and host.endswith(":")):
        return None
    rest = host.removeprefix(f"[{name}]") if ":" in name else host.removeprefix(name)
    return name.rstrip(".") if rest in ("", f":{port}") else None


def _is_address(name: str) -> bool:
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return not (address.is_unspecified or address.is_multicast)


def _opens_page(scope: Scope) -> bool:
    """Tells whether a person follows a link to the page, which is the same for everybody."""
    return (
        scope["method"] in ("GET", "HEAD")
        and header(scope, b"sec-fetch-mode") == "navigate"
        and header(scope, b"sec-fetch-dest") == "document"
        and not scope["path"].startswith(("/v1/", "/metrics"))
    )
