"""Drafts: files that are written under a name of their own, and then linked or moved to their real one.

The handler of a signal may fork in the middle of that, and child and parent may both go on. What the
parent has begun to write is the parent's: in the child the draft has another name, by which there is
nothing yet. So the child can neither put its parent's file in its place nor remove it.
"""

from __future__ import annotations

import os

from ... import forks

END = ".new"
"""The end of a draft's name."""


class Draft:
    """A draft of a file; its name begins with `stem`.

    Read `path` in the call that it is for, with no other call in between: a handler runs after calls.
    """

    __slots__ = ("__weakref__", "_stem", "path")

    def __init__(self, stem: str) -> None:
        self._stem = stem
        forks.survive(self)
        self._after_fork()

    def _after_fork(self) -> None:
        named_in = -1
        # Again in a child that is forked in here: it would go on with its parent's number.
        while named_in != forks.generation:
            named_in = forks.generation
            self.path = f"{self._stem}{os.urandom(8).hex()}{END}"

    def write(self, text: str) -> None:
        """Writes the whole draft, which must not be there yet, with that text.

        A child that is forked in here writes the same bytes to the same place.
        """
        content = text.encode("ascii")
        with open(self.path, "xb", buffering=0) as file:
            os.pwrite(file.fileno(), content, 0)
