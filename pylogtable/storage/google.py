"""Google Cloud Storage: its JSON API, with the session and the credentials of gcsfs.

The condition is `ifGenerationMatch=0`. gcsfs itself is not asked to put objects: it takes several
requests for one, and for zonal buckets its `create` may overwrite.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import quote

from pylogtable.errors import LogTableError, StorageError
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectInfo
from pylogtable.storage.credentials import OPTION, CredentialsError, Provider
from pylogtable.storage.replies import IncompleteReplyError, RefusedError
from pylogtable.storage.wire import (
    CONNECT_SECONDS,
    MissingBucketError,
    NoteDate,
    Page,
    Part,
    Wire,
    send_once,
)

_RESUME = 308
#: gcsfs asks for a new token when the old one has less than this left.
_RENEW_BEFORE_SECONDS = 300


class GoogleWire(Wire):
    """Buckets of Google."""

    package = "gcsfs"
    extra = "gcs"
    client = ("gcsfs.core", "GCSFileSystem")
    cloud = "Google"
    options = frozenset({"endpoint_url", "project", "token"})
    advice = (
        "give token (the path of a key file, or 'anon'), or set GOOGLE_APPLICATION_CREDENTIALS in "
        "every process, or give the machine a service account, or run "
        "gcloud auth application-default login"
    )
    option_names: ClassVar = {
        "google_application_credentials": "token",
        "google_service_account": "token",
        "google_cloud_project": "project",
        "storage_emulator_host": "endpoint_url",
    }

    def __init__(self, options: Mapping[str, Any], note_date: NoteDate) -> None:
        given = dict(options)
        provider: Provider | None = given.pop(OPTION, None)
        given["token"] = _checked_token(given.get("token"))
        if provider is not None:
            given["token"] = _renewed(provider)
        elif given.get("token") is None:
            # gcsfs itself would go on without credentials if it finds none, and if the project is
            # not that of the credentials.
            given["token"] = "anon" if _is_emulated(given) else "google_default"
            given.pop("project", None)
        self._fs = self.client_class()(**given, skip_instance_cache=True)
        self._note_date = note_date
        self.loop = self._fs.loop

    @classmethod
    def adapted(cls, options: dict[str, Any]) -> dict[str, Any]:
        address = options.get("endpoint_url") or os.environ.get("STORAGE_EMULATOR_HOST")
        if address:  # the client adds the path of the API
            options["endpoint_url"] = address.rstrip("/").removesuffix("/storage/v1")
        return options

    async def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        wanted = {} if (start, end) == (0, None) else {"Range": f"bytes={start}-{_last(end)}"}
        media = {"alt": "media"}
        _, _, data = await self._send("GET", path, self._object(path), wanted, asked=media)
        return data

    async def info(self, path: str) -> ObjectInfo:
        _, _, data = await self._send("GET", path, self._object(path))
        return _info(json.loads(data))

    async def put(self, path: str, data: bytes, *, if_absent: bool = False) -> None:
        _, key = self.split(path)
        asked = {"uploadType": "media", "name": key}
        if if_absent:
            asked["ifGenerationMatch"] = "0"
        kind = {"Content-Type": "application/octet-stream"}
        with _only_buckets_are_missing(path):
            _, _, body = await self._send("POST", path, self._upload(path), kind, data, asked)
        stored = _stored_bytes(path, body)
        if stored != len(data):
            raise IncompleteReplyError(f"the store has {stored} bytes of {path}, of {len(data)}")

    async def page(
        self, start: str, *, delimited: bool = False, above: str = "", token: Any = None
    ) -> Page:
        bucket, prefix = self.split(start)
        asked = {
            "prefix": prefix,
            "delimiter": "/" if delimited else "",
            "startOffset": above,
            "pageToken": token or "",
        }
        address = f"{self._fs.base}b/{quote(bucket, safe='')}/o"
        given = {name: value for name, value in asked.items() if value}
        with _only_buckets_are_missing(bucket):
            _, _, data = await self._send("GET", start, address, asked=given)
        reply = json.loads(data)
        objects = [_info(found) for found in reply.get("items", ())]
        return Page(objects, reply.get("prefixes", ()), reply.get("nextPageToken"))

    async def delete(self, path: str) -> None:
        await self._send("DELETE", path, self._object(path))

    async def copy(self, origin: str, path: str) -> None:
        target = self._object(path).removeprefix(self._fs.base)
        address = f"{self._object(origin)}/rewriteTo/{target}"
        asked: dict[str, str] = {}
        while True:
            _, _, data = await self._send("POST", origin, address, asked=asked)
            reply = json.loads(data)
            if reply.get("done", True):
                return
            asked = {"rewriteToken": reply["rewriteToken"]}

    async def begin_upload(self, path: str) -> Any:
        _, key = self.split(path)
        kind = {"X-Upload-Content-Type": "application/octet-stream"}
        asked = {"uploadType": "resumable", "name": key}
        with _only_buckets_are_missing(path):
            _, headers, _ = await self._send("POST", path, self._upload(path), kind, b"", asked)
        return headers["Location"]

    async def put_part(self, path: str, upload: Any, part: Part) -> Any:
        end = part.offset + len(part.data)
        size = end if part.is_last else "*"
        span = {"Content-Range": f"bytes {part.offset}-{end - 1}/{size}"}
        status, headers, body = await self._send("PUT", path, upload, span, part.data)
        # Bytes that are stored already are ignored, so the part can be sent again as a whole.
        is_taken = status != _RESUME or headers.get("Range") == f"bytes=0-{end - 1}"
        if not is_taken or (part.is_last and status == _RESUME):
            raise IncompleteReplyError(f"the store has {headers.get('Range')} of {end} bytes")
        if part.is_last:
            _check_size(path, body, end)
        return part.is_last

    async def end_upload(
        self, path: str, upload: Any, parts: Sequence[Any], size_bytes: int
    ) -> None:
        if parts[-1]:
            return  # the last part has ended it
        whole = {"Content-Range": f"bytes */{size_bytes}"}
        status, headers, body = await self._send("PUT", path, upload, whole, b"")
        if status == _RESUME:
            raise IncompleteReplyError(
                f"the store has {headers.get('Range')} of {size_bytes} bytes"
            )
        _check_size(path, body, size_bytes)

    async def drop_upload(self, path: str, upload: Any) -> None:
        await self._send("DELETE", path, upload)

    def _has_token(self) -> bool:
        known = self._fs.credentials.credentials
        if known is None:
            return True
        if not known.valid or known.expiry is None:
            return bool(known.valid)
        expires = known.expiry.replace(tzinfo=datetime.timezone.utc).timestamp()
        return bool(expires - Runtime().clock() / 1000 > _RENEW_BEFORE_SECONDS)

    def _refresh(self) -> None:
        try:
            self._fs.credentials.maybe_refresh()
        except LogTableError:
            raise
        except Exception as error:
            raise CredentialsError(
                f"Google gives no token: {type(error).__name__}: {error}"
            ) from error

    def _object(self, path: str) -> str:
        bucket, key = self.split(path)
        return f"{self._fs.base}b/{quote(bucket, safe='')}/o/{quote(key, safe='')}"

    def _upload(self, path: str) -> str:
        bucket = quote(self.split(path)[0], safe="")
        return f"{self._fs._location}/upload/storage/v1/b/{bucket}/o"

    async def _send(
        self,
        method: str,
        path: str,
        address: str,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
        asked: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        from aiohttp import ClientTimeout

        session = await self._fs._set_session()
        send_once(session)
        # Otherwise a token is asked for in the event loop, and all requests wait.
        if not self._has_token():
            await asyncio.to_thread(self._refresh)
        async with session.request(
            method,
            address,
            params=self._fs._get_params(asked or {}),
            headers=self._fs._get_headers(headers or {}),
            data=data,
            allow_redirects=False,
            timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        ) as reply:
            body = await reply.read()
            if "Date" in reply.headers:
                self._note_date(reply.headers["Date"])
        is_part = "Content-Range" in (headers or {})
        if reply.status < 300 or (is_part and reply.status == _RESUME):
            return reply.status, reply.headers, body
        raise _refusal(reply.status, body, path)


@contextmanager
def _only_buckets_are_missing(path: str) -> Iterator[None]:
    """For requests that do not need an object."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingBucketError(path.partition("/")[0]) from error


def _renewed(provider: Provider) -> Any:
    """Credentials for gcsfs, which asks for a new token when one expires."""
    from google.auth.credentials import Credentials

    class Renewed(Credentials):
        generation = 0

        @property
        def valid(self) -> bool:
            return self.generation == provider.generation > 0 and not provider.is_due

        def refresh(self, request: Any) -> None:
            provider.current()
            self.generation = provider.generation
            self.token = provider.current()["token"]

    provider.current()  # before the first request, which may be refused
    return Renewed()  # type: ignore[no-untyped-call]


def _checked_token(token: Any) -> Any:
    """The token for gcsfs; None if there is none. Raises if it is the path of a key file that
    cannot be used: gcsfs would send the path. The text of a key file becomes what it says."""
    if not isinstance(token, str):
        return token
    if token.lstrip()[:1] == "{":
        return _key_in(token, "token")
    if not (token[:1] in {"/", "~", "."} or token.endswith(".json")):
        return token or None
    try:
        with open(os.path.expanduser(token), encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise CredentialsError(
            f"token={token!r} is the path of a key file, which cannot be read: {error.strerror}"
        ) from None
    _key_in(text, f"the key file {token!r}")
    return os.path.expanduser(token)


def _key_in(text: str, name: str) -> Mapping[str, Any]:
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    if not isinstance(key, dict) or not ("type" in key or "refresh_token" in key):
        raise CredentialsError(
            f"{name} is not the JSON of a service account, of workload identity or of a user"
        )
    return key


def _is_emulated(options: Mapping[str, Any]) -> bool:
    address = options.get("endpoint_url") or os.environ.get("STORAGE_EMULATOR_HOST") or ""
    return bool(address) and not address.rstrip("/").endswith(".googleapis.com")


def _check_size(path: str, body: bytes, size_bytes: int) -> None:
    """Raise unless the store has as many bytes of an object as were sent."""
    stored = _stored_bytes(path, body)
    if stored != size_bytes:
        raise StorageError(f"the store has {stored} bytes of {path} instead of {size_bytes}")


def _stored_bytes(path: str, body: bytes) -> int:
    try:
        return int(json.loads(body)["size"])
    except (ValueError, KeyError, TypeError):  # somebody else has answered, such as a proxy
        raise IncompleteReplyError(f"the answer to the upload of {path} names no size") from None


def _refusal(status: int, body: bytes, path: str) -> Exception:
    """The error for an answer. Metadata are refused in JSON, and media in plain text."""
    text = body.decode(errors="replace").strip()
    try:
        message = str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = text
    if status == 404:
        is_missing_bucket = "bucket does not exist" in message
        return MissingBucketError(message) if is_missing_bucket else FileNotFoundError(path)
    if status == 412:
        return FileExistsError(path)
    return RefusedError(status, message)


def _last(end: int | None) -> str:
    return "" if end is None else str(end - 1)


def _info(found: Mapping[str, Any]) -> ObjectInfo:
    second, _, fraction = found["updated"].removesuffix("Z").partition(".")
    changed = datetime.datetime.fromisoformat(second).replace(tzinfo=datetime.timezone.utc)
    changed_ms = round(changed.timestamp()) * 1000 + int(fraction[:3].ljust(3, "0"))
    return ObjectInfo(found["name"], int(found["size"]), changed_ms)
