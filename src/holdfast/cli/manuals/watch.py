"""The manual of `holdfast watch`."""

from . import JSON, STORE, TIMES, Manual

MANUAL = Manual(
    synopsis="watch [PREFIX] [--every 1s] [--json]",
    text="""\
Shows the locks of a store as they change, the most waited for first. On a terminal it is a full-screen
view: q or Ctrl-C ends it, arrows, j, k, space and b scroll. In a pipe, or with --json, it writes a JSON
object per line for each change: granted and ended of a holder, queued and left of a waiter, changed.
What is there at the start is told first, as granted and queued.

The store is asked at each interval; what comes and goes in between is not seen. A store that does not
answer, also at the start, is asked again until it does: unreachable and reached are told, too.

"""
    + TIMES,
    groups=(
        ("Options", {"--every TIME": "how often the store is asked (default: 1s)", **JSON}),
        STORE,
    ),
    examples={
        "holdfast watch": "full screen",
        "holdfast watch invoice: | jq -c 'select(.change == \"granted\")'": "the grants, as they come",
    },
    statuses={"128+n": "signal n ended it (130 for Ctrl-C)"},
)
