"""The manual of `holdfast lead`."""

from . import STORE, TIMES, Manual
from .run import LEASE, PROGRAMS

MANUAL = Manual(
    synopsis="lead NAME [--value TEXT] [--ttl 30s] -- COMMAND…",
    text="""\
Stands by until we are elected the leader NAME, and runs COMMAND while we lead. If the term ends before
COMMAND does, because the store cannot be reached or somebody broke it, COMMAND and all that it started
is ended before anybody else can lead; then we stand by again, and start COMMAND anew in our next term.

When COMMAND ends by itself we resign, and exit with its status. A signal that asks us to end is passed
on to COMMAND.

A store that cannot be reached while we stand by is asked again and again.

"""
    + TIMES,
    groups=(
        (
            "The leader",
            {"--value TEXT": "shown to those who observe the election (default: --label)"},
        ),
        LEASE,
        STORE,
        PROGRAMS,
    ),
    examples={
        "holdfast lead scheduler -- ./scheduler": "one scheduler of many machines",
        "holdfast lead primary --value 10.0.0.7:8080 -- ./serve": "with an address that others find by "
        "`holdfast show primary`",
    },
    statuses={
        "N": "COMMAND's own; 128+n if signal n ended it",
        "77": "the term ended, and COMMAND could not be ended",
        "126": "COMMAND cannot be run",
        "127": "COMMAND was not found",
    },
)
