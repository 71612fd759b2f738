"""The manual of `holdfast once`."""

from . import STORE, TIMES, Manual
from .run import LEASE, PROGRAMS

MANUAL = Manual(
    synopsis="once NAME (--every 1d | --cron EXPRESSION) [--busy-ok] -- COMMAND…",
    text="""\
Runs COMMAND at most once in each period, among all machines that use the store. If COMMAND ends with 0,
nobody runs it again until the period is over, also when this machine is gone. If it fails, or its
machine dies, the next one who asks may try, in the same period. The store's clock counts.

COMMAND finds the same in its environment as with `holdfast run`. If its lease is lost it is ended, and
somebody else may run it.

"""
    + TIMES,
    groups=(
        (
            "The period",
            {
                "--every TIME": "counted from the start of the last run; where cron asks once a day, "
                "give a little less than that, such as 20h",
                "--cron EXPRESSION": "until the next time that the expression names: five fields, or "
                "@hourly, @daily, @weekly, @monthly, @yearly; a run that was missed is made up for. "
                "The store's clock says when that is: ask some minutes later, or every few minutes",
                "--timezone ZONE": "of the expression, such as Europe/Berlin (default: UTC)",
                "--at-least TIME": "keep others from trying for so long even if COMMAND fails",
                "--at-most TIME": "end COMMAND after so long (with --grace); it has failed then",
                "--busy-ok": "when it is not our turn, exit with 0 instead of 75",
            },
        ),
        LEASE,
        STORE,
        PROGRAMS,
    ),
    examples={
        "holdfast once daily-report --every 20h -- ./report.sh": "once a day, whoever comes first: "
        "a little less than the interval at which it is asked",
        "holdfast once backup --cron '30 2 * * *' --busy-ok -- ./backup.sh": "in the crontab of every "
        "machine, at 35 2 * * *: one of them makes the backup of the night",
    },
    statuses={
        "N": "COMMAND's own; 128+n if signal n ended it",
        "75": "somebody has done it in this period, or is at it; nothing was run",
        "76": "the lease was lost, and COMMAND was ended, or not run",
        "77": "the lease was lost, and COMMAND could not be ended",
        "126": "COMMAND cannot be run",
        "127": "COMMAND was not found",
    },
)
