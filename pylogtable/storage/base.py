"""The object store as this format needs it: eight verbs over keys below one root.

Keys are relative, use `/`, and never start with one. A store is safe to share between threads and
survives pickling. Every failure of the store itself is a `StorageError` with its cause chained;
an absent object is a value (`None`), because absence is an answer here and not an accident.
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
    """The outcome of a put-if-absent. A client below us may retry by itself, so EXISTS may mean
    "mine", and UNKNOWN may yet land: who needs to know reads the object back [STORE-3]."""

    YES = "yes"
    EXISTS = "exists"
    UNKNOWN = "unknown"


class ObjectMissingError(StorageError):
    """`open_input`, or a read of what it returned, found no such object."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object."""

    key: str
    size_bytes: int
    modified_ms: int


def check_key(key: str) -> str:
    """The key itself, or a refusal: no store is ever led out of its root by one [PATH-4]."""
    if "\0" in key or any(part in {"", ".", ".."} for part in key.split("/")):
        raise InvalidRequestError(f"{key!r} is not an object's key")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself, or a refusal: `""`, or a key and a `/`."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequestError(f"{prefix!r} is not a prefix: it must end in '/'")
    return check_key(prefix[:-1]) + "/" if prefix else prefix


class ObjectStore(ABC):
    """The contract [STORE-1]; `tests/storage/contract.py` is its executable form."""

    #: How many requests are worth having under way at once: 1 where a request costs microseconds.
    concurrency: int = 1

    @property
    @abstractmethod
    def url(self) -> str:
        """Where this is, fit to be shown: no credentials."""

    @abstractmethod
    def below(self, prefix: str) -> ObjectStore:
        """The same store rooted deeper."""

    @abstractmethod
    def read(self, key: str) -> bytes | None:
        """The whole object, or None if there is none."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> Created:
        """Put `data`, which is not empty, only if there is no such object; all of it or nothing is
        ever seen. A refusal that is certain (rights, missing bucket) raises."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None:
        """Put `data`, replacing what was there; all of it or nothing is ever seen."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose key starts with `prefix` (`""` or ending in `/`), in key order."""

    @abstractmethod
    def list_folders(self) -> builtins.list[str]:
        """The first path parts directly below the root that hold objects deeper down, sorted."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the object; no error if there is none."""

    def leftovers(self) -> Iterator[ObjectInfo]:
        """What writers that died left under names of the store's own, which are no objects and are
        never listed as such [STORE-4]; nothing where a store has no such names."""
        return iter(())

    def remove_leftover(self, key: str) -> None:
        """Remove one of `leftovers()`; no error if it is gone."""
        raise InvalidRequestError(f"{key!r} cannot be left over: this store has no such names")

    @abstractmethod
    def open_output(self, key: str) -> AbstractContextManager[pa.NativeFile]:
        """A stream to a new object, which becomes visible, durable and whole when the block ends
        without an exception, and not at all otherwise."""

    @abstractmethod
    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        """Random access to an object of a known size. If it is not there, this or the first read
        raises ObjectMissingError: a store that would have to ask first does not ask."""
