"""The process that is the network: run inside a network namespace of its own, by its path.

Each room has one end of a virtual cable, and the other end is here. A frame that comes out of one cable
is put into the one that it is for, unless a rule for the two rooms drops it, or has it wait. The last
room is this namespace itself, from which doors lead into the others.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

NET = "10.213.0"
HUB = 254
EVERY_KIND = 0x0003
OUTGOING = 4
IPV4, ARP = b"\x08\x00", b"\x08\x06"
SIOCETHTOOL = 0x8946
CHECKSUMS, TCP_SEGMENTS, SEGMENTS = 0x17, 0x1F, 0x24
"""The work that a card may leave to the hardware, in ethtool's numbers; a cable of ours must not."""
LATE = 0.02
"""Seconds by which a frame is held back so that others overtake it."""


def ip(*words: object, at: int | None = None) -> None:
    inside = [] if at is None else ["nsenter", "-t", str(at), "-n", "--"]
    command = [*inside, "ip", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def complete_frames(card: str) -> None:
    """Has frames leave the card whole and with their checksums: nobody else would make those."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for command in (CHECKSUMS, TCP_SEGMENTS, SEGMENTS):
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP16x", card.encode(), ctypes.addressof(value))
            try:
                fcntl.ioctl(sock, SIOCETHTOOL, request)
            except OSError:
                if command == CHECKSUMS:  # without them the others cannot be there
                    raise


def hardware_address(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


class Switch:
    """Passes frames from cable to cable."""

    def __init__(self) -> None:
        self._cables: dict[int, socket.socket] = {}
        self._rules: dict[tuple[int, int], dict[str, float]] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._numbers = itertools.count()
        self._poll = select.poll()
        self._files: dict[int, int] = {}
        self.dropped = 0
        self.delayed = 0

    def add(self, number: int, card: str) -> None:
        cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_KIND))
        cable.bind((card, EVERY_KIND))
        cable.setblocking(False)
        self._cables[number] = cable
        self._files[cable.fileno()] = number
        self._poll.register(cable, select.POLLIN)

    def disturb(self, sender: int, receiver: int, rule: dict[str, float]) -> None:
        self._rules[sender, receiver] = rule

    def mend(self) -> None:
        self._rules.clear()

    def run(self) -> None:
        while True:
            wait = 20.0
            if self._waiting:
                wait = max(0.0, min(wait, (self._waiting[0][0] - time.monotonic()) * 1000))
            for file, _ in self._poll.poll(wait):
                self._take(self._files[file])
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                _, _, receiver, frame = heapq.heappop(self._waiting)
                self._put(receiver, frame)

    def _take(self, sender: int) -> None:
        for _ in range(64):
            try:
                frame, address = self._cables[sender].recvfrom(65536)
            except OSError:
                return
            if address[2] == OUTGOING or frame[12:14] not in (IPV4, ARP):
                continue
            everyone = frame[0] & 1
            receivers = [n for n in self._cables if n != sender] if everyone else [frame[5]]
            for receiver in receivers:
                self._pass(sender, receiver, frame)

    def _pass(self, sender: int, receiver: int, frame: bytes) -> None:
        rule = self._rules.get((sender, receiver))
        if rule is None:
            self._put(receiver, frame)
            return
        if random.random() < rule["loss"]:
            self.dropped += 1
            return
        wait = rule["delay"] + (LATE if random.random() < rule["reorder"] else 0.0)
        if wait:
            self.delayed += 1
            at = time.monotonic() + wait
            heapq.heappush(self._waiting, (at, next(self._numbers), receiver, frame))
        else:
            self._put(receiver, frame)

    def _put(self, receiver: int, frame: bytes) -> None:
        if receiver in self._cables:
            with suppress(OSError):
                self._cables[receiver].send(frame)


class Network:
    def __init__(self) -> None:
        self._switch = Switch()
        ip("link", "set", "lo", "up")
        self._lay_cable(HUB)
        ip("addr", "add", f"{NET}.{HUB}/24", "dev", f"end{HUB}")
        ip("link", "set", f"end{HUB}", "up")
        threading.Thread(target=self._switch.run, daemon=True).start()

    def _lay_cable(self, number: int) -> None:
        cable, end = f"cable{number}", f"end{number}"
        ip("link", "add", cable, "type", "veth", "peer", "name", end)
        for card in (cable, end):
            complete_frames(card)
        ip("link", "set", end, "address", hardware_address(number))
        ip("link", "set", cable, "up")
        self._switch.add(number, cable)

    def room(self, number: int) -> dict[str, Any]:
        sleeper = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "echo in; exec sleep 1000000"], stdout=subprocess.PIPE
        )
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        self._lay_cable(number)
        end = f"end{number}"
        ip("link", "set", end, "netns", sleeper.pid)
        ip("link", "set", "lo", "up", at=sleeper.pid)
        ip("addr", "add", f"{NET}.{number}/24", "dev", end, at=sleeper.pid)
        ip("link", "set", end, "up", at=sleeper.pid)
        return {"pid": sleeper.pid}

    def door(self, address: str, port: int, path: str) -> dict[str, Any]:
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen(128)
        threading.Thread(target=_serve, args=(server, (address, port)), daemon=True).start()
        return {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        kind = request.pop("do")
        if kind == "room":
            return self.room(request["number"])
        if kind == "door":
            return self.door(**request)
        if kind == "disturb":
            sender, receiver = request.pop("pair")
            self._switch.disturb(sender, receiver, request)
        elif kind == "mend":
            self._switch.mend()
        return {"dropped": self._switch.dropped, "delayed": self._switch.delayed}


def _serve(server: socket.socket, place: tuple[str, int]) -> None:
    while True:
        client, _ = server.accept()
        threading.Thread(target=_connect, args=(client, place), daemon=True).start()


def _connect(client: socket.socket, place: tuple[str, int]) -> None:
    try:
        inner = socket.create_connection(place, 10.0)
        inner.settimeout(None)
        inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        client.close()
        return
    threading.Thread(target=_pump, args=(inner, client), daemon=True).start()
    _pump(client, inner)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for sock in (source, sink):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def main() -> None:
    network: Network | None = None
    for line in sys.stdin:
        try:
            if network is None:
                network = Network()
            reply = network.answer(json.loads(line))
        except (OSError, KeyError) as error:
            print(f"{error}", flush=True)
            os._exit(1)
        print(json.dumps(reply), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
