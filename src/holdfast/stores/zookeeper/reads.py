"""One request for many reads: ZooKeeper's *multiRead*, which kazoo does not have.

Each request costs a client ten system calls, with its reply. A look at ten thousand locks is twenty
thousand reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

AT_ONCE = 500
"""The reads of one request at the most."""
LONGEST = 200_000
"""The characters of the paths of one request, but for the last: a server takes a megabyte."""

_END = multiheader_struct.pack(-1, True, -1)


class Reads:
    """The request for several reads, whose reply is the list of their replies.

    The reply to a read is its value, or its error.
    """

    type = 22

    __slots__ = ("reads",)

    def __init__(self, reads: list[Any]) -> None:
        self.reads = reads

    def serialize(self) -> bytes:
        text = bytearray()
        for read in self.reads:
            text += multiheader_struct.pack(read.type, False, -1) + read.serialize()
        return bytes(text + _END)

    @staticmethod
    def deserialize(text: bytes, offset: int) -> list[Any]:
        replies: list[Any] = []
        while True:
            kind, ended, _ = multiheader_struct.unpack_from(text, offset)
            offset += multiheader_struct.size
            if ended:
                return replies
            reply: Any
            if kind == GetData.type:
                data, offset = read_buffer(text, offset)
                reply = data, ZnodeStat._make(stat_struct.unpack_from(text, offset))
                offset += stat_struct.size
            elif kind == GetChildren.type:
                (count,) = int_struct.unpack_from(text, offset)
                offset += int_struct.size
                reply = []
                for _ in range(count):
                    name, offset = read_string(text, offset)
                    reply.append(name)
            else:
                (code,) = int_struct.unpack_from(text, offset)
                offset += int_struct.size
                reply = EXCEPTIONS[code]()
            replies.append(reply)


def names_of_children(path: str) -> Any:
    """Returns the read of the names of a znode's children, as a part of `Reads`."""
    return GetChildren(path, None)


def in_few(reads: Iterable[Any]) -> Iterator[Reads]:
    """Returns requests for all of `reads`, in their order: as few as a server takes."""
    together: list[Any] = []
    length = 0
    for read in reads:
        if len(together) == AT_ONCE or length >= LONGEST:
            yield Reads(together)
            together, length = [], 0
        together.append(read)
        length += len(read.path)
    if together:
        yield Reads(together)
