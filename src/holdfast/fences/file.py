"""A fence for files, for writers who all use it. A plain file checks nothing; its writers can.

Beside a file `report.csv` stands `.report.csv.fence`, which keeps the highest token seen. A write is:
lock that, compare, write the data to a new file and fsync it, commit, rename the new file into place.
The commit is the replacement of the memory by one that has the new token *and* names the new file. So
after a crash before it neither has happened, and after a crash behind it the next one to lock finds
the new file and finishes the rename: never the one without the other.

It rests on `flock` and atomic renames: local file systems. Whoever writes to the file without this
fence is not stopped by it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from ..errors import ConfigError
from ..interrupts import let_through, real_path
from ..mounts import is_mount_point
from . import floors, rules
from .fence import Fence, not_installed, prove, refuse_high_floors
from .file_memory import (
    FLOORS,
    FileMemory,
    NotPlaced,
    Path,
    check_path,
    mark_of,
    memory_path,
    pending_of,
    read_floors,
)
from .file_pruning import prune
from .floors import Floor
from .record import FIRST_LOOK, LAST_LOOK, Record, sync_folder
from .rules import Credential, FencedLease, Mark, Token


class FileFence(Fence):
    """A fence for files. Any number of them, in any process, serve the same files."""

    def write(self, path: Path, data: bytes | str, token: Token) -> None:
        """Replaces the file's contents; raises `StaleToken` if a higher token has written to it."""
        if not isinstance(data, bytes | bytearray | memoryview | str):
            raise ConfigError(f"data must be bytes or str, not {type(data).__name__}")
        contents = data.encode() if isinstance(data, str) else bytes(data)
        given = rules.writer(token)
        _refuse_to_replace(path)
        with self._inside(path) as memory:
            memory.check(given)
            fresh = memory.stage(contents)
            # If this fails, nobody knows whether it has taken place: what was staged stays, and is
            # put in place by the next who comes if it has, and written over if not.
            memory.commit(given, os.path.basename(fresh))
            memory.place()
            sync_folder(memory.path)

    def guard(self, path: Path, token: Token) -> None:
        """Lets this token pass, and remembers it. What you do next is another step: see `hold`."""
        given = rules.credential(token)
        _refuse_other_names(path)
        with self._inside(path) as memory:
            memory.check(given)
            memory.commit(given)

    def hold(self, path: Path, token: Token) -> HeldFile:
        """`with fence.hold(path, token):` change the file yourself, such as append to it.

        Nobody else's write comes between. The token counts as seen from the beginning, also if the
        body fails: it may have written half. In asyncio: `async with`.
        """
        return HeldFile(self, path, rules.writer(token))

    def highest(self, path: Path) -> int:
        """Returns the highest token of a writer; 0 if none was seen. Waits for nobody."""
        memory = memory_path(path)
        state = Record.peek(memory)
        staged = os.path.join(os.path.dirname(memory), pending_of(memory, state) or os.curdir)
        if os.path.isfile(staged):
            # Its writer is about to put it in place; or was killed, and then it is done here.
            record = Record.locked(memory, wait=False)
            if record is not None:
                with record, suppress(NotPlaced):  # which its next writer is told
                    FileMemory(record, {}, real_path(path))
        return mark_of(memory, state).highest

    def reset(self, path: Path, *, by: str, to: int = 0) -> int:
        """Forgets the highest token and the lock, and begins again at `to`; returns the old token.

        For when a store's tokens have fallen, the file moved to another lock, what was written last
        cannot be put in place (then it is dropped), or the memory was damaged (then the old token is
        not known, and 0 is returned). Stop the writers first. Kept in the fence's file, under `resets`.
        """
        by, to = rules.beginning(by, to)
        with self._inside(path, heal=True) as memory:
            was = memory.mark
            entry = {"at": time.time(), "by": by, "token": was.highest, "lock": was.lock}
            if memory.damaged:
                entry["damaged"] = True
            if memory.dropped:
                entry["dropped"] = True
            memory.resets.append(entry)
            memory.reset(Mark(to))
            return was.highest

    def prune(self, folder: Path, older_than: float) -> int:
        """Forgets files of a folder where no token was shown for so many seconds; returns how many.

        Old tokens are kept out all the same: what is forgotten counts as the least that a
        file new to this fence has seen. So give it longer than a holder goes without a write.
        """
        limit = time.time() - rules.age(older_than)
        with self._floors_record(folder) as record:
            return prune(record, limit)

    def reset_floors(
        self, folder: Path, *, by: str, lock: str | FencedLease | None = None, to: int = 0
    ) -> None:
        """Sets what pruned files have left behind, for one lock or for all, to `to`.

        For when a number that no store has granted was pruned, and shuts out everybody. Stop the
        writers first: until holders have written, old tokens may pass. Kept in the folder's
        `.holdfast-floors.fence`, under `resets`.
        """
        by, to = rules.beginning(by, to)
        named = floors.lock_named(lock)
        with self._floors_record(folder) as record:
            lower, were = floors.reset(read_floors(record), named, to)
            resets = [
                *record.read().get("resets", []),
                *({"at": time.time(), "by": by, "of": of, "floor": floor} for of, floor in were),
            ]
            record.replace({"floors": lower, "resets": resets})

    def _floors_record(self, folder: Path) -> Record:
        record = Record.locked(os.path.join(real_path(folder), FLOORS))
        assert record is not None
        return record

    def verify(self, folder: Path) -> None:
        """Proves that it refuses in this folder; raises `GuaranteeError` otherwise."""
        if os.path.exists(os.path.join(real_path(folder), FLOORS)):
            with self._floors_record(folder) as record:
                refuse_high_floors(repr(str(folder)), read_floors(record))
        name = f"holdfast-probe-{os.urandom(6).hex()}"
        path = os.path.join(real_path(folder), name)
        try:
            first = Record.locked(memory_path(path))
            assert first is not None
            with first:
                second = Record.locked(memory_path(path), wait=False)
                if second is not None:
                    second.close()
                    raise not_installed(repr(str(folder)), "its file system does not keep flock")
            probe = FileFence()
            probe.reset(path, by="verify()")  # so that the folder's floors do not count
            prove(lambda token: probe.write(path, b"probe", token), repr(str(folder)))
        finally:
            for leftover in (path, memory_path(path)):
                with suppress(FileNotFoundError):
                    os.unlink(leftover)

    @contextmanager
    def _inside(self, path: Path, *, heal: bool = False) -> Iterator[FileMemory]:
        memory = self._enter(path, heal=heal)
        assert memory is not None
        try:
            yield memory
        finally:
            memory.close()

    def _enter(self, path: Path, *, wait: bool = True, heal: bool = False) -> FileMemory | None:
        """Locks the memory of a file; None if it is not to be had without waiting.

        With `heal` it is for a reset, which needs no floors, and a damaged memory counts as none.
        """
        check_path(path)
        real = real_path(path)
        holder = Record.holder_of(memory_path(real))
        if holder is not None:
            (holder.refuse_to_block if wait else holder.refuse_to_await)(str(path))
        record = Record.locked(memory_path(real), wait=wait)
        if record is None:
            return None
        try:
            if heal:
                return FileMemory.healed(record, real)
            known = self._floors_for(record, wait)
            if known is None:
                with suppress(FileNotFoundError):
                    record.remove()  # it is empty, and of no use to anybody
                record.close()
                return None
            return FileMemory(record, known, real, self.single_use)
        except BaseException:
            record.close()
            raise

    def _floors_for(self, record: Record, wait: bool) -> dict[str, Floor] | None:
        """Returns the floors for a file that has no memory yet; for others none count.

        None if they are not to be had without waiting, which is not to be done.
        """
        if record.read():
            return {}
        path = os.path.join(os.path.dirname(record.path), FLOORS)
        # Whoever prunes has it to himself: we see his floors, or our memory is not among the pruned.
        shared = Record.locked(path, shared=True, wait=wait)
        if shared is None:
            return None
        with shared:
            return read_floors(shared)


def _refuse_to_replace(path: Path) -> None:
    """Refuses what is there and no file: a rename would put a file in its place."""
    check_path(path)
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        let_through(error)
        return  # nothing is there; or what keeps us from it is met, and told, by the write
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{str(path)!r} is a folder, and cannot be written as a file")
    if not stat.S_ISREG(mode):
        raise ConfigError(
            f"{str(path)!r} is no plain file but a pipe, a socket or a device, which a write would "
            "replace by a file; write to it inside hold()"
        )
    _refuse_mounted(path)


def _refuse_other_names(path: Path) -> None:
    """Refuses a file that has several names: the fence remembers by name, and would know of one."""
    check_path(path)
    try:
        found = os.stat(path)
    except OSError as error:
        let_through(error)
        return
    if not stat.S_ISREG(found.st_mode):
        return
    if found.st_nlink > 1:
        raise ConfigError(
            f"{str(path)!r} has {found.st_nlink} names (hard links), and the fence remembers tokens by "
            "name: a writer by another name would not be noticed. Leave it one name, or use symbolic "
            "links; write() is allowed, since it gives the name a new file"
        )
    _refuse_mounted(path)


def _refuse_mounted(path: Path) -> None:
    """Refuses a file that is a mount point: it has another name elsewhere, and is not replaced."""
    if is_mount_point(real_path(path)):
        raise ConfigError(
            f"{str(path)!r} is mounted by itself, without the folder that it is in: it cannot be "
            "replaced, and the fence remembers tokens beside it, where a writer behind another mount "
            "would not see them. Mount the folder instead, everywhere where the file is used"
        )


class HeldFile:
    """The turn at one file, for the body of `with`."""

    def __init__(self, fence: FileFence, path: Path, given: Credential) -> None:
        self._fence = fence
        self._path = path
        self._given = given
        self._memory: FileMemory | None = None

    def __enter__(self) -> None:
        _refuse_other_names(self._path)
        self._begin(self._fence._enter(self._path))

    async def __aenter__(self) -> None:
        from asyncio import sleep

        _refuse_other_names(self._path)
        pause = FIRST_LOOK
        while (memory := self._fence._enter(self._path, wait=False)) is None:
            await sleep(pause)
            pause = min(pause * 2, LAST_LOOK)
        self._begin(memory)

    def _begin(self, memory: FileMemory | None) -> None:
        assert memory is not None
        try:
            memory.check(self._given)
            memory.commit(self._given)
        except BaseException:
            memory.close()
            raise
        self._memory = memory

    @property
    def changed(self) -> bool:
        """True if this hold has changed the mark; a token that is in it already changes nothing."""
        return self._memory is not None and self._memory.saved

    def retract(self) -> None:
        """Takes back, inside the body, that the token counts as seen: its holder wrote nothing."""
        assert self._memory is not None
        self._memory.retract()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._memory is not None
        self._memory.close()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)
