"""The command line: `holdfast`, or `python -m holdfast`.

    __main__     which command
    arguments    what was written: options, operands and the command after `--`
    run          `holdfast run`, from the request to the exit status
    attempt      getting the lock, while signals are heard
    spawn        starting the command
    processes    the machine's processes, and who adopts orphans
    child        the command and all that comes from it
    supervisor   the command under its lease, until it has ended or was ended
    terminal     who may read the terminal
    wakeups      signals and threads, heard in one place
    report       what happened, for `--status-fd` and for people

A shell runs such a command thousands of times a day and waits for its start each time, so what is
imported here is little and cheap; argparse, subprocess and json are not, and have stand-ins.
"""
