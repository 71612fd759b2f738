"""Calls when a descriptor becomes readable, made by one of the threads that wait."""

from __future__ import annotations

import os
import select
from _thread import get_ident as current
from collections.abc import Callable
from itertools import starmap

from ... import forks
from ...interrupts import let_through
from .signal import Signal


class Poller:
    """The caller of functions whose descriptor has become readable, or whose other end hung up.

    A poller has no thread of its own. One of the waiting threads *leads*: it polls the descriptors
    for all, and so is woken by its own message without another thread in between. When it has what
    it waited for, it wakes another one to lead. While no thread waits, no descriptor is polled; nor
    while there is no descriptor left by which a leader could be woken.
    """

    def __init__(self, name: str) -> None:
        self._mutex = forks.mutex()
        self._watched: dict[int, Callable[[], object]] = {}
        self._leading = False
        self._leader = 0
        self._followers: dict[Signal, None] = {}
        self._wake_read = self._wake_write = -1
        self._closed = False

    def watch(self, fd: int, ready: Callable[[], object]) -> None:
        """Calls `ready` whenever `fd`, which is ours from now on, is readable."""
        with self._mutex:
            if self._closed:
                os.close(fd)
                return
            self._watched[fd] = ready
            self._wake_leader()

    def unwatch(self, fd: int) -> bool:
        """Stops watching `fd`, and closes it; returns False if it is not watched."""
        with self._mutex:
            watched = fd in self._watched
            try:
                self._watched.pop(fd, None)
            finally:  # also if a signal's handler raises
                if watched:
                    os.close(fd)
            if watched:
                self._wake_leader()
            return watched

    def attend(self, signal: Signal, until: float | None) -> bool:
        """Waits for `signal` as `Signal.wait` does; serves the descriptors if no other thread does."""
        while True:
            lead = False
            try:
                with self._mutex:
                    lead = not (self._leading or self._closed)
                    if lead:
                        self._leading = True
                        self._leader = current()
                        lead = self._can_be_woken()
                    else:
                        self._followers[signal] = None
                done = self._lead(signal, until) if lead else signal.wait_a_while(until)
            finally:
                # Twice, as an interrupt may come at its very entry: another thread has to lead then.
                try:
                    self._step_down(signal, lead)
                except BaseException:
                    self._step_down(signal, lead)
                    raise
            if done is not None:
                return done

    def close(self) -> None:
        """Closes all descriptors, and has the leader wait without polling."""
        with self._mutex:
            self._closed = True
            for fd in self._watched:
                os.close(fd)
            self._watched.clear()
            self._wake_leader()
            self._close_pipe()

    def _lead(self, signal: Signal, until: float | None) -> bool | None:
        signal.on_set = self._signal_was_set
        try:
            while True:
                if signal.clear():
                    return True
                signal.refuse_inherited()
                left = signal.left(until)
                if left <= 0:
                    return False
                poll = select.poll()
                with self._mutex:
                    if self._closed:
                        return None
                    poll.register(self._wake_read, select.POLLIN)
                    for fd in self._watched:
                        poll.register(fd, select.POLLIN)
                for fd, _ in poll.poll(left * 1000 + 1):
                    signal.refuse_inherited()  # the rest is for the parent, who polls as well
                    if fd == self._wake_read:
                        try:
                            os.read(fd, 4096)
                        except BlockingIOError as error:
                            let_through(error)  # else a child of ours has read it
                        continue
                    with self._mutex:
                        ready = self._watched.get(fd)
                    if ready is not None:
                        ready()
        finally:
            signal.on_set = None

    def _step_down(self, signal: Signal, led: bool) -> None:
        with self._mutex:
            if led:
                if self._leader in (current(), 0):  # and not yet another's
                    self._leading = False
                    self._leader = 0
                    self._close_pipe()
            else:
                self._followers.pop(signal, None)
            heir = None
            if self._followers and not self._leading:
                heir = next(iter(self._followers))
        if heir is not None:
            heir.wake()

    def _signal_was_set(self) -> None:
        if current() != self._leader:  # a leader that set its own signal is awake
            with self._mutex:
                self._wake_leader()

    def _wake_leader(self) -> None:
        """Has the leader look again. Under the mutex."""
        if self._leading and self._wake_write >= 0:
            try:
                os.write(self._wake_write, b"\0")
            except BlockingIOError:
                return  # its pipe is full, so it will wake up

    def _can_be_woken(self) -> bool:
        """Tells whether the leader can be woken; if not, nobody leads. Under the mutex."""
        if self._wake_read < 0:
            try:
                self._open_pipe()
            except OSError as error:  # there is no descriptor left: each waits for its own signal
                let_through(error)
                self._leading = False
                self._leader = 0
                return False
        return True

    def _open_pipe(self) -> None:
        # Into a list before a signal's handler can raise: `extend` runs no Python code.
        made: list[tuple[int, int]] = []
        try:
            made.extend(starmap(os.pipe, ((),)))
            ((read, write),) = made
            os.set_blocking(read, False)
            os.set_blocking(write, False)
        except BaseException:
            for read, write in made:
                os.close(read)
                os.close(write)
            raise
        self._wake_read, self._wake_write = read, write

    def _close_pipe(self) -> None:
        if self._closed and not self._leading and self._wake_read >= 0:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_read = self._wake_write = -1
