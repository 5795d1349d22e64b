"""The interface of an object store: the operations that this format needs.

Keys are relative to a root. They use `/` as separator and do not start with it. A store can be
shared between threads and pickled. If the store fails, it raises `StorageError` with the cause
chained. An object that does not exist is not an error: `read` returns None.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import pyarrow as pa

from pylogtable.errors import InvalidRequestError, StorageError
from pylogtable.limits import DEFAULT_LIMITS, Limits
from pylogtable.storage.threads import borrowed_pool, map_parallel

Self = TypeVar("Self", bound="ObjectStore")

_NO_NAMES = frozenset({"", ".", ".."})


class Created(Enum):
    """The outcome of a put-if-absent. After UNKNOWN the object may still arrive, and after EXISTS
    it may be ours from an earlier call: read it back to know [STORE-3]."""

    YES = "yes"
    EXISTS = "exists"
    UNKNOWN = "unknown"


class ObjectMissingError(StorageError):
    """The object does not exist. Raised by `open_input`, or by the first read after it."""


class NotSentError(StorageError):
    """A put-if-absent failed before anything was sent to the store: a disk was full, or there were
    no credentials. So certainly nothing was stored, now or later."""


class UnansweredError(StorageError):
    """The store has not served a request in the time that it had."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing."""

    key: str
    size_bytes: int
    modified_ms: int


def check_key(key: str) -> str:
    """Return the key. Raise if it is not valid or would lead out of the root [PATH-4]."""
    if "\0" in key or not _NO_NAMES.isdisjoint(key.split("/")):
        raise InvalidRequestError(f"{key!r} is not a valid key")
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix. Raise unless it is `""`, or a key followed by `/`."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequestError(f"{prefix!r} is not a prefix: it must end in '/'")
    return check_key(prefix[:-1]) + "/" if prefix else prefix


class ObjectStore(ABC):
    """The interface of a store [STORE-1]. `tests/storage/contract.py` tests every store against
    it."""

    #: True if a request takes a round trip: then a writer saves requests, and what the store has
    #: just confirmed is not asked for again. If false, a request takes microseconds.
    is_remote: bool = False
    #: How many requests to send in parallel.
    concurrency: int = 1
    #: The first read of a file up to this size fetches all of it; 0 if no file is fetched whole.
    whole_bytes: int = 0
    #: In which pieces work with this store is done.
    limits: Limits = DEFAULT_LIMITS

    def with_limits(self: Self, limits: Limits) -> Self:
        """The same store, for work with other limits. Stores below it have them too, and those in
        other processes."""
        other = self._twin()
        other.limits = limits
        return other

    def _twin(self: Self) -> Self:
        """A store with the same fields."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    @property
    def last_reply_ms(self) -> int | None:
        """The store's time in its last reply that told one, without a request; None if it is not
        known [STORE-5]. Only times of the same store can be compared."""
        return None

    @abstractmethod
    def now_ms(self) -> int:
        """The store's time now: the modified time of an object that is written for this purpose and
        removed again [STORE-5]. It takes requests; use it where files are removed for their age."""

    @property
    def origin(self) -> ObjectStore:
        """The store whose objects these are. What is remembered about them is remembered there."""
        return self

    @property
    @abstractmethod
    def url(self) -> str:
        """The address of the root, without credentials, so that it can be shown to users."""

    @property
    def endpoint(self) -> str:
        """The server, if it was named beside the address. With two servers, the same address is two
        places."""
        return ""

    @abstractmethod
    def below(self, prefix: str) -> ObjectStore:
        """The same store with its root at this prefix."""

    @abstractmethod
    def read(self, key: str) -> bytes | None:
        """The whole object, or None if it does not exist."""

    def read_many(self, keys: Sequence[str]) -> builtins.list[bytes | None]:
        """`read` for each key, in this order. Where requests are slow, they are sent at once."""
        return map_parallel(self, self.read, keys)

    @abstractmethod
    def size_of(self, key: str) -> int | None:
        """The size of an object in bytes, or None if it does not exist. No data is read."""

    def peek(self, key: str) -> bool | None:
        """Whether the object is there, if that can be told in microseconds; None where it takes a
        request. Who waits for an object asks this often."""
        return None

    @abstractmethod
    def create(self, key: str, data: bytes) -> Created:
        """Put `data` if the object does not exist. `data` must not be empty. Readers see all of it
        or nothing. One request is sent. Raises if its answer was a refusal (no permission, no
        bucket), and `NotSentError` if it was not sent."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None:
        """Put `data`, replacing an existing object. Readers see the old or the new one."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key starts with `prefix` (`""`, or ending in `/`), in key order."""

    def list_after(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Those objects of `list(prefix)` whose key is above `after`. Where the store can begin a
        listing there, what is below costs nothing."""
        return (found for found in self.list(prefix) if found.key > after)

    @abstractmethod
    def list_folders(self) -> builtins.list[str]:
        """The names of the folders directly below the root, sorted."""

    def is_there(self) -> bool:
        """False if the root is a folder that does not exist. Most stores have no folders, only
        keys, so any root exists."""
        return True

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete the object. A missing object is not an error."""

    def delete_many(self, keys: Sequence[str]) -> None:
        """`delete` for each key, in as few requests as the store allows."""
        map_parallel(self, self.delete, keys)

    def leftovers(self) -> Iterator[ObjectInfo]:
        """Temporary files that writers left behind when they died. `list` does not show them
        [STORE-4]. A store without temporary files has none."""
        return iter(())

    def remove_leftover(self, key: str) -> None:
        """Delete one of `leftovers()`. A missing file is not an error."""
        raise InvalidRequestError(f"{key!r} is not a temporary file: this store has none")

    def remove_empty_folders(self, prefix: str) -> None:
        """Remove the folder `prefix` and those below it if they hold nothing. Most stores have no
        folders, only keys."""
        check_prefix(prefix)

    @abstractmethod
    def open_output(self, key: str) -> AbstractContextManager[pa.NativeFile]:
        """A stream that writes a new object. The object appears, complete and durable, when the
        block ends; after an exception it does not appear at all."""

    @abstractmethod
    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        """Random access to an object of a known size. If the object does not exist, this call or
        the first read raises `ObjectMissingError`. No extra request is made to check."""

    def copy_from(self, source: ObjectStore, key: str, size_bytes: int) -> None:
        """Copy the object `key` of another store to the same key here, replacing what is there. It
        appears complete and durable, or not at all. Raises `ObjectMissingError` if the other store
        does not have it, and `StorageError` if it has another size there.

        The data passes through this process, unless the stores can copy it themselves."""
        check_copied_size(self, source, key, source.size_of(key), size_bytes)
        copied = 0
        with source.open_input(key, size_bytes) as file, self.open_output(key) as sink:
            for chunk in _chunks(file, size_bytes, self.limits.copy_bytes):
                sink.write(chunk)
                copied += len(chunk)
            check_copied_size(self, source, key, copied, size_bytes)


def check_copied_size(
    target: ObjectStore, source: ObjectStore, key: str, found: int | None, size_bytes: int
) -> None:
    """Raise if an object to copy is missing, or does not have the size that the caller knows."""
    if found is None:
        raise ObjectMissingError(
            f"cannot copy {source.url}/{key} to {target.url}: there is no such object"
        )
    if found != size_bytes:
        raise StorageError(
            f"cannot copy {source.url}/{key} to {target.url}: it has {found} bytes, and should "
            f"have {size_bytes}"
        )


def _chunks(file: pa.NativeFile, size_bytes: int, chunk_bytes: int) -> Iterator[bytes]:
    """The first `size_bytes` of a file, fewer if it is shorter. While one chunk is used, another
    thread reads the next one."""
    if size_bytes <= chunk_bytes:
        yield file.read(size_bytes)
        return
    with borrowed_pool(1) as pool:
        sizes = [min(chunk_bytes, size_bytes - at) for at in range(0, size_bytes, chunk_bytes)]
        coming = pool.submit(file.read, sizes[0])
        for size in sizes[1:]:
            chunk = coming.result()
            coming = pool.submit(file.read, size)
            yield chunk
        yield coming.result()
