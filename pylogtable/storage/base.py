"""The interface of an object store: what this format needs of one.

Keys are relative to a root, use `/` and do not start with it. A store can be shared between threads
and pickled. If the store fails, there is a `StorageError` with its cause chained. An object that
does not exist is not an error: `read` returns None.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from pylogtable.errors import InvalidRequestError, StorageError


class Created(Enum):
    """The outcome of a put-if-absent. Storage clients retry on their own, so after EXISTS the
    object may be ours, and after UNKNOWN it may still arrive: read it back to know [STORE-3]."""

    YES = "yes"
    EXISTS = "exists"
    UNKNOWN = "unknown"


class ObjectMissingError(StorageError):
    """`open_input`, or a read of what it returned, found no such object."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing."""

    key: str
    size_bytes: int
    modified_ms: int


def check_key(key: str) -> str:
    """The key itself. Raises if it is not valid: a key never leads out of the root [PATH-4]."""
    if "\0" in key or any(part in {"", ".", ".."} for part in key.split("/")):
        raise InvalidRequestError(f"{key!r} is not a valid key")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself. Raises unless it is `""`, or a key and a `/`."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequestError(f"{prefix!r} is not a prefix: it must end in '/'")
    return check_key(prefix[:-1]) + "/" if prefix else prefix


class ObjectStore(ABC):
    """The interface of a store [STORE-1]. `tests/storage/contract.py` tests each store for it."""

    #: How many requests to send in parallel; 1 if a request takes only microseconds.
    concurrency: int = 1

    @property
    @abstractmethod
    def url(self) -> str:
        """The address of the root, to be shown to users: it has no credentials."""

    @abstractmethod
    def below(self, prefix: str) -> ObjectStore:
        """The same store with its root at this prefix."""

    @abstractmethod
    def read(self, key: str) -> bytes | None:
        """The whole object, or None if there is none."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> Created:
        """Put `data`, which is not empty, if there is no such object. Readers see all of it or
        nothing. Raises if nothing was put for certain (no permission, no bucket)."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None:
        """Put `data`, replacing an existing object. Readers see the old or the new one."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key starts with `prefix` (`""`, or ending in `/`), in key order."""

    @abstractmethod
    def list_folders(self) -> builtins.list[str]:
        """The names of the folders directly below the root, sorted."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete the object. It is no error if there is none."""

    def leftovers(self) -> Iterator[ObjectInfo]:
        """Temporary files that writers left behind when they died. `list` does not show them
        [STORE-4]. A store without temporary files has none."""
        return iter(())

    def remove_leftover(self, key: str) -> None:
        """Delete one of `leftovers()`. It is no error if it is gone."""
        raise InvalidRequestError(f"{key!r} is not a temporary file: this store has none")

    @abstractmethod
    def open_output(self, key: str) -> AbstractContextManager[pa.NativeFile]:
        """A stream that writes a new object. The object appears, complete and durable, when the
        block ends; after an exception it does not appear at all."""

    @abstractmethod
    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        """Random access to an object of a known size. If there is no such object, either this or
        the first read raises `ObjectMissingError`; no request is made only to find out."""
