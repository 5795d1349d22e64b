"""Object stores through fsspec: S3 (s3fs), Google Cloud (gcsfs), Azure (adlfs).

Put-if-absent is a condition that the store checks itself: `If-None-Match: *` on S3 and Azure,
`ifGenerationMatch=0` on Google. The general `mode="create"` of fsspec checks first and writes
later, which is not safe, so `locate` lists the stores that may be used.

S3 is tested against moto, which shows the form of the replies, and on a real server (`make
test-s3`), with races, kills and faults on the wire. The code for Google and Azure follows the
documentation of their clients. It has **not been tried**. On an S3-compatible server that ignores
`If-None-Match` commits get lost. Creating a topic detects such a server and refuses it. A server
that checks the condition first and writes later is found by `pylogtable doctor`.
"""

from __future__ import annotations

import asyncio
import builtins
import datetime
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from pylogtable.errors import InvalidRequestError, LogTableError, StorageError
from pylogtable.runtime import Runtime
from pylogtable.storage.base import (
    Created,
    ObjectInfo,
    ObjectMissingError,
    ObjectStore,
    check_copied_size,
    check_key,
    check_prefix,
)
from pylogtable.storage.client import CONCURRENCY, Client

_T = TypeVar("_T")

# Objects with such names belong to this module, and are no objects of a topic [STORE-4].
_TEMPORARY = ".tmp-"
_UPLOAD_PART_BYTES = 8 * 2**20
# Smaller objects are fetched whole: that is cheaper than one request for the footer and one for
# the columns.
WHOLE_BYTES = 512 * 2**10

_NOT_SENT = {"NoCredentialsError", "PartialCredentialsError", "ParamValidationError"}
_UNDECIDED_STATUS = {408, 409, 425, 429}


class RemoteStore(ObjectStore):
    """A bucket or a folder in one. `path` starts with the bucket and has no scheme."""

    concurrency = CONCURRENCY
    whole_bytes = WHOLE_BYTES

    def __init__(
        self, protocol: str, path: str, storage_options: Mapping[str, object] | None = None
    ) -> None:
        self._protocol = protocol
        self._root = path.strip("/")
        self._client = Client(protocol, storage_options or {})

    def __repr__(self) -> str:
        return f"RemoteStore({self.url!r})"

    @property
    def url(self) -> str:
        return f"{self._protocol}://{self._root}"

    @property
    def last_reply_ms(self) -> int | None:
        return self._client.last_reply_ms

    def now_ms(self) -> int:
        path = f"{self._root}/{_TEMPORARY}now-{Runtime().new_id()}"
        try:
            self._ask("write", path, lambda fs: fs.pipe_file(path, b"now"))
            return _modified_ms(self._ask("read", path, lambda fs: fs.info(path)))
        except FileNotFoundError as error:
            raise self._failure("write", path, error) from error
        finally:
            with suppress(FileNotFoundError, StorageError):
                self._ask("delete", path, lambda fs: fs.rm_file(path))

    def below(self, prefix: str) -> RemoteStore:
        deeper = RemoteStore.__new__(RemoteStore)
        deeper._protocol, deeper._client = self._protocol, self._client
        deeper._root = self._path(prefix.rstrip("/"))
        return deeper

    def read(self, key: str) -> bytes | None:
        # With a start, s3fs does not request the size first.
        path = self._path(key)
        return self._whole(path, lambda fs: fs.cat_file(path, start=0))

    def read_many(self, keys: Sequence[str]) -> builtins.list[bytes | None]:
        # One call for all takes half of the processor time that a thread for each takes.
        paths = [self._path(key) for key in keys]
        if len(paths) <= 1:
            return [self.read(key) for key in keys]

        def ask(fs: Any) -> builtins.list[Any]:
            from fsspec.asyn import sync

            async def all_at_once() -> builtins.list[Any]:
                requests = (fs._cat_file(path, start=0) for path in paths)
                return await asyncio.gather(*requests, return_exceptions=True)

            replies: builtins.list[Any] = sync(fs.loop, all_at_once)
            return replies

        replies = self._ask("read", self._root, ask)
        return [
            self._whole(path, partial(_unpacked, reply))
            for path, reply in zip(paths, replies, strict=True)
        ]

    def _whole(self, path: str, request: Callable[[Any], Any]) -> bytes | None:
        try:
            return bytes(self._ask("read", path, request))
        except FileNotFoundError:
            return None
        except _EmptyObject:
            return b""

    def size_of(self, key: str) -> int | None:
        path = self._path(key)
        try:
            found = self._ask("read", path, lambda fs: fs.info(path))
        except FileNotFoundError:
            return None
        return int(found["size"]) if found["type"] == "file" else None

    def create(self, key: str, data: bytes) -> Created:
        path = self._path(key)
        try:
            fs = self._client.fs
        except Exception as error:
            raise self._failure("create", path, error) from error
        try:
            fs.pipe_file(path, data, mode="create")
        except Exception as error:
            outcome = _classify(error)
            if outcome is None:
                raise self._failure("create", path, error) from error
            return outcome
        return Created.YES

    def write(self, key: str, data: bytes) -> None:
        path = self._path(key)
        try:
            self._ask("write", path, lambda fs: fs.pipe_file(path, data))
        except FileNotFoundError as error:
            raise self._failure("write", path, error) from error

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for entry in self._find(check_prefix(prefix)):
            if not entry.key.rpartition("/")[2].startswith(_TEMPORARY):
                yield entry

    def leftovers(self) -> Iterator[ObjectInfo]:
        return self._find(_TEMPORARY)

    def remove_leftover(self, key: str) -> None:
        if not key.startswith(_TEMPORARY):
            raise InvalidRequestError(f"{key!r} is not a temporary object {_TEMPORARY}*")
        self.delete(key)

    def _find(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose key starts with these characters, in key order."""
        # List the bucket with a prefix: for an empty folder s3fs would send a HEAD as well.
        bucket, _, folder = f"{self._root}/{prefix}".partition("/")
        start, cut = f"{bucket}/{folder}", len(self._root) + 1
        try:
            found = self._ask("list", start, lambda fs: fs.find(bucket, prefix=folder, detail=True))
        except FileNotFoundError:
            return
        for name in sorted(found):
            entry = found[name]
            if entry["type"] == "file" and name.startswith(start) and not name.endswith("/"):
                yield ObjectInfo(name[cut:], int(entry["size"]), _modified_ms(entry))

    def list_folders(self) -> builtins.list[str]:
        try:
            found = self._ask("list", self._root, lambda fs: fs.ls(self._root, detail=True))
        except FileNotFoundError:
            return []
        return sorted(
            entry["name"].rstrip("/").rsplit("/", 1)[-1]
            for entry in found
            if entry["type"] == "directory"
        )

    def delete(self, key: str) -> None:
        path = self._path(key)
        with suppress(FileNotFoundError):
            self._ask("delete", path, lambda fs: fs.rm_file(path))

    @contextmanager
    def open_output(self, key: str) -> Iterator[pa.NativeFile]:
        path = self._path(key)
        upload = _Upload(self, path)
        try:
            yield pa.PythonFile(upload, mode="w")
            upload.publish()
        except BaseException:
            upload.discard()
            raise

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        path = self._path(key)
        fetch = self._fetch
        source = RangeFile(lambda a, b: fetch(path, a, b), size_bytes, self.whole_bytes)
        return pa.PythonFile(source, mode="r")

    def copy_from(self, source: ObjectStore, key: str, size_bytes: int) -> None:
        if (
            not isinstance(source, RemoteStore)
            or not self._client.is_same_as(source._client)
            or not self._copied_by_server(source, key, size_bytes)
        ):
            super().copy_from(source, key, size_bytes)

    def _copied_by_server(self, source: RemoteStore, key: str, size_bytes: int) -> bool:
        """False if the server refuses to copy. s3fs copies in parts if an object is too large for
        one request."""
        check_copied_size(self, source, key, source.size_of(key), size_bytes)
        origin, path = source._path(key), self._path(key)
        try:
            self._client.fs.cp_file(origin, path)
        except Exception as error:
            if _refuses_copy(error):
                return False
            if isinstance(error, FileNotFoundError):
                check_copied_size(self, source, key, source.size_of(key), size_bytes)
            raise self._failure("write", path, error) from error
        stored = self.size_of(key)
        if stored != size_bytes:
            raise StorageError(
                f"cannot copy {source.url}/{key} to {self.url}: the server stored {stored} bytes "
                f"instead of {size_bytes}"
            )
        return True

    def _fetch(self, path: str, start: int, end: int) -> bytes:
        """One ranged GET: exactly the bytes `[start, end)`."""
        try:
            data = self._ask("read", path, lambda fs: fs.cat_file(path, start=start, end=end))
        except FileNotFoundError as error:
            raise ObjectMissingError(str(self._failure("read", path, error))) from error
        except _EmptyObject as error:
            raise self._failure("read", path, error) from error
        if len(data) != end - start:
            raise StorageError(
                f"cannot read {self._protocol}://{path}: requested bytes {start} to {end}, "
                f"but got {len(data)} bytes"
            )
        return bytes(data)

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _ask(self, verb: str, path: str, request: Callable[[Any], _T]) -> _T:
        """The reply to a request. Raises FileNotFoundError if the object does not exist, and
        StorageError for any other failure."""
        try:
            return request(self._client.fs)
        except LogTableError:
            raise
        except Exception as error:
            code, status = _reply(error)
            if isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
                raise
            if status == 416:
                raise _EmptyObject("the object is shorter than the requested range") from error
            raise self._failure(verb, path, error) from error

    def _failure(self, verb: str, path: str, error: Exception) -> LogTableError:
        if isinstance(error, LogTableError):
            return error
        reason = self._client.scrub(f"{type(error).__name__}: {error}")
        return StorageError(f"cannot {verb} {self._protocol}://{path}: {reason}")


def _unpacked(reply: Any, fs: Any) -> Any:
    """A reply that is an error is raised."""
    if isinstance(reply, BaseException):
        raise reply
    return reply


class _EmptyObject(Exception):
    """The requested range is beyond the end of the object; always so if the object is empty."""


class RangeFile(io.RawIOBase):
    """A file for pyarrow in which every read is one request.

    pyarrow reads the last 64 KiB for the footer and, with `pre_buffer`, merges the ranges of
    columns, so reading ahead would not help. A small object is fetched once, as a whole.
    """

    def __init__(
        self, fetch: Callable[[int, int], bytes], size_bytes: int, whole_bytes: int
    ) -> None:
        self._fetch = fetch
        self._size = size_bytes
        self._is_small = size_bytes <= whole_bytes
        self._at = 0
        self._whole: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        start = min(self._at, self._size)
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        self._at = end
        if start == end:
            return b""
        if self._whole is None and self._is_small:
            self._whole = self._fetch(0, self._size)
        return self._fetch(start, end) if self._whole is None else self._whole[start:end]


class _Upload(io.RawIOBase):
    """A sink for pyarrow that uploads through fsspec. Closing it does not publish the object."""

    def __init__(self, store: RemoteStore, path: str) -> None:
        self._store = store
        self._path = path
        self._file: Any = self._try(
            lambda: store._client.fs.open(path, "wb", block_size=_UPLOAD_PART_BYTES)
        )

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def write(self, data: Any) -> int:
        return int(self._try(lambda: self._file.write(data)))

    def publish(self) -> None:
        self._try(self._file.close)

    def discard(self) -> None:
        """Abort the upload, and keep the file's destructor from publishing what was written."""
        with suppress(Exception):
            self._file.discard()
        self._file.forced = self._file.closed = True

    def _try(self, step: Callable[[], _T]) -> _T:
        try:
            return step()
        except Exception as error:
            raise self._store._failure("write", self._path, error) from error


def _reply(error: BaseException) -> tuple[str, int]:
    """The error code and the HTTP status of an error, if the client provides them."""
    seen: BaseException | None = error
    while seen is not None:
        response = getattr(seen, "response", None)
        if isinstance(response, dict):
            code = response.get("Error", {}).get("Code", "")
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return str(code), int(status)
        for name in ("status_code", "status", "code"):
            status = getattr(seen, name, None)
            if isinstance(status, int):
                return str(getattr(seen, "error_code", "")), status
        seen = seen.__cause__ or seen.__context__
    return "", 0


def _classify(error: Exception) -> Created | None:
    """The outcome of a put-if-absent that raised; None if certainly nothing was put.

    s3fs turns a 412 into FileExistsError only if the server names the condition, which
    S3-compatible servers may not do. After an error that is not a known refusal, the put may still
    have landed.
    """
    code, status = _reply(error)
    if isinstance(error, FileExistsError) or status == 412:
        return Created.EXISTS
    if isinstance(error, TimeoutError) or code in {"NoSuchKey", "NoSuchUpload"}:
        return Created.UNKNOWN
    refused = (
        isinstance(error, PermissionError | FileNotFoundError | TypeError)
        or type(error).__name__ in _NOT_SENT
        or (400 <= status < 500 and status not in _UNDECIDED_STATUS)
    )
    return None if refused else Created.UNKNOWN


def _refuses_copy(error: Exception) -> bool:
    """True if the server does not copy by itself: it cannot, or it may not read the one place and
    write the other in one request."""
    code, status = _reply(error)
    return (
        isinstance(error, PermissionError | NotImplementedError)
        or code == "NotImplemented"
        or status in {400, 403, 405, 501}
    )


def _modified_ms(entry: Mapping[str, Any]) -> int:
    for name in ("LastModified", "last_modified", "mtime", "updated"):
        value = entry.get(name)
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
        if isinstance(value, datetime.datetime):
            return round(value.timestamp() * 1000)
        if isinstance(value, int | float):
            return round(value * 1000)
    raise StorageError(f"the store did not say when {entry.get('name')} was written")
