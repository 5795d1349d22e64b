"""S3 and compatible servers: listings page by page, and uploads in parts.

Each page and each part is a request of its own, and repeated by itself. A listing of a million
objects, or an upload of a gigabyte, does not begin again because of one lost answer.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Any

from pylogtable.storage.base import ObjectInfo
from pylogtable.storage.remote import RemoteStore, modified_ms
from pylogtable.storage.requests import Send
from pylogtable.storage.upload import S3Upload, Upload

#: What one request may name.
_DELETED_AT_ONCE = 1000


class S3Store(RemoteStore):
    """A bucket of S3 or a folder in one."""

    def _find(self, prefix: str) -> Iterator[ObjectInfo]:
        start = f"{self._root}/{prefix}"
        found = [entry for page in self._pages(start) for entry in page.get("Contents", ())]
        folder = self._place(f"{self._root}/")[1]
        for entry in sorted(found, key=lambda entry: str(entry["Key"])):
            key = str(entry["Key"])
            if not key.endswith("/"):
                yield ObjectInfo(key[len(folder) :], int(entry["Size"]), modified_ms(entry))

    def list_folders(self) -> builtins.list[str]:
        pages = self._pages(f"{self._root}/", Delimiter="/")
        found = (entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ()))
        return sorted(str(prefix).rstrip("/").rpartition("/")[2] for prefix in found)

    def delete_many(self, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), _DELETED_AT_ONCE):
            self._delete_together([self._path(key) for key in keys[at : at + _DELETED_AT_ONCE]])

    def _delete_together(self, paths: builtins.list[str]) -> None:
        bucket = self._place(paths[0])[0]
        named = [{"Key": self._place(path)[1]} for path in paths]
        self._ask(
            "delete",
            paths[0],
            lambda fs: fs._call_s3(
                "delete_objects", Bucket=bucket, Delete={"Objects": named, "Quiet": True}
            ),
        )

    def _pages(self, start: str, **more: str) -> Iterator[dict[str, Any]]:
        """The replies to a listing of all names that start with these characters."""
        bucket, prefix = self._place(start)
        token: dict[str, str] = {}
        while True:
            page = self._ask("list", start, _listing(Bucket=bucket, Prefix=prefix, **more, **token))
            yield page
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _upload(self, path: str) -> Upload:
        def ask(send: Any, size_bytes: int) -> Any:
            return self._written(path, lambda: self._requests.patiently(send, size_bytes))

        return S3Upload(path, *self._written(path, lambda: self._place(path)), ask)

    def _place(self, path: str) -> tuple[str, str]:
        """The bucket and the key of a path."""
        bucket, key, _ = self._client.fs.split_path(path)
        return bucket, key


def _listing(**asked: str) -> Send:
    return lambda fs: fs._call_s3("list_objects_v2", **asked)
