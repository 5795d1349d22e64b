"""Parts of files that are read again by each publication which looks up keys: footers, Bloom
filters, and files that are small as a whole. A file of a topic never changes."""

from __future__ import annotations

import pyarrow as pa

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.delegating import WrappedStore
from pylogtable.storage.object_cache import Memory, Recent
from pylogtable.storage.range_file import RangeFile

#: For all topics of a process. These parts do not push out what others keep.
_PARTS = Memory(64 << 20)


class KnownFiles(WrappedStore):
    """A store whose files are read from memory, as far as they were read before. It may know a file
    that is gone by now. Where requests cost next to nothing, it knows none."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._parts: Recent[bytes] = Recent(_PARTS)

    @property
    def origin(self) -> ObjectStore:
        return self._inner.origin

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        if not self.is_remote:
            return self._inner.open_input(key, size_bytes)

        def fetch(start: int, end: int) -> bytes:
            part = f"{key}:{size_bytes}:{start}-{end}"
            data = self._parts.find(part)
            if data is None:
                with self._inner.open_input(key, size_bytes) as source:
                    source.seek(start)
                    data = source.read(end - start)
                if len(data) <= self.whole_bytes:
                    self._parts.keep(part, data, len(data))
            return data

        return pa.PythonFile(RangeFile(fetch, size_bytes, self.whole_bytes), mode="r")
