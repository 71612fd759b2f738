"""The embedded store: one SQLite file, and beside it proof of life, a queue, and wake-ups.

The store is one file, PATH. Beside it the folder PATH + "-live" holds everything that is not data:

    <process>.live          locked while its process lives, and      presence.py
                            hangs up when its process dies
    <random>.tether         locked while `run` or its command lives  lockfiles.py
    gate                    the queue before each write              gate.py
    <process>-<n>.sock      where a manager is woken                 mailbox.py
    id                      ties the folder to its store             location.py
    file                    names the file that was opened last      file.py

What matters is which process holds these files open or locked *now*, so the folder is never restored or
shared between machines; location.py refuses file systems on which it could be. Reading or copying it
does no harm, and the copy is of no use.
"""
