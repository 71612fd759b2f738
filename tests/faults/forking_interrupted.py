"""`python -m faults.forking_interrupted FOLDER`: a signal's handler raises inside the hooks of a fork.

Python prints that, and the fork goes on. In a process of its own, where the hooks have little to do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import Thread
from types import FrameType
from typing import Any

import holdfast
from holdfast import forks
from holdfast._sync import opening
from holdfast.stores.sqlite import connection, forking, gate, presence

HOOKS = {module.__file__ for module in (forks, opening, connection, forking, gate, presence)}
STRIDE = 17
"""One step of the interpreter in so many is tried: all would take a minute."""


class Interrupt(Exception):
    """What a signal's handler raises."""


def interrupted_at(step: int) -> Callable[[FrameType, str, Any], Any]:
    """Returns a trace function that raises before that step of the interpreter in our hooks."""
    left = step

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in HOOKS:
            return None
        frame.f_trace_opcodes = True
        if event in ("call", "opcode"):
            left -= 1
            if left == 0:
                raise Interrupt
        return trace

    return trace


def fork_interrupted_at(step: int, in_child: Callable[[], str]) -> str:
    """Forks, interrupted at that step, in the parent or in the child; returns what the child says."""
    reader, writer = os.pipe()
    before = sys.gettrace()
    sys.settrace(interrupted_at(step))
    child = os.fork()
    sys.settrace(before if child else None)
    if not child:
        try:
            os.write(writer, in_child().encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said


def can_another_thread(do: Callable[[], object]) -> bool:
    done: list[object] = []
    thread = Thread(target=lambda: done.append(do()), daemon=True)
    thread.start()
    thread.join(20.0)
    return bool(done)


def main() -> None:
    """Checks that the threads of the parent go on, and the child has a session of its own."""
    told: list[object] = []
    sys.unraisablehook = lambda args: told.append(args.exc_type)
    url = f"sqlite://{sys.argv[1]}/locks.db"
    with holdfast.connect(url) as locks:

        def use() -> str:
            with locks.lock("used", timeout=5, ttl=30):
                return "interrupted" if told else "not interrupted"

        def open_and_use() -> str:
            with holdfast.connect(url) as more, more.lock("opened", timeout=5, ttl=30):
                return use()

        step = 1
        said = "interrupted"
        while said == "interrupted":
            told.clear()
            use()
            said = fork_interrupted_at(step, use)
            assert "rupted" in said, (step, said)
            assert can_another_thread(open_and_use), step
            step += STRIDE
        assert step > 500


if __name__ == "__main__":
    main()
