"""A network of rooms: what is sent from one to another arrives, or does not, as it was told to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.workers import until
from holdfast.chaos.servers.network import Network
from holdfast.chaos.servers.processes import end_group, start
from holdfast.chaos.servers.proxy import connect_to

ECHO = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("0.0.0.0", 7000))
listener = socket.create_server(("0.0.0.0", 7001))
print("ready", flush=True)
import threading
def serve():
    while True:
        client, _ = listener.accept()
        data = client.recv(100)
        client.sendall(data)
        client.close()
threading.Thread(target=serve, daemon=True).start()
while True:
    data, address = sock.recvfrom(100)
    print(data.decode(), flush=True)
    sock.sendto(data, address)
"""
SEND = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.settimeout(1.0)
back = []
count = int(sys.argv[2])
for number in range(count):
    sock.sendto(b"%d" % number, (sys.argv[1], 7000))
try:
    while len(back) < count:
        back.append(sock.recv(100).decode())
except TimeoutError:
    pass
print(" ".join(back))
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network()
    made.room("a")
    made.room("b")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def echo(network: Network) -> Iterator[subprocess.Popen[bytes]]:
    command = [*network.inside("b"), sys.executable, "-I", "-S", "-c", ECHO]
    process = start(command, output=subprocess.PIPE, errors=None)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    os.set_blocking(process.stdout.fileno(), False)
    yield process
    end_group(process)
    process.stdout.close()


@pytest.fixture(autouse=True)
def mended(network: Network, echo: subprocess.Popen[bytes]) -> Iterator[None]:
    yield
    network.mend()
    assert send(network, 1) == ["0"]
    assert echo.stdout is not None
    echo.stdout.read()


def send(network: Network, count: int) -> list[str]:
    """Sends so many packets from a to b, and returns which of them came back, in their order."""
    command = [
        *network.inside("a"),
        sys.executable,
        "-I",
        "-S",
        "-c",
        SEND,
        "10.213.0.2",
        str(count),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


def heard(echo: subprocess.Popen[bytes]) -> list[bytes]:
    assert echo.stdout is not None
    return (echo.stdout.read() or b"").split()


def test_everything_arrives(network: Network, echo: subprocess.Popen[bytes]) -> None:
    assert send(network, 20) == [str(number) for number in range(20)]


def test_a_cut_both_ways(network: Network, echo: subprocess.Popen[bytes]) -> None:
    network.cut("a", "b")
    assert send(network, 3) == []
    assert heard(echo) == []
    assert network.dropped() >= 3


def test_a_cut_one_way(network: Network, echo: subprocess.Popen[bytes]) -> None:
    assert send(network, 1) == ["0"]  # and each knows the other's card
    heard(echo)
    network.disturb("b", "a", loss=1.0)
    assert send(network, 3) == []
    until(lambda: heard(echo) == [b"0", b"1", b"2"], "the arrival of what was sent")


def test_loss_and_reordering(network: Network, echo: subprocess.Popen[bytes]) -> None:
    network.disturb("a", "b", loss=0.5)
    assert 0 < len(send(network, 200)) < 200
    network.disturb("a", "b", reorder=0.5)
    back = send(network, 100)
    assert sorted(back, key=int) == [str(number) for number in range(100)]
    assert back != sorted(back, key=int)


def test_a_door(network: Network, echo: subprocess.Popen[bytes], tmp_path: Path) -> None:
    network.door("b", 7001, tmp_path / "door")
    with connect_to(str(tmp_path / "door"), 10.0) as sock:
        sock.sendall(b"hello")
        assert sock.recv(100) == b"hello"
