"""The manual of `holdfast show`."""

from . import JSON, STORE, Manual

MANUAL = Manual(
    synopsis="show NAME [--json]",
    text="""\
Shows one lock: its token, who holds it since when, what remains of each lease, and who waits, in the
order in which they will be granted it. A lock that nobody holds is shown as free.
""",
    groups=(("Options", JSON), STORE),
    examples={
        "holdfast show invoice:42": "for people",
        "holdfast show invoice:42 --json | jq .token": "for programs",
    },
    statuses={},
)
