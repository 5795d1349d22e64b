"""A store in a local directory. The file system must have hard links and a reliable fsync."""

from __future__ import annotations

import builtins
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import pyarrow as pa

from pylogtable.errors import InvalidRequestError, StorageError, UnsupportedFormatError
from pylogtable.storage.base import (
    Created,
    NotSentError,
    ObjectInfo,
    ObjectStore,
    check_copied_size,
    check_key,
    check_prefix,
)
from pylogtable.storage.local_files import (
    ABSENT,
    TEMPORARY,
    discard,
    failure_of,
    is_device_failure,
    is_far,
    is_taken,
    link,
    open_temporary,
    put_in_place,
    sync_directory,
)
from pylogtable.storage.watched import watch, watched


class _Shared:
    """What all stores below one root have in common: the directories that are known to exist, the
    time of the last write, and whether a look at a file is a request to a server."""

    def __init__(self) -> None:
        self.ready: set[str] = set()
        self.written_ms: int | None = None
        self.is_far: bool | None = None


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
                discard(temporary)
        except OSError as error:
            raise failure_of("write", self._root, error) from error

    @watched("get")
    def read(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                return file.read()
        except ABSENT:
            return None
        except OSError as error:
            raise failure_of("read", path, error) from error

    @watched("head")
    def size_of(self, key: str) -> int | None:
        path = self._path(key)
        try:
            found = os.stat(path)
        except ABSENT:
            return None
        except OSError as error:
            raise failure_of("read", path, error) from error
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def peek(self, key: str) -> bool | None:
        path = self._path(key)
        if self._shared.is_far is None:
            self._shared.is_far = is_far(self._base)
        return None if self._shared.is_far else os.path.exists(path)

    @watched("put")
    def create(self, key: str, data: bytes) -> Created:
        path = self._path(key)
        try:
            if is_taken(path):
                return Created.EXISTS
            temporary = self._save(path, data)
        except OSError as error:
            failure = failure_of("create", path, error)
            if isinstance(failure, UnsupportedFormatError):
                raise failure from error
            raise NotSentError(str(failure)) from error
        try:
            return link(temporary, path)
        finally:
            discard(temporary)

    @watched("put")
    def write(self, key: str, data: bytes) -> None:
        path = self._path(key)
        try:
            temporary = self._save(path, data)
            put_in_place(temporary, path)
        except OSError as error:
            raise failure_of("write", path, error) from error

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        start = self._root
        if check_prefix(prefix):
            start = os.path.join(start, *prefix[:-1].split("/"))
        try:
            with watch("list", start):
                for key, entry in _walk(start, prefix):
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        yield ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000)
        except OSError as error:
            raise failure_of("list", start, error) from error

    def list_folders(self) -> builtins.list[str]:
        try:
            with watch("list", self._root):
                return sorted(
                    entry.name
                    for entry in _scan(self._root)
                    if entry.is_dir(follow_symlinks=False) and _holds_files(entry.path)
                )
        except OSError as error:
            raise failure_of("list", self._root, error) from error

    def is_there(self) -> bool:
        return os.path.isdir(self._root)

    @watched("delete")
    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            with suppress(*ABSENT):
                os.unlink(path)
        except OSError as error:
            raise failure_of("delete", path, error) from error

    def leftovers(self) -> Iterator[ObjectInfo]:
        try:
            for directory, _, names in os.walk(self._root):
                for name in sorted(names):
                    if name.startswith(TEMPORARY):
                        path = os.path.join(directory, name)
                        with suppress(FileNotFoundError):
                            found = os.stat(path, follow_symlinks=False)
                            key = os.path.relpath(path, self._root).replace(os.sep, "/")
                            yield ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000)
        except OSError as error:
            raise failure_of("list", self._root, error) from error

    def remove_leftover(self, key: str) -> None:
        folder, slash, name = check_key(key).rpartition("/")
        if not name.startswith(TEMPORARY):
            raise InvalidRequestError(f"{key!r} is not a temporary file {TEMPORARY}*")
        path = os.path.join(self._path(folder) if slash else self._root, name)
        try:
            with suppress(*ABSENT):
                os.unlink(path)
        except OSError as error:
            raise failure_of("delete", path, error) from error

    def remove_empty_folders(self, prefix: str) -> None:
        # A writer that lost its folder makes it again, see `_reserve`.
        check_prefix(prefix)
        for directory, _, _ in os.walk(os.path.join(self._root, prefix), topdown=False):
            with suppress(OSError):
                os.rmdir(directory)

    @contextmanager
    def open_output(self, key: str) -> Iterator[pa.NativeFile]:
        with (
            watch("put", f"{self.url}/{key}"),
            self._replacing(self._path(key)) as temporary,
            pa.OSFile(temporary, "wb") as sink,
        ):
            yield sink

    @contextmanager
    def _replacing(self, path: str) -> Iterator[str]:
        """The name of a file that takes the place of `path` when the block ends."""
        try:
            temporary, file = self._reserve(path)
            file.close()
        except OSError as error:
            raise failure_of("write", path, error) from error
        try:
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
                self._note_time(file)
            put_in_place(temporary, path)
        except BaseException as error:
            discard(temporary)
            # Without the temporary file, somebody has removed the folder of the store.
            is_gone = isinstance(error, FileNotFoundError) and error.filename == temporary
            if is_gone or is_device_failure(error):
                raise failure_of("write", path, error) from error
            raise

    @watched("get")
    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        path = self._path(key)
        try:
            return pa.OSFile(path, "rb")
        except OSError as error:
            raise failure_of("read", path, error) from error

    def copy_from(self, source: ObjectStore, key: str, size_bytes: int) -> None:
        if isinstance(source, LocalStore):
            with watch("copy", f"{self.url}/{key}"):
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
                raise failure_of("copy", f"{origin} to {path}", error) from error
            check_copied_size(self, source, key, os.stat(temporary).st_size, size_bytes)

    def _path(self, key: str) -> str:
        parts = check_key(key).split("/")
        if any(part.startswith(TEMPORARY) for part in parts):
            raise InvalidRequestError(f"{key!r} is not a valid key: {TEMPORARY}* is reserved")
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
            discard(temporary)
            raise
        return temporary

    def _reserve(self, path: str) -> tuple[str, BinaryIO]:
        """Open a new file next to `path`. If its directory was removed meanwhile, try again."""
        directory = os.path.dirname(path)
        self._prepare(directory)
        try:
            return open_temporary(directory)
        except FileNotFoundError:
            self._shared.ready.clear()
            self._prepare(directory)
            return open_temporary(directory)

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
            sync_directory(parent)
        self._shared.ready.add(directory)


def _scan(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if not entry.name.startswith(TEMPORARY)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _holds_files(directory: str) -> bool:
    """True if there is a file at any depth; stops at the first, since a topic has very many."""
    deeper = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith(TEMPORARY):
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
