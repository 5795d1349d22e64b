"""The stores of the checker: one that answers from a list of replies, one over plain objects."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from pylogtable.errors import StorageError
from pylogtable.storage.base import Created, ObjectInfo, ObjectMissingError, ObjectStore

Objects = Mapping[str, bytes]

#: A time that no clock is ahead of.
FAR_MS = 2**62


class Operation(NamedTuple):
    verb: str
    key: str
    data: bytes = b""


class Refused:
    """The reply that is an error: nothing was done, and that is certain."""

    def __repr__(self) -> str:
        return "refused"


REFUSED = Refused()

#: Not a reply: the operation has to wait for its turn.
NOT_YET = object()


class Suspend(BaseException):
    """Stops a program at an operation that has no reply yet."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation


class ReplayStore(ObjectStore):
    """Answers from a list of replies, then as `at_once` says, and suspends the program at the first
    operation that neither has a reply for. From then on it does nothing: what the program does
    while it is stopped, such as removing its files, did not happen."""

    def __init__(
        self,
        replies: tuple[Any, ...],
        at_once: Callable[[Operation], Any] = lambda operation: NOT_YET,
        store_ms: int = FAR_MS,
    ) -> None:
        self.replies = list(replies)
        self._given = iter(replies)
        self._at_once = at_once
        self._store_ms = store_ms
        self._suspended: Suspend | None = None

    @property
    def url(self) -> str:
        return "model://t"

    @property
    def last_reply_ms(self) -> int:
        return self._store_ms

    def now_ms(self) -> int:
        return self._store_ms

    def below(self, prefix: str) -> ObjectStore:
        raise NotImplementedError

    def _ask(self, verb: str, key: str, data: bytes = b"") -> Any:
        if self._suspended is not None:
            raise self._suspended
        for reply in self._given:
            if reply is REFUSED:
                raise StorageError(f"refused: {verb} {key}")
            return reply
        operation = Operation(verb, key, data)
        reply = self._at_once(operation)
        if reply is NOT_YET:
            self._suspended = Suspend(operation)
            raise self._suspended
        self.replies.append(reply)
        return reply

    def read(self, key: str) -> bytes | None:
        found: bytes | None = self._ask("read", key)
        return found

    def size_of(self, key: str) -> int | None:
        found = self.read(key)
        return None if found is None else len(found)

    def create(self, key: str, data: bytes) -> Created:
        created: Created = self._ask("create", key, data)
        return created

    def write(self, key: str, data: bytes) -> None:
        self._ask("write", key, data)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter(self._ask("list", prefix))

    def list_folders(self) -> builtins.list[str]:
        raise NotImplementedError

    def delete(self, key: str) -> None:
        self._ask("delete", key)

    @contextmanager
    def open_output(self, key: str) -> Iterator[pa.NativeFile]:
        sink = pa.BufferOutputStream()
        yield sink
        self.write(key, sink.getvalue().to_pybytes())

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        data = self.read(key)
        if data is None:
            raise ObjectMissingError(f"there is no {key}")
        return pa.BufferReader(data)


class ObjectsStore(ReplayStore):
    """A plain store over some objects, for looking at a state with the real code."""

    def __init__(self, objects: Objects) -> None:
        super().__init__(())
        self.objects = dict(objects)

    def _ask(self, verb: str, key: str, data: bytes = b"") -> Any:
        return perform(self.objects, Operation(verb, key, data))


def perform(
    objects: dict[str, bytes],
    operation: Operation,
    modified_ms: Callable[[str, bytes], int] = lambda key, data: 0,
) -> Any:
    """Do the operation, and return the reply. `modified_ms` says when an object was written."""
    verb, key, data = operation
    if verb == "read":
        return objects.get(key)
    if verb == "create":
        if key in objects:
            return Created.EXISTS
        objects[key] = data
        return Created.YES
    if verb == "write":
        objects[key] = data
        return None
    if verb == "delete":
        objects.pop(key, None)
        return None
    assert verb == "list"
    return tuple(
        ObjectInfo(name, len(body), modified_ms(name, body))
        for name, body in sorted(objects.items())
        if name.startswith(key)
    )
