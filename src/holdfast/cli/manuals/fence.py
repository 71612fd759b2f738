"""The manual of `holdfast fence`."""

from . import JSON, STORE, Manual

MANUAL = Manual(
    synopsis="fence check RESOURCE TOKEN [--json]",
    text="""\
Shows TOKEN to a fence that is kept in the store which --url names. The fence remembers the highest
token it has seen for RESOURCE; an older one is refused, with exit status 1, and the line on stderr
names the highest. It is for scripts under `holdfast run`: check just before each step that would do
harm if somebody else had the lock by now.

The check is a step of its own, so a script that is frozen between the check and the write still writes
late. Where the resource can check the token itself, in the same step as the write, let it.

The fence is a table in PostgreSQL, MySQL or MariaDB, keys in a Redis, a file beside that of the
embedded store, and at http:// that of the lock service. It need not be the store that has the lock.
""",
    groups=(("Options", JSON), STORE),
    examples={
        'holdfast fence check backups "$HOLDFAST_TOKEN" && rsync -a data/ backup:': "in a script "
        "that `holdfast run` runs",
    },
    statuses={"1": "the token is stale, and nothing may be written"},
)
