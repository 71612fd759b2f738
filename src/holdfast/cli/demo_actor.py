"""One of the two processes of `holdfast demo`: `python -m holdfast.cli.demo_actor NAMESPACE`.

It does what it is told, one line at a time, and answers each with a line. It never asks whether its
lease is still held: most programs do not, and no program can between its last look and its write.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from typing import Any

from .. import Lease, connect
from ..errors import BackendUnavailable, ConfigError, LockError, StaleToken
from ..fences import FileFence
from . import statuses

PR_SET_PDEATHSIG = 1


def main() -> None:
    # Whoever froze us must not leave us frozen for ever: on Linux, die with him.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        act(sys.argv[1])
    except LockError as error:
        status = 1
        if isinstance(error, BackendUnavailable):
            status = statuses.UNREACHABLE
        elif isinstance(error, ConfigError):
            status = statuses.USAGE
        print(json.dumps({"error": str(error), "status": status}), flush=True)


def act(namespace: str) -> None:
    fence = FileFence()
    lease: Lease | None = None
    with connect(namespace=namespace) as locks:
        for line in sys.stdin:
            order = json.loads(line)
            path = order.get("path", "")
            answer: dict[str, Any] = {}
            if order["verb"] == "acquire":
                lock = locks.lock("account", ttl=order["ttl"], timeout=60.0, protects=fence)
                lease = lock.acquire()
                answer = {"token": lease.token}
            elif order["verb"] == "read":
                with open(path, encoding="utf-8") as file:
                    answer = {"balance": int(file.read())}
            elif lease is None:
                pass  # it is only asked whether it is there
            elif order["verb"] == "write":
                with open(path, "w", encoding="utf-8") as file:
                    file.write(str(order["balance"]))
                answer = {"held": lease.held}
            elif order["verb"] == "write-fenced":
                try:
                    lease.guard.write(path, str(order["balance"]))
                    answer = {"held": lease.held}
                except StaleToken as refused:
                    answer = {"refused": refused.token, "highest": refused.highest}
            elif order["verb"] == "release":
                answer = {"released": lease.release()}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
