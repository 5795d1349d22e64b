"""Files that were just written, kept in memory because their footers are read next."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from pylogtable.storage.base import ObjectInfo, ObjectStore
from pylogtable.storage.delegating import WrappedStore
from pylogtable.storage.object_cache import Recent


class WrittenFiles(WrappedStore):
    """A store that reads from memory what was written through `open_output`, as long as that is
    little, until it is told to forget. In another process it does not know these files, and reads
    them from the store."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._recent: Recent[bytes] = Recent()

    def forget(self) -> None:
        """Read all from the store again. A file may have been removed since it was written; then
        no table must show it."""
        self._recent = Recent()

    def __reduce__(self) -> Any:
        return WrittenFiles, (self._inner,)

    @property
    def origin(self) -> ObjectStore:
        return self._inner.origin

    def list_after(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        return self._inner.list_after(prefix, after)

    def delete_many(self, keys: Sequence[str]) -> None:
        self._inner.delete_many(keys)

    def remove_empty_folders(self, prefix: str) -> None:
        self._inner.remove_empty_folders(prefix)

    @contextmanager
    def open_output(self, key: str) -> Iterator[pa.NativeFile]:
        with self._inner.open_output(key) as stream:
            tee = _Tee(stream, self.limits.kept_file_bytes)
            yield pa.PythonFile(tee, mode="w")
        if tee.data is not None:
            self._recent.keep(key, tee.data, len(tee.data))

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        data = self._recent.find(key)
        if data is None or len(data) != size_bytes:
            return self._inner.open_input(key, size_bytes)
        return pa.BufferReader(data)


class _Tee(io.RawIOBase):
    """Passes what is written on to a stream of the store, and keeps it up to a number of bytes."""

    def __init__(self, stream: pa.NativeFile, most_bytes: int) -> None:
        self._stream = stream
        self._kept: io.BytesIO | None = io.BytesIO()
        self._most_bytes = most_bytes

    @property
    def data(self) -> bytes | None:
        """What was written; None if it was too much."""
        return None if self._kept is None else self._kept.getvalue()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._stream.write(data)
        if self._kept is not None:
            self._kept.write(data)
            if self._kept.tell() > self._most_bytes:
                self._kept = None
        return size
