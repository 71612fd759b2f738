"""A lease that its process has given away outlives that process, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import holdfast

GIVER = """
import os, sys
import holdfast
lease = holdfast.connect(sys.argv[1]).lock("x", ttl=60.0).acquire()
os.write(1, lease.export().encode())
os._exit(0)
"""


def test_an_exported_lease_outlives_its_process(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    giver = subprocess.run(
        [sys.executable, "-c", GIVER, url], capture_output=True, text=True, check=True
    )
    with holdfast.connect(url) as locks:
        assert locks.lock("x").try_acquire() is None
        lease = locks.adopt(giver.stdout)
        assert lease.held
        assert lease.release() is True
