"""Stores around other stores: one that counts what is asked, one that behaves as if it were far
away, one that lists in any order, and one that fails on command.

They see the keys as the outermost store names them, however deep `below` went.
"""

from __future__ import annotations

import bisect
import builtins
import io
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa

from pylogtable.errors import StorageError
from pylogtable.storage.base import Created, ObjectInfo, ObjectStore
from pylogtable.storage.delegating import WrappedStore
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore

_T = TypeVar("_T")


class _Wrapper(WrappedStore):
    def __init__(self, inner: ObjectStore, prefix: str = "") -> None:
        super().__init__(inner)
        self._prefix = prefix


class AgingDisk(LocalStore):
    """A directory whose file system has the test's clock: files get their times from it."""

    def __init__(self, root: str | os.PathLike[str], clock: Callable[[], int]) -> None:
        super().__init__(root)
        self._clock = clock

    def _note_time(self, file: BinaryIO) -> int:
        os.utime(file.fileno(), ns=(self._clock() * 1_000_000,) * 2)
        return super()._note_time(file)


class FarStore(MemoryStore):
    """Like a store behind HTTP: several requests are sent at once, and each reply tells the store's
    time, which comes from `time`. Stores below it know of the same replies."""

    is_remote = True
    concurrency = 8

    def __init__(
        self, time: Callable[[], int | None], name: str | None = None, prefix: str = ""
    ) -> None:
        super().__init__(name, prefix)
        self._time = time
        self._replies: builtins.list[int | None] = []

    @property
    def last_reply_ms(self) -> int | None:  # type: ignore[override]
        return self._replies[-1] if self._replies else None

    def read(self, key: str) -> bytes | None:
        self._replies.append(self._time())
        return super().read(key)

    def create(self, key: str, data: bytes) -> Created:
        self._replies.append(self._time())
        return super().create(key, data)

    def write(self, key: str, data: bytes) -> None:
        self._replies.append(self._time())
        super().write(key, data)


class _SortedDict(dict[str, tuple[bytes, int]]):
    def __init__(self) -> None:
        super().__init__()
        self.in_order: list[str] = []

    def __setitem__(self, key: str, value: tuple[bytes, int]) -> None:
        if key not in self:
            bisect.insort(self.in_order, key)
        super().__setitem__(key, value)

    def pop(self, key: str, default: Any = None) -> Any:
        if key in self:
            del self.in_order[bisect.bisect_left(self.in_order, key)]
        return super().pop(key, default)

    def from_prefix(self, prefix: str) -> builtins.list[str]:
        first = bisect.bisect_left(self.in_order, prefix)
        return self.in_order[first : bisect.bisect_left(self.in_order, f"{prefix}\U0010ffff")]


class LargeMemoryStore(MemoryStore):
    """A store in memory for tens of thousands of objects: its listings do not look at all of
    them."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock=clock)
        self._space.objects = self._sorted = _SortedDict()

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        cut = len(self._prefix)
        with self._space.lock:
            keys = self._sorted.from_prefix(self._prefix + prefix)
            found = [(key, self._sorted[key]) for key in keys]
        return iter([ObjectInfo(key[cut:], len(data), ms) for key, (data, ms) in found])

    def list_folders(self) -> builtins.list[str]:
        assert not self._prefix
        folders: builtins.list[str] = []
        keys, at = self._sorted.in_order, 0
        while at < len(keys):
            folder = keys[at].split("/")[0]
            folders += [folder] if folder != keys[at] else []
            at = bisect.bisect_left(keys, f"{folder}0")  # the character after "/"
        return folders


class SerialPool:
    """Stands for a thread pool where the order of operations is chosen by the test: its tasks run
    one after the other, in the caller's thread."""

    def __init__(self, workers: int) -> None:
        pass

    def __enter__(self) -> SerialPool:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def map(self, task: Callable[[Any], _T], *items: Iterable[Any]) -> Iterator[_T]:
        return iter([task(*each) for each in zip(*items, strict=True)])


@dataclass
class _Tally:
    lock: threading.Lock = field(default_factory=threading.Lock)
    counts: Counter[str] = field(default_factory=Counter)
    by_key: Counter[tuple[str, str]] = field(default_factory=Counter)
    bytes_read: Counter[str] = field(default_factory=Counter)


class CountingStore(_Wrapper):
    """Counts calls by verb (`counts`) and by verb and key (`by_key`), and the bytes that were read
    of each file opened (`bytes_read`).

    `open_input` sends nothing by itself; each read through it is one `"get"`. Pass
    `CountingStore(MemoryStore())` to see what an object store would be asked.
    """

    def __init__(self, inner: ObjectStore, prefix: str = "", tally: _Tally | None = None) -> None:
        super().__init__(inner, prefix)
        self._tally = tally or _Tally()

    @property
    def counts(self) -> Counter[str]:
        return self._tally.counts

    @property
    def by_key(self) -> Counter[tuple[str, str]]:
        return self._tally.by_key

    @property
    def bytes_read(self) -> Counter[str]:
        return self._tally.bytes_read

    @property
    def opened(self) -> builtins.list[str]:
        """The data files opened since the last reset."""
        return sorted({key for verb, key in self.by_key if verb == "open_input"})

    def reset(self) -> None:
        with self._tally.lock:
            self._tally.counts.clear()
            self._tally.by_key.clear()
            self._tally.bytes_read.clear()

    def below(self, prefix: str) -> CountingStore:
        deeper = f"{self._prefix}{prefix.rstrip('/')}/"
        return CountingStore(self._inner.below(prefix), deeper, self._tally)

    def read(self, key: str) -> bytes | None:
        self._count("read", key)
        return self._inner.read(key)

    def size_of(self, key: str) -> int | None:
        self._count("size_of", key)
        return self._inner.size_of(key)

    def create(self, key: str, data: bytes) -> Created:
        self._count("create", key)
        return self._inner.create(key, data)

    def write(self, key: str, data: bytes) -> None:
        self._count("write", key)
        self._inner.write(key, data)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._count("list", prefix)
        return self._inner.list(prefix)

    def list_folders(self) -> builtins.list[str]:
        self._count("list_folders", "")
        return self._inner.list_folders()

    def delete(self, key: str) -> None:
        self._count("delete", key)
        self._inner.delete(key)

    def delete_many(self, keys: Sequence[str]) -> None:
        self._count("delete_many", ",".join(keys))
        self._inner.delete_many(keys)

    @contextmanager
    def open_output(self, key: str) -> Iterator[pa.NativeFile]:
        self._count("open_output", key)
        with self._inner.open_output(key) as sink:
            yield sink

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        self._count("open_input", key)
        source = self._inner.open_input(key, size_bytes)
        return pa.PythonFile(_CountedFile(source, lambda size: self._read(key, size)), mode="r")

    def copy_from(self, source: ObjectStore, key: str, size_bytes: int) -> None:
        self._count("copy_from", key)
        self._inner.copy_from(source, key, size_bytes)

    def _read(self, key: str, size: int) -> None:
        self._count("get", key)
        with self._tally.lock:
            self._tally.bytes_read[self._prefix + key] += size

    def _count(self, verb: str, key: str) -> None:
        with self._tally.lock:
            self._tally.counts[verb] += 1
            self._tally.by_key[verb, self._prefix + key] += 1


class _CountedFile(io.RawIOBase):
    def __init__(self, source: pa.NativeFile, note: Callable[[int], None]) -> None:
        self._source = source
        self._note = note

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._source.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._source.seek(offset, whence))

    def read(self, size: int | None = -1) -> bytes:
        if size == 0 or self._source.tell() == self._source.size():
            return b""
        data = bytes(self._source.read(None if size is None or size < 0 else size))
        self._note(len(data))
        return data

    def close(self) -> None:
        self._source.close()
        super().close()


class FailingStore(CountingStore):
    """Fails the operations that `fails(verb, key)` names, as a store that does not answer. The
    reads of an open file are operations of their own: "get"."""

    fails: Callable[[str, str], bool] = staticmethod(lambda verb, key: False)

    def below(self, prefix: str) -> FailingStore:
        deeper = f"{self._prefix}{prefix.rstrip('/')}/"
        store = FailingStore(self._inner.below(prefix), deeper, self._tally)
        store.fails = self.fails
        return store

    def _count(self, verb: str, key: str) -> None:
        super()._count(verb, key)
        if self.fails(verb, self._prefix + key):
            raise StorageError(f"cannot {verb} {key}: ReadTimeout: Read timed out.")


class ShufflingStore(_Wrapper):
    """Lists in any order, as the directory buckets of S3 Express do."""

    def __init__(self, inner: ObjectStore, chance: random.Random) -> None:
        super().__init__(inner)
        self._chance = chance

    def below(self, prefix: str) -> ShufflingStore:
        return ShufflingStore(self._inner.below(prefix), self._chance)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter(self._shuffled(self._inner.list(prefix)))

    def list_after(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        return iter(self._shuffled(self._inner.list_after(prefix, after)))

    def list_folders(self) -> builtins.list[str]:
        return self._shuffled(self._inner.list_folders())

    def leftovers(self) -> Iterator[ObjectInfo]:
        return iter(self._shuffled(self._inner.leftovers()))

    def _shuffled(self, found: Iterable[_T]) -> builtins.list[_T]:
        items = [*found]
        self._chance.shuffle(items)
        return items


class SimulatedCrash(BaseException):
    """The process is gone: nothing may catch this and go on, so it is no Exception."""


class Fault(Enum):
    """What becomes of one operation. Where a fault says nothing about a verb, it does nothing."""

    #: It is done, and the reply is lost: UNKNOWN from create, StorageError from the rest.
    LOSE_REPLY = auto()
    #: It is not done; the same replies.
    REFUSE = auto()
    #: create says UNKNOWN and is on its way: it lands at `land()` or after `late_after` more
    #: operations, and then only if the object is still absent.
    LATE = auto()
    #: create lands, and the client's own retry is told EXISTS.
    SELF_RETRY = auto()
    CRASH_BEFORE = auto()
    CRASH_AFTER = auto()
    #: write stores the first half and reports success.
    TRUNCATE = auto()


@dataclass
class _Late:
    land: Callable[[], Created]
    operations_left: int | None


@dataclass
class _Script:
    decide: Callable[[str, str], Fault | None]
    late_after: int | None
    lock: threading.RLock = field(default_factory=threading.RLock)
    late: list[_Late] = field(default_factory=list)

    def land(self) -> builtins.list[Created]:
        with self.lock:
            arriving, self.late = self.late, []
        return [late.land() for late in arriving]

    def next(self, verb: str, key: str) -> Fault | None:
        with self.lock:
            for late in list(self.late):
                if late.operations_left is not None:
                    late.operations_left -= 1
                    if late.operations_left <= 0:
                        self.late.remove(late)
                        late.land()
            return self.decide(verb, key)


class FaultyStore(_Wrapper):
    """Asks `decide(verb, key)` before every operation what is to become of it.

    The verbs are the method names; `open_input` is one operation, its reads are none. With
    `late_after=n` a LATE create lands just before the n-th operation after it.
    """

    def __init__(
        self,
        inner: ObjectStore,
        decide: Callable[[str, str], Fault | None],
        *,
        late_after: int | None = None,
    ) -> None:
        super().__init__(inner)
        self._script = _Script(decide, late_after)

    def land(self) -> builtins.list[Created]:
        """Let every late create arrive, in order; what became of each."""
        return self._script.land()

    @property
    def late(self) -> int:
        """How many creates are still on their way."""
        return len(self._script.late)

    def below(self, prefix: str) -> FaultyStore:
        deeper = FaultyStore(self._inner.below(prefix), self._script.decide)
        deeper._script = self._script
        deeper._prefix = f"{self._prefix}{prefix.rstrip('/')}/"
        return deeper

    def read(self, key: str) -> bytes | None:
        return self._do("read", key, lambda: self._inner.read(key))

    def size_of(self, key: str) -> int | None:
        return self._do("size_of", key, lambda: self._inner.size_of(key))

    def create(self, key: str, data: bytes) -> Created:
        fault = self._script.next("create", self._prefix + key)
        _crash_if(fault, Fault.CRASH_BEFORE)
        if fault is Fault.REFUSE:
            return Created.UNKNOWN
        if fault is Fault.LATE:
            inner = self._inner
            late = _Late(lambda: inner.create(key, data), self._script.late_after)
            with self._script.lock:
                self._script.late.append(late)
            return Created.UNKNOWN
        outcome = self._inner.create(key, data)
        _crash_if(fault, Fault.CRASH_AFTER)
        if fault is Fault.LOSE_REPLY:
            return Created.UNKNOWN
        return Created.EXISTS if fault is Fault.SELF_RETRY else outcome

    def write(self, key: str, data: bytes) -> None:
        def step(fault: Fault | None) -> None:
            kept = data[: len(data) // 2] if fault is Fault.TRUNCATE else data
            self._inner.write(key, kept)

        self._do_knowing("write", key, step)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._do("list", prefix, lambda: iter(list(self._inner.list(prefix))))

    def list_folders(self) -> builtins.list[str]:
        return self._do("list_folders", "", self._inner.list_folders)

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: self._inner.delete(key))

    @contextmanager
    def open_output(self, key: str) -> Iterator[pa.NativeFile]:
        fault = self._script.next("open_output", self._prefix + key)
        _crash_if(fault, Fault.CRASH_BEFORE)
        with self._inner.open_output(key) as sink:
            yield sink
            if fault is Fault.REFUSE:
                raise StorageError(f"simulated: open_output of {key} was refused")
        _crash_if(fault, Fault.CRASH_AFTER)
        if fault is Fault.LOSE_REPLY:
            raise StorageError(f"simulated: the reply to open_output of {key} was lost")

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        return self._do("open_input", key, lambda: self._inner.open_input(key, size_bytes))

    def copy_from(self, source: ObjectStore, key: str, size_bytes: int) -> None:
        self._do("copy_from", key, lambda: self._inner.copy_from(source, key, size_bytes))

    def _do(self, verb: str, key: str, step: Callable[[], _T]) -> _T:
        return self._do_knowing(verb, key, lambda fault: step())

    def _do_knowing(self, verb: str, key: str, step: Callable[[Fault | None], _T]) -> _T:
        fault = self._script.next(verb, self._prefix + key)
        _crash_if(fault, Fault.CRASH_BEFORE)
        if fault is Fault.REFUSE:
            raise StorageError(f"simulated: {verb} of {key} was refused")
        answer = step(fault)
        _crash_if(fault, Fault.CRASH_AFTER)
        if fault is Fault.LOSE_REPLY:
            raise StorageError(f"simulated: the reply to {verb} of {key} was lost")
        return answer


def _crash_if(fault: Fault | None, which: Fault) -> None:
    if fault is which:
        raise SimulatedCrash
