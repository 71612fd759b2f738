"""What a forked child has in the place of its parent's sockets, when descriptors are short."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, resource, socket, sys
from holdfast import forked_sockets

free = [os.open(os.devnull, os.O_RDONLY) for _ in range(int(sys.argv[1]))]
ours, other = socket.socketpair()
fd = ours.fileno()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (other.fileno() + 1, hard))
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
except OSError:
    pass  # all numbers are taken
for lower in free:
    os.close(lower)

forked_sockets._end(fd)

assert other.recv(1) == b"", "the other end is not told"
assert ours.fileno() == fd
try:
    assert os.read(fd, 1) == b"", "there is something to be read"
except ConnectionResetError:
    pass
assert not os.get_inheritable(fd)
again = [os.open(os.devnull, os.O_RDONLY) for _ in free]
assert again == free, "numbers are still taken"
"""


@pytest.mark.parametrize("lower_numbers_free", [0, 1, 2])
def test_a_socket_is_at_its_end_however_few_numbers_are_free(lower_numbers_free: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(lower_numbers_free)],
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert done.returncode == 0, done.stderr
