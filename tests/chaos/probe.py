"""A worker for the tests of labs: takes the lock when it is told to, and says what came of it.

It reads words, one a line, and answers each with a line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import holdfast


def main() -> None:
    url, options = sys.argv[1], json.loads(sys.argv[2])
    lease: Any = None
    locks = holdfast.connect(url, namespace="lab", **options)
    try:
        for line in sys.stdin:
            try:
                if line == "take\n":
                    lease = locks.lock("x", ttl=3.0).acquire(timeout=3.0)
                    said: object = lease.token
                else:
                    said = lease.release() if lease is not None else False
            except holdfast.LockError as error:
                said = f"{type(error).__name__}: {error}"
            print(json.dumps(said), flush=True)
    finally:
        locks.close()


if __name__ == "__main__":
    main()
