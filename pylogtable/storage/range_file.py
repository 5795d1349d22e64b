"""A file of which pyarrow reads ranges."""

from __future__ import annotations

import io
from collections.abc import Callable


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
