"""What the embedded store needs besides SQLite: proof of life, a queue at its door, and wake-ups.

The store is one file, PATH. Beside it the folder PATH + "-live" holds everything made here:

    <process>.live          locked while its process lives           presence.py
    <process>.pipe          hangs up when its process dies           presence.py
    <random>.tether         locked while `run` or its command lives  presence.py
    gate                    the queue before each write              gate.py
    <process>-<n>.sock      where a manager is woken                 mailbox.py
    id                      ties the folder to its store             place.py

Nothing in that folder is data. What matters is who holds it open or locked *now*, so it is never
copied, restored or shared between machines; place.py refuses file systems on which it could be.
"""
