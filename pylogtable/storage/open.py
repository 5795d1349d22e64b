"""Opens the store for an address. Only stores with put-if-absent are supported."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Mapping

from pylogtable.arguments import address
from pylogtable.errors import InvalidRequestError, UnsupportedFormatError
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(?=[/:])")
_REMOTE = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfs",
    "az": "abfs",
}
_WORKING = (
    "a local path, file://, memory://, s3:// (s3a://, s3n://), gs:// (gcs://), "
    "abfs:// (abfss://, az://) and dbfs:/"
)


def open_store(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, object] | None = None,
    clock: Callable[[], int] | None = None,
) -> ObjectStore:
    """The store at an address. This neither reads nor creates anything.

    `storage_options` are for S3, Google and Azure; other stores ignore them. `clock` is for a store
    in memory, which takes its time from it. Names are not decoded:
    `%20` is three characters, as in Spark and fsspec.
    """
    text = address(url)
    match = _SCHEME.match(text)
    if not match:
        return _local(text)
    scheme, rest = match[1].lower(), text[match.end() :]
    _refuse_credentials(scheme, rest)
    if scheme == "file":
        return _local(_file_path(rest))
    if scheme == "dbfs":
        return _local(_dbfs_path(rest))
    if scheme == "memory":
        name, _, prefix = rest.lstrip("/").partition("/")
        prefix = prefix.strip("/")
        return MemoryStore(name, f"{prefix}/" if prefix else "", clock)
    if scheme in _REMOTE and rest.startswith("//"):
        return _remote(_REMOTE[scheme], rest[2:], storage_options or {})
    raise UnsupportedFormatError(
        f"{scheme}: is not supported: it is not known to put an object only if it is absent, and "
        f"without that commits would overwrite each other. Supported: {_WORKING}"
    )


def _local(path: str) -> LocalStore:
    return LocalStore(os.path.expanduser(path))


def _file_path(rest: str) -> str:
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "/", rest[1:])
    if host not in {"", "localhost"} or not slash:
        raise InvalidRequestError(
            f"file://{host}/... names a host; write file:///absolute/path or a plain path"
        )
    return f"/{path}"


def _dbfs_path(rest: str) -> str:
    path = "/" + rest.lstrip("/")
    return path if path == "/Volumes" or path.startswith("/Volumes/") else f"/dbfs{path}"


def _remote(protocol: str, path: str, options: Mapping[str, object]) -> ObjectStore:
    from pylogtable.storage.client import missing_package, package_of
    from pylogtable.storage.remote import RemoteStore
    from pylogtable.storage.s3 import S3Store

    if "?" in path:
        raise InvalidRequestError(f"a {protocol}:// address must not contain '?'")
    bucket, _, below = path.partition("/")
    if protocol == "abfs" and "@" in bucket:
        bucket, _, host = bucket.partition("@")
        options = {"account_name": host.partition(".")[0], **options}
    parts = [part for part in below.split("/") if part]
    if not bucket or ".." in parts or "." in parts:
        raise InvalidRequestError(
            f"a {protocol}:// address needs a bucket and plain names below it"
        )
    if importlib.util.find_spec(package_of(protocol)) is None:
        raise missing_package(protocol)
    kind = S3Store if protocol == "s3" else RemoteStore
    return kind(protocol, "/".join([bucket, *parts]), options)


def _refuse_credentials(scheme: str, rest: str) -> None:
    """Raise if the address has `user:password@`, without showing it. Azure's `container@account` is
    allowed."""
    if scheme in {"file", "dbfs", "memory"}:
        return
    host = rest.lstrip("/:").partition("/")[0]
    is_container = _REMOTE.get(scheme) == "abfs" and ":" not in host
    cut_short = ":" in host and "@" in rest and not host.startswith("arn:")
    if ("@" in host and not is_container) or cut_short:
        raise InvalidRequestError(
            f"a {scheme}:// address must not contain credentials; give them as storage_options or "
            "in the environment"
        )
