"""A store in a local directory. The file system must have hard links and a reliable fsync."""

from __future__ import annotations

import builtins
import errno
import itertools
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import pyarrow as pa

from pylogtable.errors import (
    InvalidRequestError,
    LogTableError,
    StorageError,
    UnsupportedFormatError,
)
from pylogtable.storage.base import (
    Created,
    NotSentError,
    ObjectInfo,
    ObjectMissingError,
    ObjectStore,
    check_copied_size,
    check_key,
    check_prefix,
)

_TEMPORARY = ".tmp-"
_ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_NOT_IMPLEMENTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
# Linux says EPERM for a link where a FUSE file system says ENOSYS.
_NO_HARD_LINKS = {*_NOT_IMPLEMENTED, errno.EPERM, errno.EXDEV}
_LINK_UNDECIDED = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR}
_DEVICE_FAILED = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip

_serial = itertools.count()


class _Shared:
    """What all stores below one root have in common: the directories that are known to exist, and
    the time of the last write."""

    def __init__(self) -> None:
        self.ready: set[str] = set()
        self.written_ms: int | None = None


class LocalStore(ObjectStore):
    """Every object is a file. It is written under a temporary name and synced to disk first.

    Put-if-absent is `link(2)`, which fails if the name exists and never shows half a file. On a
    file system without hard links, `create` raises `UnsupportedFormatError`: a rename overwrites,
    and a look before a write is no condition [STORE-2]. Symbolic links can be read but are not
    listed. Temporary files of killed writers are not listed either; `leftovers` finds them.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = self._base = os.path.abspath(root)
        self._shared = _Shared()

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    def __reduce__(self) -> tuple[type[LocalStore], tuple[str], dict[str, Any]]:
        return LocalStore, (self._root,), {"limits": self.limits}

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    def below(self, prefix: str) -> LocalStore:
        deeper = self._twin()
        deeper._root = self._path(prefix.rstrip("/"))
        return deeper

    @property
    def last_reply_ms(self) -> int | None:
        return self._shared.written_ms

    def now_ms(self) -> int:
        try:
            temporary, file = self._reserve(os.path.join(self._root, "now"))
            try:
                with file:
                    return self._note_time(file)
            finally:
                _discard(temporary)
        except OSError as error:
            raise _failure("write", self._root, error) from error

    def read(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                return file.read()
        except _ABSENT:
            return None
        except OSError as error:
            raise _failure("read", path, error) from error

    def size_of(self, key: str) -> int | None:
        path = self._path(key)
        try:
            found = os.stat(path)
        except _ABSENT:
            return None
        except OSError as error:
            raise _failure("read", path, error) from error
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def create(self, key: str, data: bytes) -> Created:
        path = self._path(key)
        try:
            if _is_taken(path):
                return Created.EXISTS
            temporary = self._save(path, data)
        except OSError as error:
            failure = _failure("create", path, error)
            if isinstance(failure, UnsupportedFormatError):
                raise failure from error
            raise NotSentError(str(failure)) from error
        try:
            return _link(temporary, path)
        finally:
            _discard(temporary)

    def write(self, key: str, data: bytes) -> None:
        path = self._path(key)
        try:
            temporary = self._save(path, data)
            _publish(temporary, path)
        except OSError as error:
            raise _failure("write", path, error) from error

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        start = self._root
        if check_prefix(prefix):
            start = os.path.join(start, *prefix[:-1].split("/"))
        try:
            for key, entry in _walk(start, prefix):
                with suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    yield ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000)
        except OSError as error:
            raise _failure("list", start, error) from error

    def list_folders(self) -> builtins.list[str]:
        try:
            return sorted(
                entry.name
                for entry in _scan(self._root)
                if entry.is_dir(follow_symlinks=False) and _holds_files(entry.path)
            )
        except OSError as error:
            raise _failure("list", self._root, error) from error

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            with suppress(*_ABSENT):
                os.unlink(path)
        except OSError as error:
            raise _failure("delete", path, error) from error

    def leftovers(self) -> Iterator[ObjectInfo]:
        try:
            for directory, _, names in os.walk(self._root):
                for name in sorted(names):
                    if name.startswith(_TEMPORARY):
                        path = os.path.join(directory, name)
                        with suppress(FileNotFoundError):
                            found = os.stat(path, follow_symlinks=False)
                            key = os.path.relpath(path, self._root).replace(os.sep, "/")
                            yield ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000)
        except OSError as error:
            raise _failure("list", self._root, error) from error

    def remove_leftover(self, key: str) -> None:
        folder, slash, name = check_key(key).rpartition("/")
        if not name.startswith(_TEMPORARY):
            raise InvalidRequestError(f"{key!r} is not a temporary file {_TEMPORARY}*")
        path = os.path.join(self._path(folder) if slash else self._root, name)
        try:
            with suppress(*_ABSENT):
                os.unlink(path)
        except OSError as error:
            raise _failure("delete", path, error) from error

    def remove_empty_folders(self, prefix: str) -> None:
        # A writer that lost its folder makes it again, see `_reserve`.
        check_prefix(prefix)
        for directory, _, _ in os.walk(os.path.join(self._root, prefix), topdown=False):
            with suppress(OSError):
                os.rmdir(directory)

    @contextmanager
    def open_output(self, key: str) -> Iterator[pa.NativeFile]:
        with self._replacing(self._path(key)) as temporary, pa.OSFile(temporary, "wb") as sink:
            yield sink

    @contextmanager
    def _replacing(self, path: str) -> Iterator[str]:
        """The name of a file that takes the place of `path` when the block ends."""
        try:
            temporary, file = self._reserve(path)
            file.close()
        except OSError as error:
            raise _failure("write", path, error) from error
        try:
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
                self._note_time(file)
            _publish(temporary, path)
        except BaseException as error:
            _discard(temporary)
            if _is_device_failure(error):
                raise _failure("write", path, error) from error
            raise

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        path = self._path(key)
        try:
            return pa.OSFile(path, "rb")
        except OSError as error:
            raise _failure("read", path, error) from error

    def copy_from(self, source: ObjectStore, key: str, size_bytes: int) -> None:
        if isinstance(source, LocalStore):
            self._copy_file(source, key, size_bytes)
        else:
            super().copy_from(source, key, size_bytes)

    def _copy_file(self, source: LocalStore, key: str, size_bytes: int) -> None:
        path, origin = self._path(key), source._path(key)
        check_copied_size(self, source, key, source.size_of(key), size_bytes)
        with self._replacing(path) as temporary:
            try:
                shutil.copyfile(origin, temporary)  # the kernel copies
            except OSError as error:
                if error.filename == temporary:
                    raise StorageError(f"cannot write {path}: {error.strerror}") from error
                raise _failure("copy", f"{origin} to {path}", error) from error
            check_copied_size(self, source, key, os.stat(temporary).st_size, size_bytes)

    def _path(self, key: str) -> str:
        parts = check_key(key).split("/")
        if any(part.startswith(_TEMPORARY) for part in parts):
            raise InvalidRequestError(f"{key!r} is not a valid key: {_TEMPORARY}* is reserved")
        return os.path.join(self._root, *parts)

    def _save(self, path: str, data: bytes) -> str:
        """Write a file next to `path` and sync it; returns its name."""
        temporary, file = self._reserve(path)
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                self._note_time(file)
        except BaseException:
            _discard(temporary)
            raise
        return temporary

    def _reserve(self, path: str) -> tuple[str, BinaryIO]:
        """Open a new file next to `path`. If its directory was removed meanwhile, try again."""
        directory = os.path.dirname(path)
        self._prepare(directory)
        try:
            return _open_temporary(directory)
        except FileNotFoundError:
            self._shared.ready.clear()
            self._prepare(directory)
            return _open_temporary(directory)

    def _note_time(self, file: BinaryIO) -> int:
        """The modified time of a file that was just written: the file system's clock. On a network
        file system that is the server's."""
        self._shared.written_ms = written_ms = os.fstat(file.fileno()).st_mtime_ns // 1_000_000
        return written_ms

    def _prepare(self, directory: str) -> None:
        """Make the directory and sync its parent, even if another process just made it."""
        if directory in self._shared.ready:
            return
        parent = os.path.dirname(directory)
        if len(directory) > len(self._base) or not os.path.isdir(directory):
            self._prepare(parent)
            with suppress(FileExistsError):
                os.mkdir(directory)
            _sync_directory(parent)
        self._shared.ready.add(directory)


def _open_temporary(directory: str) -> tuple[str, BinaryIO]:
    """Open a file with a name that nobody else uses. Names that a dead process left behind, on this
    host or another, are skipped."""
    while True:
        name = f"{_TEMPORARY}{os.getpid()}-{threading.get_ident()}-{next(_serial)}"
        path = os.path.join(directory, name)
        with suppress(FileExistsError):
            return path, open(path, "xb")


def _is_taken(path: str) -> bool:
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


def _link(temporary: str, path: str) -> Created:
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
        raise _failure("create", path, error) from error
    try:
        _sync_directory(os.path.dirname(path))
    except OSError:
        return Created.UNKNOWN
    return Created.YES


def _publish(temporary: str, path: str) -> None:
    try:
        os.replace(temporary, path)
    except BaseException:
        _discard(temporary)
        raise
    _sync_directory(os.path.dirname(path))


def _discard(temporary: str) -> None:
    with suppress(OSError):
        os.unlink(temporary)


def _sync_directory(directory: str) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _scan(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if not entry.name.startswith(_TEMPORARY)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _holds_files(directory: str) -> bool:
    """True if there is a file at any depth; stops at the first, since a topic has very many."""
    deeper = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith(_TEMPORARY):
                    continue
                if entry.is_file(follow_symlinks=False):
                    return True
                if entry.is_dir(follow_symlinks=False):
                    deeper.append(entry.path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(map(_holds_files, deeper))


def _walk(directory: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All files in key order. A directory sorts as its name followed by `/`."""
    named = []
    for entry in _scan(directory):
        if entry.is_dir(follow_symlinks=False):
            named.append((f"{prefix}{entry.name}/", entry))
        elif entry.is_file(follow_symlinks=False):
            named.append((f"{prefix}{entry.name}", entry))
    named.sort(key=lambda pair: pair[0])
    for key, entry in named:
        if key.endswith("/"):
            yield from _walk(entry.path, key)
        else:
            yield key, entry


def _is_device_failure(error: BaseException) -> bool:
    """True if the error is an OSError of the disk, and not one of the caller's block."""
    return (
        isinstance(error, OSError)
        and not isinstance(error, LogTableError)
        and error.errno in _DEVICE_FAILED | _NOT_IMPLEMENTED
    )


def _failure(verb: str, path: str, error: BaseException) -> LogTableError:
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
