"""A sink for pyarrow that uploads an object. Closing it does not publish the object."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pylogtable.errors import StorageError
from pylogtable.storage.replies import is_unknown_upload
from pylogtable.storage.requests import Send
from pylogtable.storage.wire import Part

PART_BYTES = 8 * 2**20
#: A larger part would take too long on a slow line.
LARGEST_PART_BYTES = 32 * 2**20
#: Parts are a multiple of it, as Google demands.
_UNIT_BYTES = 256 * 2**10

#: Sends a request that carries this many bytes, again if need be. Raises `StorageError`.
Ask = Callable[[Send, int], Any]


class Upload(io.RawIOBase):
    """One put, or an upload in parts if the object is large. Each request is repeated by itself, so
    an answer that is lost does not cost the whole upload."""

    def __init__(self, path: str, ask: Ask) -> None:
        self._path = path
        self._ask = ask
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._size = 0
        self._sent = 0
        self._is_begun = False
        self._upload: Any = None
        self._parts: list[Any] = []

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        self._waiting.append(chunk)
        self._waiting_bytes += len(chunk)
        self._size += len(chunk)
        while self._waiting_bytes >= PART_BYTES:
            fitting = self._waiting_bytes // _UNIT_BYTES * _UNIT_BYTES
            self._put_part(min(fitting, LARGEST_PART_BYTES))
        return len(chunk)

    def publish(self) -> None:
        """Make the object appear, complete."""
        path = self._path
        if not self._is_begun:
            data = self._take(self._waiting_bytes)
            self._ask(lambda wire: wire.put(path, data), len(data))
            return
        if self._waiting_bytes:
            self._put_part(self._waiting_bytes, is_last=True)
        upload, parts, size = self._upload, self._parts, self._size
        try:
            self._ask(lambda wire: wire.end_upload(path, upload, parts, size), 0)
        except StorageError as error:
            # The reply to a first try may have been lost: then there is no such upload any more.
            if not is_unknown_upload(error) or self._stored_bytes() != self._size:
                raise

    def discard(self) -> None:
        """Let nothing appear. A failure does no harm."""
        if self._is_begun:
            path, upload = self._path, self._upload
            with suppress(StorageError):
                self._ask(lambda wire: wire.drop_upload(path, upload), 0)

    def _put_part(self, size_bytes: int, *, is_last: bool = False) -> None:
        path = self._path
        if not self._is_begun:
            self._upload = self._ask(lambda wire: wire.begin_upload(path), 0)
            self._is_begun = True
        upload, data = self._upload, self._take(size_bytes)
        part = Part(len(self._parts) + 1, self._sent, data, is_last)
        self._parts.append(self._ask(lambda wire: wire.put_part(path, upload, part), size_bytes))
        self._sent += size_bytes

    def _take(self, size_bytes: int) -> bytes:
        """The first bytes that wait. They are copied once if nothing else waits."""
        data = b"".join(self._waiting)
        self._waiting = [data[size_bytes:]] if size_bytes < len(data) else []
        self._waiting_bytes -= size_bytes
        return data[:size_bytes]

    def _stored_bytes(self) -> int:
        path = self._path
        return int(self._ask(lambda wire: wire.info(path), 0).size_bytes)
