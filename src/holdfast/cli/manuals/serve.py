"""The manual of `holdfast serve`."""

from . import STORE, Manual

MANUAL = Manual(
    synopsis="serve [--host HOST] [--port PORT] [--namespace NAMESPACE]… [--tls-cert FILE --tls-key "
    "FILE] [--config FILE] [--access-log FILE]",
    text="""\
Serves the locks of a store over HTTP, with JSON, to clients in any language. `/openapi.json` describes
all requests. Clients renew their leases by themselves; a request may wait for a lock. The service
keeps nothing of its own: several may run side by side on one store, and any of them may be stopped or
killed at any time.

It prints where it listens. Without tokens, which `holdfast token` makes, everybody who reaches it may
take and break every lock. So without them, and without TLS, it listens on this machine's own addresses
only.

SIGTERM and Ctrl-C stop it gracefully: those who wait are answered, and have left their queues.

The configuration is a file of TOML, with the names that `docs/service.md` lists: url, namespaces, host,
port and others. An option counts more than a variable such as $HOLDFAST_SERVE_PORT, and that more than
the file.
""",
    groups=(
        (
            "Options",
            {
                "--host HOST": "the address to listen on (default: 127.0.0.1)",
                "--port PORT": "the port to listen on (default: 7420); 0 is any that is free",
                "--config FILE": "a file of TOML with these and more settings",
                "--access-log FILE": "write a line of JSON for each request; - is the standard output",
                "--chaos-report FILE": "let the page open this file, which `holdfast chaos "
                "--html` wrote",
                "--metric-group SEPARATOR": "tell locks apart in /metrics by what stands before this "
                "in their names, such as : (default: all are one)",
            },
        ),
        (
            "Who may call it",
            {
                "--token-file PATH": "the token file; otherwise $HOLDFAST_SERVE_TOKEN_FILE, otherwise "
                "tokens.json in ~/.config/holdfast",
                "--tls-cert FILE": "the certificate, and those that vouch for it, as PEM",
                "--tls-key FILE": "its key, as PEM, without a password",
                "--behind-tls-proxy": "instead of a certificate: all callers come by way of a proxy "
                "that has TLS",
                "--allowed-host NAME": "a name by which callers call the service, beside localhost and "
                "addresses; may be given several times",
            },
        ),
        (
            STORE[0],
            {
                **STORE[1],
                "--namespace NAMESPACE": "a namespace that requests may name, and may be given several "
                "times; the first is that of requests which name none (default: holdfast)",
            },
        ),
    ),
    examples={
        "holdfast serve --url redis://localhost:6379/0": "serve the locks of a Redis to this machine",
        "curl --json '{\"wait\": 10}' http://127.0.0.1:7420/v1/locks/backup/acquire": "take a lock, "
        "and wait for it for 10 seconds",
    },
    statuses={"69": "the address cannot be listened on"},
)
