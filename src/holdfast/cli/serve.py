"""`holdfast serve`: the lock service, for clients in any language."""

from __future__ import annotations

import os
import sys
from typing import Any

from ..errors import ConfigError
from ..refusals import lacks
from . import statuses
from .arguments import STORE_OPTIONS, read
from .report import say
from .store import place_of

OPTIONS = {
    **STORE_OPTIONS,
    "--host": "127.0.0.1",
    "--port": "7420",
    "--token-file": "PATH",
    "--tls-cert": "FILE",
    "--tls-key": "FILE",
    "--behind-tls-proxy": "",
    "--allowed-host": "NAME",
    "--config": "FILE",
    "--access-log": "FILE",
    "--chaos-report": "FILE",
    "--metric-group": ":",
}
NOT_TEXTS = ("--behind-tls-proxy", "--allowed-host")
"""Options that are no setting of the same name with one value."""


def main(words: list[str]) -> int:
    """Serves until a signal stops it, and returns the exit status."""
    arguments = read(words, OPTIONS)
    options, namespaces = arguments.options, arguments.every("--namespace")
    try:
        from ..service import configuration, server
        from ..service.app import create_app
        from ..service.security.setup import secure
    except ImportError as error:
        needed = f"the package {error.name}"
        raise ConfigError(lacks("`holdfast serve`", needed, "server")) from error
    file: dict[str, Any] = {}
    if "--config" in options:
        from .config import read_toml

        file = read_toml(options["--config"])
    given: dict[str, Any] = {}
    url, namespace = place_of(options)
    if url is not None:
        given["url"] = url
    if namespaces or namespace is not None:
        given["namespaces"] = tuple(namespaces) or (namespace,)
    for option in OPTIONS.keys() - STORE_OPTIONS.keys() - {"--config", *NOT_TEXTS}:
        if option in options:
            given[option.strip("-").replace("-", "_")] = options[option]
    if "--behind-tls-proxy" in options:
        given["behind_tls_proxy"] = True
    if hosts := arguments.every("--allowed-host"):
        given["allowed_hosts"] = tuple(hosts)
    settings = configuration.settings_of(given, os.environ, file)
    security = secure(settings)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which store it is stands in the line below
        app = create_app(
            settings,
            authority=security.tokens,
            middleware=security.middleware,
            operations=security.operations,
        )
    try:
        listener = server.listen(settings.host, settings.port)
    except server.CannotListen as error:
        say(str(error))
        return statuses.UNREACHABLE
    store = app.service.first_store.locks.url
    scheme = "http" if settings.tls_cert is None else "https"

    def announce() -> None:
        sys.stdout.write(f"holdfast: serving {store} at {server.where(listener, scheme)}\n")
        sys.stdout.flush()

    where_store = (
        "" if settings.url else "; name another store with --url, --store or $HOLDFAST_URL"
    )
    if where_store:
        say(f"the locks in {store} serve this machine and user only{where_store}")
    server.serve(app, listener, announce, **security.server_options)
    return 0
