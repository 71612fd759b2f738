"""The manual of `holdfast run`."""

from . import STORE, TIMES, Group, Manual

LEASE: Group = (
    "The lease",
    {
        "--ttl TIME": "how long the lock outlives us if this machine dies (default: 30s); it "
        "is renewed while COMMAND runs",
        "--grace TIME": "from SIGTERM to SIGKILL when the lease is lost (default: 5s), at "
        "most what is left of the lease",
        "--leftovers WHAT": "processes that run on when COMMAND itself has ended: wait for "
        "them (default), end them, or leave them, without the lock",
        "--label TEXT": "shown to those who look at who holds the lock",
    },
)
"""The options of every command that runs another."""

PROGRAMS: Group = (
    "For programs",
    {"--status-fd N": "write what happens to this descriptor, a JSON object per line"},
)

MANUAL = Manual(
    synopsis="run NAME… [-n 3] [--ttl 30s] [--wait 10s | --no-wait] [--busy-ok] -- COMMAND…",
    text="""\
Runs COMMAND while holding the lock NAME; the lock is released when COMMAND has ended, and all that it
started, daemons too. COMMAND finds HOLDFAST_LOCK, HOLDFAST_TOKEN (the fencing token), HOLDFAST_OWNER
and HOLDFAST_TTL in its environment, with -n HOLDFAST_SLOT, too. If the lease is lost, COMMAND and all
that it started is ended before anybody else can be granted the lock.

Several NAMEs are several locks, all of them or none, in whatever order they are written: nobody waits
in a circle. COMMAND finds HOLDFAST_TOKENS then, a JSON object of the token of each.

"""
    + TIMES,
    groups=(
        (
            "Waiting",
            {
                "-n N": "let N run it at once, on all machines together, instead of one; all who use "
                "the lock give the same N",
                "--wait TIME": "wait at most so long; without it, for ever",
                "--no-wait": "do not wait",
                "--busy-ok": "when it is not granted, exit with 0 instead of 75",
            },
        ),
        LEASE,
        STORE,
        PROGRAMS,
    ),
    examples={
        "holdfast run nightly-report -- ./report.sh": "waits until nobody else runs it",
        "holdfast run cleaner --no-wait --busy-ok -- ./clean.sh": "skips it if somebody else is at "
        "it; good for cron",
        "holdfast run thumbnails -n 3 -- ./thumbnail.sh": "lets three run at once",
        "holdfast run account:1 account:2 -- ./transfer.sh": "under two locks at once",
        "holdfast run deploy --wait 10s --ttl 1m -- make deploy": "gives up after ten seconds",
    },
    statuses={
        "N": "COMMAND's own; 128+n if signal n ended it",
        "75": "busy: not granted in time, nothing was run",
        "76": "the lease was lost, and COMMAND was ended, or not run",
        "77": "the lease was lost, and COMMAND could not be ended",
        "69": "the store is unreachable, or cannot do it now; nothing was run",
        "126": "COMMAND cannot be run",
        "127": "COMMAND was not found",
    },
)
