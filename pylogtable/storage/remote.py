"""Object stores in the cloud: S3, Google Cloud Storage, Azure. One store for all of them.

What is sent is in `storage/s3.py`, `storage/google.py` and `storage/azure.py`; what is sent again
is in `storage/requests.py`. Put-if-absent is a condition that the store checks itself.
`storage/open.py` lists the stores that may be used. All of them are tested on servers, with races,
kills and faults on the wire (`make test-clouds`).
"""

from __future__ import annotations

import builtins
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
from pylogtable.storage.client import Client
from pylogtable.storage.credentials import CredentialsError
from pylogtable.storage.range_file import RangeFile
from pylogtable.storage.replies import (
    lacks_credentials,
    outcome_of_create,
    refuses_copy,
    reply_of,
    was_never_sent,
    wrong_credentials,
)
from pylogtable.storage.requests import Requests, Send
from pylogtable.storage.upload import Upload
from pylogtable.storage.wire import CONCURRENCY, Page, Wire

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
        self,
        protocol: str,
        path: str,
        storage_options: Mapping[str, object] | None = None,
        account: str = "",
    ) -> None:
        self._protocol = protocol
        self._root = path.strip("/")
        #: The host of an account of Azure, which is a part of the address.
        self._account = account
        self._client = Client(protocol, self.url, storage_options or {})
        self._requests = Requests(self._client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        return self._address(self._root)

    @property
    def endpoint(self) -> str:
        return self._client.endpoint

    def _address(self, path: str) -> str:
        if not self._account:
            return f"{self._protocol}://{path}"
        container, slash, below = path.partition("/")
        return f"abfss://{container}@{self._account}{slash}{below}"

    @property
    def last_reply_ms(self) -> int | None:
        return self._client.last_reply_ms

    def now_ms(self) -> int:
        path = f"{self._root}/{_TEMPORARY}now-{Runtime().new_id()}"
        try:
            self._ask("write", path, lambda wire: wire.put(path, b"now"))
            found: ObjectInfo = self._ask("read", path, lambda wire: wire.info(path))
            return found.modified_ms
        except FileNotFoundError as error:
            raise self._failure("write", path, error) from error
        finally:
            with suppress(FileNotFoundError, StorageError):
                self._ask("delete", path, lambda wire: wire.delete(path))

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
            found: ObjectInfo = self._ask("look at", path, lambda wire: wire.info(path))
        except FileNotFoundError:
            return None
        return found.size_bytes

    def create(self, key: str, data: bytes) -> Created:
        # One request, whatever its answer: after a second one a refusal would prove nothing.
        path, size = self._path(key), len(data)
        try:
            self._requests.once(lambda wire: wire.put(path, data, if_absent=True), size)
        except Exception as error:
            if isinstance(error, UnansweredError) or was_never_sent(error):
                failure = str(self._failure("create", path, error))
                raise NotSentError(failure) from self._cause(error)
            outcome = None if isinstance(error, LogTableError) else outcome_of_create(error)
            if outcome is None:
                raise self._failure("create", path, error) from self._cause(error)
            return outcome
        return Created.YES

    def write(self, key: str, data: bytes) -> None:
        path = self._path(key)
        try:
            self._ask("write", path, lambda wire: wire.put(path, data), len(data))
        except FileNotFoundError as error:
            raise self._failure("write", path, error) from error

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._find(check_prefix(prefix))

    def list_after(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        above = self._client.wire.split(self._path(after))[1]
        found = self._find(check_prefix(prefix), above=above)
        return (one for one in found if one.key > after)

    def leftovers(self) -> Iterator[ObjectInfo]:
        return (found for found in self._found(_TEMPORARY) if _is_temporary(found.key))

    def remove_leftover(self, key: str) -> None:
        if not key.startswith(_TEMPORARY):
            raise InvalidRequestError(f"{key!r} is not a temporary object {_TEMPORARY}*")
        self.delete(key)

    def _find(self, prefix: str, **how: Any) -> Iterator[ObjectInfo]:
        return (found for found in self._found(prefix, **how) if not _is_temporary(found.key))

    def _found(self, prefix: str, **how: Any) -> Iterator[ObjectInfo]:
        """All objects whose key starts with these characters, in key order. No order of the store
        is relied on: some list in another one, or in none."""
        pages = self._pages(f"{self._root}/{prefix}", **how)
        found = [entry for page in pages for entry in page.objects]
        cut = len(self._client.wire.split(f"{self._root}/")[1])
        for entry in sorted(found, key=lambda entry: entry.key):
            key = entry.key[cut:]
            if key.startswith(prefix) and not key.endswith("/"):
                yield ObjectInfo(key, entry.size_bytes, entry.modified_ms)

    def list_folders(self) -> builtins.list[str]:
        pages = self._pages(f"{self._root}/", delimited=True)
        found = (folder for page in pages for folder in page.folders)
        return sorted(folder.rstrip("/").rpartition("/")[2] for folder in found)

    def _pages(self, start: str, **how: Any) -> Iterator[Page]:
        """A listing. Each page is a request of its own, and repeated by itself."""
        token = None
        while True:
            page: Page = self._ask("list", start, partial(_page, start=start, token=token, **how))
            yield page
            token = page.token
            if not token:
                return

    def delete(self, key: str) -> None:
        path = self._path(key)
        with suppress(FileNotFoundError):
            self._ask("delete", path, lambda wire: wire.delete(path))

    def delete_many(self, keys: Sequence[str]) -> None:
        at_once = self._client.wire.deleted_at_once
        if at_once == 1:
            super().delete_many(keys)
            return
        paths = [self._path(key) for key in keys]
        for at in range(0, len(paths), at_once):
            some = paths[at : at + at_once]
            self._ask("delete", some[0], partial(_delete_together, paths=some))

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
        def ask(send: Send, size_bytes: int) -> Any:
            return self._written(path, lambda: self._requests.patiently(send, size_bytes))

        return Upload(path, ask)

    def _written(self, path: str, step: Callable[[], _T]) -> _T:
        """The result of a step of an upload. Whatever goes wrong is an error of the store."""
        try:
            return step()
        except Exception as error:
            raise self._failure("write", path, error) from self._cause(error)

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
        """False if the server refuses to copy."""
        check_copied_size(self, source, key, source.size_of(key), size_bytes)
        origin, path = source._path(key), self._path(key)
        try:
            self._requests.patiently(lambda wire: wire.copy(origin, path), size_bytes)
        except Exception as error:
            if refuses_copy(error):
                return False
            if isinstance(error, FileNotFoundError):
                check_copied_size(self, source, key, source.size_of(key), size_bytes)
            raise self._failure("write", path, error) from self._cause(error)
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
            data = self._ask("read", path, lambda wire: wire.get(path, start, end), end - start)
        except FileNotFoundError as error:
            raise ObjectMissingError(str(self._failure("read", path, error))) from error
        except _EmptyObject as error:
            raise self._failure("read", path, error) from error
        if len(data) != end - start:
            raise StorageError(
                f"cannot read {self._address(path)}: requested bytes {start} to {end}, "
                f"but got {len(data)} bytes"
            )
        return bytes(data)

    def _path(self, key: str) -> str:
        path = f"{self._root}/{check_key(key)}"
        if not path.isascii() and any("\ud800" <= each <= "\udfff" for each in path):
            raise InvalidRequestError(f"{path!r} has half of a character, which has no bytes")
        return path

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
            if isinstance(error, FileNotFoundError):
                raise
            if verb == "read" and reply_of(error)[1] == 416:
                raise _EmptyObject("the object is shorter than the requested range") from error
            raise self._failure(verb, path, error) from self._cause(error)

    def _failure(self, verb: str, path: str, error: Exception) -> LogTableError:
        if isinstance(error, LogTableError) and not isinstance(error, UnansweredError):
            return error
        reason = self._client.explain(error)
        kind: type[StorageError] = StorageError
        if isinstance(error, UnansweredError):
            kind = UnansweredError
        elif lacks_credentials(error) or wrong_credentials(error) is not None:
            kind = CredentialsError
        return kind(f"cannot {verb} {self._address(path)}: {reason}")

    def _cause(self, error: Exception) -> BaseException | None:
        """The client's own error. An error of ours has its cause already."""
        return error.__cause__ if isinstance(error, LogTableError) else self._client.shown(error)


def _get(path: str) -> Send:
    return lambda wire: wire.get(path)


async def _page(wire: Wire, start: str, **how: Any) -> Page:
    return await wire.page(start, **how)


async def _delete_together(wire: Wire, paths: Sequence[str]) -> None:
    await wire.delete_together(paths)


def _is_temporary(key: str) -> bool:
    return key.rpartition("/")[2].startswith(_TEMPORARY)


def _unpacked(reply: Any) -> Any:
    """A reply that is an error is raised."""
    if isinstance(reply, BaseException):
        raise reply
    return reply


class _EmptyObject(Exception):
    """The requested range is beyond the end of the object; always so if the object is empty."""
