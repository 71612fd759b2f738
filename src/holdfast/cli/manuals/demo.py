"""The manual of `holdfast demo`."""

from . import STORE, TIMES, Manual

MANUAL = Manual(
    synopsis="demo [--ttl 3s] [--url URL]",
    text="""\
Two processes share an account, one lock and one file, on an embedded store in a temporary folder. A is
frozen (SIGSTOP) while it holds the lock, for longer than its lease; B takes over and writes; A wakes up
and writes too. It is shown twice: without a fence, and with one. About ten seconds.

"""
    + TIMES,
    groups=(("Options", {"--ttl TIME": "how long a lease is (default: 3s)"}), STORE),
    examples={
        "holdfast demo": "on a store of its own",
        "holdfast demo --ttl 1s --url redis://localhost": "on a Redis, and quicker",
    },
    statuses={"1": "something did not go as it is meant to"},
)
