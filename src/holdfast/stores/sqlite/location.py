"""The location of an embedded store: told from the URL, refused where it cannot be safe, prepared.

Its safety rests on what the kernel of *one* machine tells its processes: which of them holds a lock,
which has died, what time it is since boot. A file system that several machines (or a guest and its
host) see carries the file and not that knowledge: locks are emulated, late or absent, and every holder
on the other machine looks dead. So such a location is refused before anything is written.

It also rests on all processes meeting in the same folder beside the file, where SQLite's log is too.
So the path is made real first (a symbolic link would have a folder of its own); a file that is a mount
point by itself, or has a second name, is refused, since behind the other mount or name there would be
another folder; and `identity_of` gives the "-live" folder a random id, which the store keeps: should
the file turn up without it (copied or restored), what the folder says about its entries is worth
nothing.

The database file itself is never opened here: SQLite's locks are POSIX record locks, and closing
any descriptor of the file would drop those of every connection in this process.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from functools import partial

from ...errors import BackendUnavailable, ConfigError
from ...interrupts import let_through, real_path
from ...mounts import mount_of, mount_table
from .drafts import Draft
from .lockfiles import mode_of, text_of

_SHARED = (
    " 9p acfs afs beegfs ceph cephfs cifs coda davfs davfs2 drvfs fuse fuseblk gfs gfs2 glusterfs "
    "gpfs kafs lustre ncp ncpfs nfs nfs4 ocfs2 orangefs panfs prl_fs pvfs2 smb2 smb3 smbfs vboxsf "
    "virtiofs vmhgfs wekafs "
)
_HINT = "Write sqlite:///full/path/to/locks.db (three slashes), or name no store at all"


def default_path() -> str:
    """Returns the path of the store that serves when none is named: one in each user's state folder."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the specification: a relative one is to be ignored
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    if not os.path.isabs(state):
        raise ConfigError("there is no home folder to keep the store in; name one: sqlite:///path")
    return os.path.join(state, "holdfast", "locks.db")


def path_of_url(url: str) -> str:
    """Returns the path in `sqlite:///full/path`, percent-decoded; `url` has no query any more."""
    scheme, separator, rest = url.partition("://")
    if scheme.lower() != "sqlite" or not separator:
        raise ConfigError(f"this is not the URL of an embedded store. {_HINT}")
    if not rest.startswith("/"):
        host = rest.partition("/")[0].rpartition("@")[2]  # without a password that strayed here
        if not host:
            raise ConfigError(f"{scheme}:// has no path. {_HINT}")
        raise ConfigError(
            f"{scheme}://{host} has a host, {host!r}, and an embedded store has none; its path is "
            f"always absolute. {_HINT}"
        )
    if "?" in rest or "#" in rest:
        raise ConfigError(f"{url!r}: in a path, '?' is written %3F and '#' is written %23")
    try:
        path = os.fsdecode(_unquote(os.fsencode(rest)))
    except ValueError as error:
        let_through(error)
        raise ConfigError(f"{url!r}: in a path, '%' is written %25") from None
    if any(character < " " or character == "\x7f" for character in path):
        raise ConfigError(f"{url!r}: there is a control character in its path")
    path = "/" + path.lstrip("/")
    if path == "/":
        raise ConfigError(f"{url!r} has no path. {_HINT}")
    if path.endswith(("/", "/.", "/..")):
        raise ConfigError(f"{url!r} names a folder; the store is a file in it, such as locks.db")
    return path


def _unquote(text: bytes) -> bytes:
    """Decodes percent signs, or raises ValueError. (urllib.parse takes long to import.)"""
    plain, *parts = text.split(b"%")
    for part in parts:
        if len(part) < 2 or not part[:2].isalnum():  # fromhex would skip a blank
            raise ValueError(part)
        plain += bytes.fromhex(part[:2].decode("ascii")) + part[2:]
    return plain


def live_directory(path: str) -> str:
    """Returns the folder of locks and sockets that belongs to the store at that (real) path."""
    return path + "-live"


def prepare(path: str) -> str:
    """Makes the folders that the store needs, and proves that they can be written to.

    Returns the real path, which is the one to open: all users of a store must agree on its folder.
    """
    path = real_path(path)
    refuse_unsuitable(path)
    parent = os.path.dirname(path)
    try:
        _make_folder(parent, 0o700)
    except OSError as error:
        let_through(error)
        raise _error_for(error, f"the folder {parent!r} for the store cannot be made") from error
    # By doing it, as permissions do not tell all; not on the file itself, see above. A journal
    # needs to be made beside the file too, so the folder has to be writable in any case.
    trial = Draft(f"{path}-")
    try:
        try:
            # A file object, and no Python code in between: it closes itself if we are interrupted.
            with open(trial.path, "xb", opener=partial(os.open, mode=0o600)):
                pass
        finally:
            with suppress(FileNotFoundError):
                os.unlink(trial.path)
        _make_folder(live_directory(path))
    except OSError as error:
        let_through(error)
        raise _error_for(error, f"the store's folder {parent!r} cannot be written to") from error
    if mode_of(path) and not os.access(path, os.R_OK | os.W_OK):
        raise ConfigError(f"the store {path!r} cannot be read and written by this user")
    return path


def _make_folder(path: str, mode: int = 0o777) -> None:
    """Makes a folder, unless it is there, and those above it.

    `os.makedirs` takes the error of a signal's handler for the answer that what is there is no folder.
    """
    parent = os.path.dirname(path)
    if not mode_of(parent) and parent != path:
        _make_folder(parent)
    try:
        os.mkdir(path, mode)
    except OSError as error:
        let_through(error)
        if not stat.S_ISDIR(mode_of(path)):
            raise


def refuse_unsuitable(path: str) -> None:
    """Raises ConfigError if a store must not, or cannot, be at that path. Makes nothing."""
    path = real_path(path)
    mode = mode_of(path)
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{path!r} is a folder; the store is a file in it, such as locks.db")
    if mode and not stat.S_ISREG(mode):
        raise ConfigError(f"{path!r} is not a regular file, and so cannot be a store")
    folder = os.path.dirname(path)
    while not stat.S_ISDIR(mode := mode_of(folder)):
        if mode:
            raise ConfigError(f"{folder!r} is not a folder, so no store can be at {path!r}")
        folder = os.path.dirname(folder)
    table = mount_table()
    if not table:
        return  # nothing to ask here without help from outside the standard library: declared
    for part in (path, live_directory(path)):
        if mount_of(part, table).point == part:
            raise ConfigError(
                f"{part!r} is mounted by itself, without the folder that it is in. Processes behind "
                "another mount would not see the locks that are held here. Mount the folder "
                f"{os.path.dirname(path)!r} instead, everywhere where the store is used"
            )
    kind = mount_of(folder, table).kind
    if is_shared(kind):
        raise ConfigError(
            f"the store {path!r} would be on a {kind!r} file system, which other machines may "
            "share, and on which nobody can tell whether the holder of a lock is alive. Put it on "
            "a local disk, or use a store that is made for several machines, such as redis:// or "
            "postgresql://"
        )


def is_shared(kind: str) -> bool:
    """Returns whether another kernel may see a file system of that type, or a process emulates it."""
    return f" {kind} " in _SHARED or kind.startswith("fuse.")


def clock_identity() -> tuple[str, str]:
    """Returns the boot and the time namespace that this process's boot clock counts in.

    A time on that clock means something only to a process with the same two. Where the system does
    not tell, a part is "": after a reboot such a store cannot see that its times are of another
    boot. Entries that are bound to a process end with it all the same; others may stay longer.
    """
    boot = namespace = ""
    try:
        boot = text_of("/proc/sys/kernel/random/boot_id").strip()
    except (OSError, ValueError) as error:
        let_through(error)
    try:
        namespace = str(os.stat("/proc/self/ns/time").st_ino)
    except OSError as error:
        let_through(error)
    return boot, namespace


def identity_of(directory: str) -> str:
    """Returns the random id of a "-live" folder, which the first caller gives it.

    The store keeps the id, and compares: a file whose folder has another one was parted from its own.
    """
    file = f"{directory}/id"
    draft = Draft(f"{directory}/.id.")
    try:
        with suppress(FileNotFoundError):
            return text_of(file)
        draft.write(os.urandom(16).hex())
        try:
            os.link(draft.path, file)  # unlike a rename it fails if another process was quicker
        except FileExistsError:
            pass
        finally:
            with suppress(FileNotFoundError):  # as in a forked child, whose draft has another name
                os.unlink(draft.path)
        return text_of(file)
    except (OSError, ValueError) as error:
        let_through(error)
        raise BackendUnavailable(f"cannot tell which folder {directory!r} is: {error}") from error


def _error_for(error: OSError, what: str) -> ConfigError | BackendUnavailable:
    """Returns a ConfigError for what is not allowed; a full disk and the like may pass."""
    if error.errno == errno.EROFS:
        return ConfigError(f"{what}: it is on a read-only file system. Choose another path")
    if error.errno in (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG):
        return ConfigError(f"{what}: {error.strerror}. Choose another path, or change that")
    return BackendUnavailable(f"{what}: {error.strerror or error}")
