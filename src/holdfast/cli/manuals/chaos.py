"""The manual of `holdfast chaos`."""

from . import JSON, TIMES, Manual

MANUAL = Manual(
    synopsis="chaos [--backend STORES | --url URL] [--faults FAULTS] [--duration TIME] [--seed N]",
    text=f"""\
Starts real stores, lets several processes contend for a lock and write to a register with a fence
and to one without, and breaks things meanwhile: processes stand still or are killed, connections are
cut, nodes crash, forget, or have their clocks stepped. Then it checks what everybody wrote down, and
compares it with what the store promises. A promise that was broken is a failure, and so is a weakness
that the store does not declare.

Every time, locks that are known to be bad go through the same: if they are not caught, that is a
failure too; they need a redis-server here. A run in which no fault could be done is not judged, and
the campaign has not passed. Everything runs on this machine, without root, and nothing is left behind.
On a store of yours (--url) only our own processes and connections are broken, and only keys with a
prefix of our own are written.

{TIMES}
""",
    groups=(
        (
            "What is broken",
            {
                "--backend STORES": "the stores to start, such as redis,etcd, or all (default: redis)",
                "--faults FAULTS": "such as pause,partition (default: all that are possible)",
                "--library NAME": "the lock of another library in place of ours: redis-py, "
                "python-redis-lock, pottery, kazoo",
                "--duration TIME": "how long each run is under faults (default: 8s)",
                "--grants N": "go on with other seeds until there were so many grants in all",
                "--state FOLDER": "with --grants: keep each run there, and go on there next "
                "time; the seed is 1 unless --seed names another",
                "--without-controls": "leave out the locks that are known to be bad; nothing shows "
                "then that the checker would catch one",
                "--workers N": "the processes that contend (default: 4)",
                "--jobs N": "the runs that are made at the same time (default: 2)",
                "--seed N": "the same plan as before",
            },
        ),
        (
            "What is shown",
            {
                "--list": "what can be broken on this machine, and what cannot, and why",
                "--html FILE": "draw all runs into one page",
                "--markdown": "write the table as Markdown",
                **JSON,
            },
        ),
        (
            "A store of yours",
            {
                "--url URL": "break our own processes and connections on this store, which runs "
                "already; $HOLDFAST_URL is not looked at",
                "--store NAME": "the store of that name in the configuration, instead of --url",
            },
        ),
    ),
    examples={
        "holdfast chaos": "a Redis, under every fault that is possible here",
        "holdfast chaos --backend all --html chaos.html": "every store that can be started here",
        "holdfast chaos --faults pause --library redis-py": "another library under the same fault",
        "holdfast chaos --url redis://localhost --faults pause,lost-reply": "a store of yours",
    },
    statuses={
        "1": "a promise was broken, a lock that is known to be bad was not caught, or a run could "
        "not be made or not be judged"
    },
)
