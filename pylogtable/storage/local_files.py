"""Files of a local store: how one comes to be there whole or not at all, with temporary names, hard
links and syncs, and what the errors of a file system mean."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import BinaryIO

from pylogtable.errors import LogTableError, StorageError, UnsupportedFormatError
from pylogtable.storage.base import Created, ObjectMissingError

TEMPORARY = ".tmp-"
ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_NOT_IMPLEMENTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
# Linux says EPERM for a link where a FUSE file system says ENOSYS.
_NO_HARD_LINKS = {*_NOT_IMPLEMENTED, errno.EPERM, errno.EXDEV}
_LINK_UNDECIDED = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR}
_DEVICE_FAILED = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip

#: Where a look at a file may be a request to a server, and even one that costs money.
_FAR = ("fuse", "nfs", "cifs", "smb", "9p", "ceph", "lustre", "afs", "gpfs", "beegfs")

_serial = itertools.count()


def open_temporary(directory: str) -> tuple[str, BinaryIO]:
    """Open a file with a name that nobody else uses. Names that a dead process left behind, on this
    host or another, are skipped."""
    while True:
        name = f"{TEMPORARY}{os.getpid()}-{threading.get_ident()}-{next(_serial)}"
        path = os.path.join(directory, name)
        with suppress(FileExistsError):
            return path, open(path, "xb")


def is_taken(path: str) -> bool:
    """True if the name exists. This only saves an fsync after a lost race; `link` decides."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if stat.S_ISLNK(mode) and not os.path.exists(path):
        # It takes the name, and reads as absent: a writer would try again and again.
        raise OSError(errno.ELOOP, "it is a symbolic link that leads nowhere; remove it", path)
    return True


def link(temporary: str, path: str) -> Created:
    """Give a file its name, if nobody has it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return Created.EXISTS
    except OSError as error:
        if error.errno in _LINK_UNDECIDED:
            return Created.UNKNOWN
        if error.errno in _NO_HARD_LINKS:
            raise UnsupportedFormatError(
                f"cannot create {path}: this file system has no hard links ({error.strerror}), so "
                "it cannot put an object only if it is absent, and commits would overwrite each "
                f"other. {_way_out(path)}"
            ) from error
        raise failure_of("create", path, error) from error
    try:
        sync_directory(os.path.dirname(path))
    except OSError:
        return Created.UNKNOWN
    return Created.YES


def put_in_place(temporary: str, path: str) -> None:
    """Give a file its name; a file that has it is replaced."""
    try:
        os.replace(temporary, path)
    except BaseException:
        discard(temporary)
        raise
    sync_directory(os.path.dirname(path))


def discard(temporary: str) -> None:
    """Remove a file that nobody needs, if that is possible."""
    with suppress(OSError):
        os.unlink(temporary)


def sync_directory(directory: str) -> None:
    """Names in a directory last only after this."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_far(directory: str) -> bool:
    """True if the file system of a directory may be on another machine, as far as Linux tells.
    Elsewhere it counts as near."""
    try:
        device = os.stat(directory).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            kind = kind_of_mount(mounts, f"{os.major(device)}:{os.minor(device)}")
    except OSError:
        return False
    return kind is not None and kind.startswith(_FAR)


def kind_of_mount(mounts: Iterable[str], device: str) -> str | None:
    """The kind of the file system on a device, such as ext4, from the lines of proc(5) mountinfo.
    None if it is not among them."""
    for line in mounts:
        before, _, after = line.partition(" - ")
        if before.split(" ")[2] == device:
            return after.split(" ")[0]
    return None


def is_device_failure(error: BaseException) -> bool:
    """True if the error is an OSError of the disk, and not one of the caller's block."""
    return (
        isinstance(error, OSError)
        and not isinstance(error, LogTableError)
        and error.errno in _DEVICE_FAILED | _NOT_IMPLEMENTED
    )


def failure_of(verb: str, path: str, error: BaseException) -> LogTableError:
    """The error of ours for one of the file system."""
    reason = getattr(error, "strerror", None) or error
    if getattr(error, "errno", None) in _NOT_IMPLEMENTED:
        return UnsupportedFormatError(
            f"cannot {verb} {path}: this file system does not implement what that takes "
            f"({reason}). {_way_out(path)}"
        )
    kind = ObjectMissingError if isinstance(error, FileNotFoundError) else StorageError
    return kind(f"cannot {verb} {path}: {reason}")


def _way_out(path: str) -> str:
    """What to do where a file system can be read but holds no log."""
    if path.startswith("/Volumes/"):
        return (
            "Topics in a volume of Unity Catalog can be read, not written. Use the cloud path of "
            "the volume (s3://, abfss:// or gs://; DESCRIBE VOLUME shows its storageLocation), "
            "with credentials for that path: storage_options={'credentials': 'unity-catalog'} asks "
            "Unity Catalog for them"
        )
    return (
        "Topics on it can be read, not written. Use a local disk, or the object store itself "
        "(s3://, gs://, abfs://)"
    )
