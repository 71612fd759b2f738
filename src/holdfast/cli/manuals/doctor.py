"""The manual of `holdfast doctor`."""

from . import JSON, STORE, TIMES, Manual

MANUAL = Manual(
    synopsis="doctor [--timeout TIME] [--json]",
    text=f"""\
Looks at what the guarantees of a store rest on: the settings of its servers, how many there are and
whether they agree, what this user may do, clocks, round trips. Each finding is ok, a note, a warning
or wrong, with why it matters and how to mend it. Wrong means that a guarantee does not hold.

Nothing of yours is changed. On Redis, etcd and an embedded store that exists, a lock in a namespace of
its own is tried out and removed; on ZooKeeper a few znodes are; on PostgreSQL a message is sent.

{TIMES}
""",
    groups=(
        (
            "Options",
            {
                "--timeout TIME": "how long the store may take to answer (default: 10s)",
                **JSON,
            },
        ),
        STORE,
    ),
    examples={
        "holdfast doctor --url redis://db1:6379": "examine one Redis",
        "holdfast doctor --json | jq -r '.[] | select(.level == \"wrong\") | .what'": "only what is "
        "wrong, for a script",
    },
    statuses={"1": "something is wrong"},
)
