"""`python -m zookeeper.waiting URL`: waits for the lock `x`, until it is killed."""

from __future__ import annotations

import sys

import holdfast
from holdfast.chaos.servers.zookeeper import TICK

if __name__ == "__main__":
    holdfast.connect(sys.argv[1], tick=TICK).lock("x", ttl=60.0).acquire()
    sys.exit("it was granted")
