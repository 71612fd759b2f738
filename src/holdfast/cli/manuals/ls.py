"""The manual of `holdfast ls`."""

from . import JSON, STORE, Manual

MANUAL = Manual(
    synopsis="ls [PREFIX] [--json]",
    text="""\
Lists the locks that are held or waited for, by name; with PREFIX, those whose names start with it. Each
has its token, how long it has been held, what remains of the lease unless it is renewed, how many wait,
and who holds it. The bar is full at 30 seconds or more.
""",
    groups=(("Options", JSON), STORE),
    examples={
        "holdfast ls": "all of them",
        "holdfast ls invoice:": "those whose names start so",
        "holdfast ls --json | jq -r '.[] | select(.waiters != []) | .name'": "the names of those "
        "that somebody waits for",
    },
    statuses={},
)
