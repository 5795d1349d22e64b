"""Sinks for pyarrow that upload an object. Closing one does not publish the object."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pylogtable.errors import StorageError
from pylogtable.storage.replies import reply_of
from pylogtable.storage.requests import Send

PART_BYTES = 8 * 2**20
#: A larger part would take too long on a slow line.
LARGEST_PART_BYTES = 32 * 2**20

#: Sends a request that carries this many bytes, again if need be. Raises `StorageError`.
Ask = Callable[[Send, int], Any]


class Upload(io.RawIOBase):
    """An object that is being written."""

    def writable(self) -> bool:
        return True

    @abstractmethod
    def publish(self) -> None:
        """Make the object appear, complete."""

    @abstractmethod
    def discard(self) -> None:
        """Let nothing appear. A failure does no harm."""


class S3Upload(Upload):
    """One put, or an upload in parts if the object is large. Each request is repeated by itself, so
    an answer that is lost does not cost the whole upload."""

    def __init__(self, path: str, bucket: str, key: str, ask: Ask) -> None:
        self._path = path
        self._place = {"Bucket": bucket, "Key": key}
        self._ask = ask
        self._waiting = bytearray()
        self._size = 0
        self._upload_id: str | None = None
        self._parts: list[dict[str, Any]] = []

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        size_bytes = memoryview(data).nbytes
        self._waiting += data
        self._size += size_bytes
        while len(self._waiting) >= PART_BYTES:
            self._put_part()
        return size_bytes

    def publish(self) -> None:
        if self._upload_id is None:
            path, data = self._path, bytes(self._waiting)
            self._ask(lambda fs: fs._pipe_file(path, data), len(data))
            return
        if self._waiting:
            self._put_part()
        try:
            self._call("complete_multipart_upload", MultipartUpload={"Parts": self._parts})
        except StorageError as error:
            # The reply to a first try may have been lost: then there is no such upload any more.
            if reply_of(error)[0] != "NoSuchUpload" or self._stored_bytes() != self._size:
                raise

    def discard(self) -> None:
        if self._upload_id is not None:
            with suppress(StorageError):
                self._call("abort_multipart_upload")

    def _put_part(self) -> None:
        if self._upload_id is None:
            place = self._place
            begun = self._ask(lambda fs: fs._call_s3("create_multipart_upload", **place), 0)
            self._upload_id = begun["UploadId"]
        body, number = bytes(self._waiting[:LARGEST_PART_BYTES]), len(self._parts) + 1
        done = self._call("upload_part", len(body), PartNumber=number, Body=body)
        self._parts.append({"PartNumber": number, "ETag": done["ETag"]})
        del self._waiting[:LARGEST_PART_BYTES]

    def _stored_bytes(self) -> int:
        return int(self._ask(lambda fs: fs._info(self._path), 0)["size"])

    def _call(self, method: str, size_bytes: int = 0, /, **more: Any) -> Any:
        arguments = {**self._place, "UploadId": self._upload_id, **more}
        return self._ask(lambda fs: fs._call_s3(method, **arguments), size_bytes)


class FileUpload(Upload):
    """An upload through a file of fsspec. `attempt` takes a step and explains its errors."""

    def __init__(self, attempt: Callable[[Callable[[], Any]], Any], fs: Any, path: str) -> None:
        self._attempt = attempt
        self._file: Any = attempt(lambda: fs.open(path, "wb", block_size=PART_BYTES))

    def tell(self) -> int:
        return int(self._file.tell())

    def write(self, data: Any) -> int:
        return int(self._attempt(lambda: self._file.write(data)))

    def publish(self) -> None:
        self._attempt(self._file.close)

    def discard(self) -> None:
        """Abort, and keep the file's destructor from publishing what was written."""
        with suppress(Exception):
            self._file.discard()
        self._file.forced = self._file.closed = True
