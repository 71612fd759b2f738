"""The manual of `holdfast break`."""

from . import JSON, STORE, Manual

MANUAL = Manual(
    synopsis="break NAME [--yes] [--token-above N] [--json]",
    text="""\
Takes the lock NAME away from its holders, and gives it to the next who waits. On a terminal it shows
who holds it and asks first; elsewhere it needs --yes. It is audited, and the token rises.

A holder finds out at its next renewal; on some stores, at once. Until then it believes that it holds
the lock, and only a fence stops its writes. A holder that has died needs no breaking: its lease ends by
itself.

--token-above N is for a store that has lost its memory (wiped, restored, its clock set back) while a
fence has not: the lock's tokens go on above N, what the fence has seen, even if nobody holds it. etcd
and ZooKeeper cannot raise their tokens: if those are not above N, it is refused and nothing is done.
""",
    groups=(
        ("Options", {"--yes": "do not ask", "--token-above N": "later tokens are above N", **JSON}),
        STORE,
    ),
    examples={
        "holdfast break invoice:42": "asks first",
        "holdfast break invoice:42 --yes": "in a script",
        "holdfast break invoice:42 --yes --token-above 1742": "a fence has seen 1742",
    },
    statuses={"1": "nothing was done: nobody held it, it changed hands, or the answer was no"},
)
