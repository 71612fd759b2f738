"""The command line: `holdfast`, or `python -m holdfast`.

    __main__     which command; what every command's errors have in common
    arguments    what was written: options, operands and the command after `--`
    manuals/     what each command is for, its options and examples: for --help
    store        the store that was named
    report       what happened, for `--status-fd` and for people

    run, lead, once          how each of them gets its lease
    work         a command under a lease, from its start to the exit status
    attempt      getting the lock, while signals are heard
    spawn        starting the command
    processes    the machine's processes, and who adopts orphans
    child        the command and all that comes from it
    supervisor   the command under its lease, until it has ended or was ended
    terminal     who may read the terminal
    wakeups      signals and threads, heard in one place

    ls, show, break_lock     the locks of a store, one of them, and taking one away
    watch        the locks of a store as they change: watch_lines for programs; for people watch_look
                 asks for them, watch_screen draws them, full_screen has the terminal
    completion, man          what shells and man(1) know of the commands, out of their manuals
    config       stores that have a name, for `--store`
    progress     the line that tells a person what `run` waits for
    stores       the promises of every kind of store
    doctor       what stands well with a store, and what does not
    chaos/       the runs of `holdfast.chaos`: request reads what is asked for, show shows them, signals
                 ends them, listing says what can be broken here
    fence        `holdfast fence check`
    serve        the lock service
    token        the bearer tokens of the service
    drawing      colours, bars and columns; nothing from a store reaches a terminal but through it
    lock_rows    locks as rows and as words
    encoding     locks as JSON

A shell runs such a command thousands of times a day and waits for its start each time, so what is
imported for `run` is little and cheap; argparse, subprocess and json are not, and have stand-ins.
"""

COMMANDS = {
    "run": ("run", "run a command under a lock"),
    "lead": ("lead", "run a command while we lead, and stand by otherwise"),
    "once": ("once", "run a command once in each period, among all machines"),
    "ls": ("ls", "list the locks that are held or waited for"),
    "show": ("show", "show who holds a lock, and who waits for it"),
    "watch": ("watch", "watch locks as they change"),
    "break": ("break_lock", "take a lock away from its holders"),
    "stores": ("stores", "compare what the stores promise"),
    "doctor": ("doctor", "check that a store is fit for what it promises"),
    "fence": ("fence", "show a token to a fence, in a script"),
    "serve": ("serve", "serve locks over HTTP, to any language"),
    "schema": ("schema", "print the tables that a database needs"),
    "token": ("token", "make, list and revoke the tokens of the service"),
    "completion": ("completion", "print a script for the completion of a shell"),
    "man": ("man", "print the manual page"),
    "chaos": ("chaos", "break stores on purpose, and see which promises they keep"),
    "demo": ("demo", "see what a fence is for, in ten seconds"),
}
"""Each command, with its module here (and in `manuals`) and what it is for. Its `main(words)` returns
the exit status."""
