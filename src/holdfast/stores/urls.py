"""URLs: the store that each names, and the options it takes. A new store joins by its line here."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ConfigError
from ..interrupts import let_through


class Scheme(NamedTuple):
    """A kind of store: its folder here, the extra that brings its driver, and its module there."""

    folder: str
    extra: str | None = None
    module: str = "backend"

    def module_in(self, world: str) -> str:
        """Returns the full name of the store's adapter for `world`: `_async` or `_sync`."""
        return f"{__package__}.{self.folder}.{world}.{self.module}"

    @property
    def doctor(self) -> str:
        """The full name of the module that examines the store."""
        return f"{__package__}.{self.folder}.doctor"

    @property
    def schema(self) -> str | None:
        """The full name of the module that has the tables, if it is a database."""
        return f"{__package__}.{self.folder}.schema" if self.folder in TABLES else None


TABLES = ("postgres", "mysql")
"""The folders of those that keep tables in a database."""

SCHEMES: dict[str, Scheme] = {
    "memory": Scheme("memory"),
    "sqlite": Scheme("sqlite"),
    "etcd": Scheme("etcd", "etcd"),
    "http": Scheme("http"),
    "https": Scheme("http"),
    "mariadb": Scheme("mysql", "mysql"),
    "mysql": Scheme("mysql", "mysql"),
    "postgresql": Scheme("postgres", "postgres"),
    "postgres": Scheme("postgres", "postgres"),
    "redis": Scheme("redis", "redis"),
    "rediss": Scheme("redis", "redis"),
    "redis+unix": Scheme("redis", "redis"),
    "redis+sentinel": Scheme("redis", "redis", "sentinel"),
    "redis+cluster": Scheme("redis", "redis", "cluster"),
    "redlock": Scheme("redlock", "redis"),
    "zookeeper": Scheme("zookeeper", "zookeeper"),
}

DATABASES = ("postgresql", "mysql", "mariadb")
"""The schemes that SQLAlchemy has too."""
REPEATED = dict.fromkeys(("postgresql", "postgres"), ("host", "port"))
"""By scheme, the options that are lists, and that SQLAlchemy writes once for each value."""

CLIENT = Scheme("redis", "redis", "client")
"""In place of a URL: a client of redis-py that the user already has."""


class Target(NamedTuple):
    """A URL taken apart: enough for a backend, and safe to show."""

    scheme: str
    rest: str
    """The part behind `scheme://`, without the query."""
    query: dict[str, str]

    def __str__(self) -> str:
        return f"{self.scheme}://{_without_credentials(self.rest, self.scheme == 'redlock')}"


def _without_credentials(rest: str, each: bool) -> str:
    """Returns `rest` without credentials. They may contain a comma, unless `each` host has its own."""
    authority, slash, path = rest.partition("/")
    parts = authority.split(",") if each else [authority]
    return ",".join(part.rpartition("@")[2] for part in parts) + slash + path


def is_client(thing: object) -> bool:
    """Tells whether `thing` may be a client of redis-py."""
    return any(base.__module__.partition(".")[0] == "redis" for base in type(thing).__mro__)


def _of_sqlalchemy(thing: object) -> str | None:
    """Returns the URL, with its password, of an `Engine` or `URL` of SQLAlchemy; else None."""
    if not any(base.__module__.partition(".")[0] == "sqlalchemy" for base in type(thing).__mro__):
        return None
    url: Any = getattr(thing, "url", thing)
    if not hasattr(url, "render_as_string"):
        return None
    return str(url.render_as_string(hide_password=False))


def parse(url: object) -> Target:
    if not isinstance(url, str):
        text = _of_sqlalchemy(url)
        if text is None:
            raise ConfigError(
                "a store's URL must be a str, a client of redis-py, or an engine or URL of SQLAlchemy, "
                f"not {type(url).__name__}"
            )
        url = text
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme not in SCHEMES and scheme.partition("+")[0] in DATABASES:
        scheme = scheme.partition("+")[0]  # as SQLAlchemy writes it, with the driver
    if not separator or not scheme:
        # The text is not shown: it may be a password that was pasted into the wrong place.
        kind = url.partition(":")[0].lower() if ":" in url else ""
        lacking = f"there is no // after {kind}:" if kind in SCHEMES else "it has no scheme"
        raise ConfigError(
            f"this is not a store's URL: {lacking}; write for example "
            "sqlite:///var/lib/app/locks.db or memory://"
        )
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ConfigError(f"unknown kind of store {scheme[:32]!r} in the URL; there are {known}")
    rest, _, query = rest.partition("?")
    if "#" in rest or "#" in query:
        raise ConfigError(f"a {scheme}:// URL has no fragment; write # as %23")
    if "@" in query:
        # Not shown: it is the rest of a password.
        raise ConfigError(f"in a {scheme}:// URL options come last; write ? in a password as %3F")
    return Target(scheme, rest, _query(scheme, query))


def _query(scheme: str, text: str) -> dict[str, str]:
    from urllib.parse import unquote_plus  # slow to import, and rarely needed

    options: dict[str, str] = {}
    for pair in filter(None, text.split("&")):
        name, equals, value = pair.partition("=")
        name = unquote_plus(name)
        value = unquote_plus(value)
        if equals and name in options and name in REPEATED.get(scheme, ()):
            value = f"{options[name]},{value}"
        elif not equals or name in options:
            raise ConfigError(f"option {name!r} of the {scheme}:// URL has no value, or two")
        options[name] = value
    return options


def merge_options(target: Target, options: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of `connect()` and of the URL, checked against those the store knows.

    `known` maps each option to its default; or to a type, if it has none. Those that are a number or a
    text may stand in the URL.
    """
    merged = {name: None if isinstance(value, type) else value for name, value in known.items()}
    for name, text in target.query.items():
        _refuse_unknown(target, name, known)
        if name in options:
            raise ConfigError(f"option {name!r} is given both in the URL and to connect()")
        merged[name] = _read(name, text, known[name])
    for name, value in options.items():
        _refuse_unknown(target, name, known)
        merged[name] = value
    return merged


def _read(name: str, text: str, default: object) -> str | float:
    """Returns the value of an option that stands in a URL."""
    kind = default if isinstance(default, type) else type(default)
    if kind is str:
        return text
    if kind not in (int, float):
        raise ConfigError(f"option {name!r} cannot be given in the URL; give it to connect()")
    try:
        try:
            return int(text)  # which has no limit, beyond which it would be rounded
        except ValueError as error:
            let_through(error)
            return float(text)
    except ValueError as error:
        let_through(error)
        raise ConfigError(f"option {name!r} must be a number, not {text!r:.40}") from None


def _refuse_unknown(target: Target, name: str, known: dict[str, Any]) -> None:
    if name not in known:
        choices = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"{target.scheme}:// has no option {name!r:.40}; it has: {choices}")
