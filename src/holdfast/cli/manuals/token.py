"""The manual of `holdfast token`."""

from . import JSON, Manual

MANUAL = Manual(
    synopsis="token create --role ROLE --prefix PREFIX… [--namespace NAMESPACE] [--expires TIME] "
    "[--name TEXT] | list | revoke ID… | revoke --expired",
    text="""\
Makes, lists and revokes the bearer tokens by which `holdfast serve` knows its clients. A new token is
printed once; the token file keeps its digest only. A service that runs sees each change of the file
with its next request.

A token has a role. read looks at locks; hold takes them, too; admin also releases them by force;
metrics sees /metrics and nothing else. It is for locks, and resources of fences, whose names start with
one of its prefixes. Others do not exist for its bearer.

Do not confuse it with a fencing token, which is a number.

TIME is a number and ms, s, m, h or d, such as 30s or 1.5m.
""",
    groups=(
        (
            "Options of create",
            {
                "--role ROLE": "read, hold, admin or metrics",
                "--prefix PREFIX": "the beginning of the names that it is for; may be given several "
                "times; '' is every name",
                "--namespace NAMESPACE": "only in this namespace; otherwise in all that the service "
                "has",
                "--expires TIME": "let it end after so long; otherwise it lasts until it is revoked",
                "--name TEXT": "whose it is, for lists and logs (default: your user name)",
            },
        ),
        ("Options of revoke", {"--expired": "all tokens that have expired"}),
        (
            "Options of all three",
            {
                "--token-file PATH": "the token file; otherwise $HOLDFAST_SERVE_TOKEN_FILE, otherwise "
                "tokens.json in ~/.config/holdfast",
                **JSON,
            },
        ),
    ),
    examples={
        "holdfast token create --role hold --prefix billing: --expires 90d": "a token for a program "
        "that takes locks such as billing:42",
        "holdfast token create --role admin --prefix ''": "a token for all that there is",
        "holdfast token list": "the ids and what each token is for",
        "holdfast token revoke h0RvCq2xZk": "by the id, at once",
    },
    statuses={},
    uses_store=False,
)
