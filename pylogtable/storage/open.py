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

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(?=[/:])|(s3[an]?|gc?s|abfss?|az):")
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
_NEARLY = re.compile(r"\W*(s3[an]?|gc?s|abfss?|az|wasbs?)\W*//", re.I)
_OTHER_NAMES_OF_AZURE = {"wasb", "wasbs", "azure", "adl"}
_AZURE = ".dfs.core.windows.net"
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
        _refuse_near_addresses(text)
        return _local(text)
    scheme, rest = (match[1] or match[2]).lower(), text[match.end() :]
    if scheme in _OTHER_NAMES_OF_AZURE:
        raise InvalidRequestError(
            f"{scheme}:// is not an address here: write "
            "abfss://container@account.dfs.core.windows.net/folder"
        )
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
    if scheme in _REMOTE:
        raise InvalidRequestError(
            f"an address of {scheme} begins with {scheme}://; for a folder of that name write "
            f"./{scheme}:…"
        )
    raise UnsupportedFormatError(
        f"{scheme}: is not supported: it is not known to put an object only if it is absent, and "
        f"without that commits would overwrite each other. Supported: {_WORKING}"
    )


def _refuse_near_addresses(path: str) -> None:
    """Raise if a local path was probably meant to be an address. Nobody would look for the data on
    the local disk."""
    if "://" in path or _NEARLY.match(path) or f"{_AZURE}/" in path:
        raise InvalidRequestError(
            f"{path!r} is no address and would be a local folder: check what stands before "
            "'://', such as a blank or a quotation mark; for that folder write ./ before it"
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
    from pylogtable.storage.client import WIRES
    from pylogtable.storage.remote import RemoteStore
    from pylogtable.storage.wire import missing_package

    if "?" in path or not path.isprintable():
        raise InvalidRequestError(
            f"a {protocol}:// address must not contain '?' or characters that are not printable"
        )
    bucket, _, below = path.partition("/")
    account = ""
    if protocol == "abfs":
        bucket, _, host = bucket.partition("@")
        account, options = _azure_account(host, options)
    parts = [part for part in below.split("/") if part]
    if not bucket or ".." in parts or "." in parts:
        raise InvalidRequestError(
            f"an address of {protocol}:// needs a bucket, or a container, and plain names below it"
        )
    kind = WIRES[protocol]
    if importlib.util.find_spec(kind.package) is None:
        raise missing_package(kind)
    return RemoteStore(protocol, "/".join([bucket, *parts]), options, account)


def _azure_account(host: str, options: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """The host of the account in an address, and the options that reach it. Other engines need it
    in an address, so it is added if the options name an account."""
    from pylogtable.storage.client import WIRES
    from pylogtable.storage.options import check_options, native_options

    if not host:
        name = _account_name(options, os.environ)
        if not name:
            kind = WIRES["abfs"]
            check_options(kind, native_options(kind, options), "Azure", WIRES.values())
            raise InvalidRequestError(
                "the account of Azure is not known: write "
                f"abfss://container@account{_AZURE}/folder, or give account_name or "
                "connection_string (with AccountName=…), or set AZURE_STORAGE_ACCOUNT_NAME"
            )
        return f"{name}{_AZURE}", {"account_name": name, **options}
    if "@" in host:
        raise InvalidRequestError(f"an address of Azure names one account, not {host!r}")
    name, _, rest = host.partition(".")
    named = _account_name(options, {})
    if named and named != name:
        raise InvalidRequestError(
            f"the address names the account {name!r}, and the options name {named!r}; give one"
        )
    known: dict[str, object] = {"account_name": name}
    if rest and f".{rest}" != _AZURE:  # a national cloud
        known["account_host"] = host.replace(".dfs.", ".blob.", 1)
    return (host if rest else f"{name}{_AZURE}"), {**known, **options}


def _account_name(options: Mapping[str, object], variables: Mapping[str, str]) -> str:
    """The account that options or variables name; "" if none does. The address of an emulator in a
    connection string ends with it."""
    given = {name.lower().removeprefix("azure_storage_"): options[name] for name in options}
    for name in ("account_name", "connection_string"):
        given.setdefault(name, variables.get(f"AZURE_STORAGE_{name.upper()}"))
    text = str(given["connection_string"] or "")
    in_text = re.search(r"AccountName=([^;]+)", text) or re.search(
        r"BlobEndpoint=https?://[^/;]+/([^/;]+)", text
    )
    return str(given["account_name"] or (in_text and in_text[1]) or "")


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
