"""A candidate in a process of its own: `python -m failover.candidate URL VALUE TTL`.

It says in a line of JSON when the store has answered its first request, when it leads, and when it was
told that it does not any more; all by the machine's boot-time clock.
"""

from __future__ import annotations

import json
import sys
import time

import holdfast


def say(what: str, token: int) -> None:
    at = time.clock_gettime(time.CLOCK_BOOTTIME)
    print(json.dumps({"what": what, "token": token, "at": at}), flush=True)


def main(url: str, value: str, ttl: float) -> None:
    locks = holdfast.connect(url)
    asked: list[holdfast.Call] = []

    def hear(call: holdfast.Call) -> None:
        if call.verb == "acquire" and call.error is None and not asked:
            asked.append(call)
            say("asked", 0)

    locks.on_call(hear)
    term = locks.election("drill", value, ttl=ttl).campaign()
    term.on_lost(lambda lease: say("told", lease.token))
    say("leads", term.token)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
