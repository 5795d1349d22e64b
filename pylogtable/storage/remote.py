"""Object stores through fsspec: S3 (s3fs), Google Cloud (gcsfs), Azure (adlfs).

Put-if-absent is a condition that the store checks itself: `If-None-Match: *` on S3 and Azure,
`ifGenerationMatch=0` on Google. The general `mode="create"` of fsspec checks first and writes
later, which is not safe, so `locate` lists the stores that may be used.

S3 is tested against moto, which shows the form of the replies, and on a real server (`make
test-s3`), with races, kills and faults on the wire. What the clients for Google and Azure send is
tested (`tests/storage/test_wire.py`), but not with real servers. On an S3-compatible server that
ignores `If-None-Match` commits get lost. Creating a topic detects such a server and refuses it. A
server that checks the condition first and writes later is found by `pylogtable doctor`.
"""

from __future__ import annotations

import builtins
import datetime
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from pylogtable.errors import InvalidRequestError, LogTableError, StorageError
from pylogtable.runtime import Runtime
from pylogtable.storage.base import (
    Created,
    NotSentError,
    ObjectInfo,
    ObjectMissingError,
    ObjectStore,
    UnansweredError,
    check_copied_size,
    check_key,
    check_prefix,
)
from pylogtable.storage.client import CONCURRENCY, Client
from pylogtable.storage.replies import outcome_of_create, refuses_copy, reply_of, was_never_sent
from pylogtable.storage.requests import Requests, Send
from pylogtable.storage.upload import FileUpload, Upload


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


_T = TypeVar("_T")

# Objects with such names belong to this module, and are no objects of a topic [STORE-4].
_TEMPORARY = ".tmp-"
# Smaller objects are fetched whole: that is cheaper than one request for the footer and one for
# the columns.
WHOLE_BYTES = 512 * 2**10


class RemoteStore(ObjectStore):
    """A bucket or a folder in one. `path` starts with the bucket and has no scheme."""

    is_remote = True
    concurrency = CONCURRENCY
    whole_bytes = WHOLE_BYTES

    def __init__(
        self, protocol: str, path: str, storage_options: Mapping[str, object] | None = None
    ) -> None:
        self._protocol = protocol
        self._root = path.strip("/")
        self._client = Client(protocol, storage_options or {})
        self._requests = Requests(self._client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        return f"{self._protocol}://{self._root}"

    @property
    def last_reply_ms(self) -> int | None:
        return self._client.last_reply_ms

    def now_ms(self) -> int:
        path = f"{self._root}/{_TEMPORARY}now-{Runtime().new_id()}"
        try:
            self._ask("write", path, lambda fs: fs._pipe_file(path, b"now"))
            return modified_ms(self._ask("read", path, lambda fs: fs._info(path)))
        except FileNotFoundError as error:
            raise self._failure("write", path, error) from error
        finally:
            with suppress(FileNotFoundError, StorageError):
                self._ask("delete", path, lambda fs: fs._rm_file(path))

    def below(self, prefix: str) -> RemoteStore:
        deeper = self._twin()
        deeper._root = self._path(prefix.rstrip("/"))
        return deeper

    def read(self, key: str) -> bytes | None:
        path = self._path(key)
        return self._whole(path, lambda: self._requests.patiently(_get(path)))

    def read_many(self, keys: Sequence[str]) -> builtins.list[bytes | None]:
        paths = [self._path(key) for key in keys]
        if len(paths) <= 1:
            return [self.read(key) for key in keys]
        with self._explaining("read", self._root):
            replies = self._requests.all_patiently([_get(path) for path in paths])
        return [
            self._whole(path, partial(_unpacked, reply))
            for path, reply in zip(paths, replies, strict=True)
        ]

    def _whole(self, path: str, reply: Callable[[], Any]) -> bytes | None:
        try:
            with self._explaining("read", path):
                return bytes(reply())
        except FileNotFoundError:
            return None
        except _EmptyObject:
            return b""

    def size_of(self, key: str) -> int | None:
        path = self._path(key)
        try:
            found = self._ask("read", path, lambda fs: fs._info(path))
        except FileNotFoundError:
            return None
        return int(found["size"]) if found["type"] == "file" else None

    def create(self, key: str, data: bytes) -> Created:
        # One request, whatever its answer: after a second one a refusal would prove nothing.
        path, size = self._path(key), len(data)
        try:
            how = {"mode": "create", **self._client.in_one_put(size)}
            self._requests.once(lambda fs: fs._pipe_file(path, data, **how), size)
        except Exception as error:
            if isinstance(error, UnansweredError) or was_never_sent(error):
                raise NotSentError(str(self._failure("create", path, error))) from error
            outcome = None if isinstance(error, LogTableError) else outcome_of_create(error)
            if outcome is None:
                raise self._failure("create", path, error) from error
            return outcome
        return Created.YES

    def write(self, key: str, data: bytes) -> None:
        path = self._path(key)
        try:
            self._ask("write", path, lambda fs: fs._pipe_file(path, data), len(data))
        except FileNotFoundError as error:
            raise self._failure("write", path, error) from error

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for entry in self._find(check_prefix(prefix)):
            if not entry.key.rpartition("/")[2].startswith(_TEMPORARY):
                yield entry

    def list_after(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        if self._protocol != "s3":
            yield from super().list_after(prefix, after)
            return
        bucket, _, start = f"{self._root}/{check_prefix(prefix)}".partition("/")
        above, cut = self._path(after).partition("/")[2], len(self._root) + 1
        found = self._ask(
            "list", f"{bucket}/{start}", lambda fs: _s3_after(fs, bucket, start, above), math.inf
        )
        for entry in found:
            key = f"{bucket}/{entry['Key']}"[cut:]
            if not key.endswith("/") and not key.rpartition("/")[2].startswith(_TEMPORARY):
                yield ObjectInfo(key, int(entry["Size"]), modified_ms(entry))

    def leftovers(self) -> Iterator[ObjectInfo]:
        return self._find(_TEMPORARY)

    def remove_leftover(self, key: str) -> None:
        if not key.startswith(_TEMPORARY):
            raise InvalidRequestError(f"{key!r} is not a temporary object {_TEMPORARY}*")
        self.delete(key)

    def _find(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose key starts with these characters, in key order."""
        bucket, _, folder = f"{self._root}/{prefix}".partition("/")
        start, cut = f"{bucket}/{folder}", len(self._root) + 1
        try:
            found = self._ask(
                "list", start, lambda fs: fs._find(bucket, prefix=folder, detail=True), math.inf
            )
        except FileNotFoundError:
            return
        for name in sorted(found):
            entry = found[name]
            if entry["type"] == "file" and name.startswith(start) and not name.endswith("/"):
                yield ObjectInfo(name[cut:], int(entry["size"]), modified_ms(entry))

    def list_folders(self) -> builtins.list[str]:
        root = self._root
        try:
            found = self._ask("list", root, lambda fs: fs._ls(root, detail=True), math.inf)
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
            self._ask("delete", path, lambda fs: fs._rm_file(path))

    @contextmanager
    def open_output(self, key: str) -> Iterator[pa.NativeFile]:
        upload = self._upload(self._path(key))
        try:
            yield pa.PythonFile(upload, mode="w")
            upload.publish()
        except BaseException:
            upload.discard()
            raise

    def _upload(self, path: str) -> Upload:
        return FileUpload(lambda step: self._written(path, step), self._client.fs, path)

    def _written(self, path: str, step: Callable[[], _T]) -> _T:
        """The result of a step of an upload. Whatever goes wrong is an error of the store."""
        try:
            return step()
        except Exception as error:
            raise self._failure("write", path, error) from _cause(error)

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
            self._requests.patiently(lambda fs: fs._cp_file(origin, path), size_bytes)
        except Exception as error:
            if refuses_copy(error):
                return False
            if isinstance(error, FileNotFoundError):
                check_copied_size(self, source, key, source.size_of(key), size_bytes)
            raise self._failure("write", path, error) from _cause(error)
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
            data = self._ask(
                "read", path, lambda fs: fs._cat_file(path, start=start, end=end), end - start
            )
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

    def _ask(self, verb: str, path: str, send: Send, size_bytes: float = 0) -> Any:
        """The reply to a request. Raises FileNotFoundError if the object does not exist, and
        StorageError for any other failure."""
        with self._explaining(verb, path):
            return self._requests.patiently(send, size_bytes)

    @contextmanager
    def _explaining(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            code, status = reply_of(error)
            if isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
                raise
            if status == 416:
                raise _EmptyObject("the object is shorter than the requested range") from error
            raise self._failure(verb, path, error) from _cause(error)

    def _failure(self, verb: str, path: str, error: Exception) -> LogTableError:
        if isinstance(error, LogTableError) and not isinstance(error, UnansweredError):
            return error
        reason = self._client.explain(error)
        kind = UnansweredError if isinstance(error, UnansweredError) else StorageError
        return kind(f"cannot {verb} {self._protocol}://{path}: {reason}")


def _cause(error: Exception) -> BaseException:
    """The client's own error."""
    return error.__cause__ or error if isinstance(error, UnansweredError) else error


def _get(path: str) -> Send:
    # With a start, s3fs does not request the size first.
    return lambda fs: fs._cat_file(path, start=0)


async def _s3_after(fs: Any, bucket: str, prefix: str, above: str) -> list[Mapping[str, Any]]:
    """The objects with this prefix whose keys are above `above`. s3fs cannot begin a listing in the
    middle."""
    found: list[Mapping[str, Any]] = []
    where = {"StartAfter": above}
    while True:
        page = await fs._call_s3(
            "list_objects_v2", Bucket=bucket, Prefix=prefix, **where, **fs.req_kw
        )
        found += page.get("Contents", [])
        if not page.get("IsTruncated"):
            return found
        where = {"ContinuationToken": page["NextContinuationToken"]}


def _unpacked(reply: Any) -> Any:
    """A reply that is an error is raised."""
    if isinstance(reply, BaseException):
        raise reply
    return reply


class _EmptyObject(Exception):
    """The requested range is beyond the end of the object; always so if the object is empty."""


def modified_ms(entry: Mapping[str, Any]) -> int:
    """When an object was last changed, as a listing tells it."""
    for name in ("LastModified", "last_modified", "mtime", "updated"):
        value = entry.get(name)
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
        if isinstance(value, datetime.datetime):
            return round(value.timestamp() * 1000)
        if isinstance(value, int | float):
            return round(value * 1000)
    raise StorageError(f"the store did not say when {entry.get('name')} was written")
