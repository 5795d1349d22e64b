"""S3 and servers that speak it, through s3fs.

The condition is `If-None-Match: *`. Clients without it are refused: they ignore it, and overwrite.
On a server that ignores it commits get lost. Creating a topic detects such a server and refuses it.
A server that checks the condition first and writes later is found by `pylogtable doctor`.
"""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar

from pylogtable.errors import StorageError, UnsupportedFormatError
from pylogtable.storage.base import ObjectInfo
from pylogtable.storage.credentials import OPTION, Provider
from pylogtable.storage.replies import IncompleteReplyError, reply_of
from pylogtable.storage.wire import (
    CONCURRENCY,
    CONNECT_SECONDS,
    REPLY_SECONDS,
    MissingBucketError,
    NoteDate,
    Page,
    Part,
    Wire,
    send_once,
)

#: The first botocore with the condition is the one after this.
_LAST_WITHOUT_CONDITION = (1, 35, 20)


#: Directory buckets (S3 Express) list whole folders, in no order, and from their beginning.
_DIRECTORY_BUCKET = "--x-s3"


class S3Wire(Wire):
    """Buckets of S3."""

    package = "s3fs"
    extra = "s3"
    client = ("s3fs", "S3FileSystem")
    cloud = "S3"
    options = frozenset(
        {
            "anon",
            "client_kwargs",
            "config_kwargs",
            "endpoint_url",
            "key",
            "profile",
            "secret",
            "token",
        }
    )
    advice = (
        "give key and secret, or profile, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
        "AWS_PROFILE, in every process, or give the machine a role"
    )
    option_names: ClassVar = {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
        "aws_endpoint_url": "endpoint_url",
        "aws_endpoint_url_s3": "endpoint_url",
        "aws_endpoint": "endpoint_url",
        "aws_profile": "profile",
        "aws_region": "region_name",
        "aws_default_region": "region_name",
        "region": "region_name",
        "aws_allow_http": "allow_http",
    }
    deleted_at_once = 1000

    def __init__(self, options: Mapping[str, Any], note_date: NoteDate) -> None:
        _require_condition()
        given = dict(options)
        provider: Provider | None = given.pop(OPTION, None)
        fs = self.client_class()(**given, use_listings_cache=False, skip_instance_cache=True)
        # Its own loop; that of botocore is switched off by `native_options`.
        fs.retries = 1
        fs.config_kwargs = {**fs.config_kwargs, "http_session_cls": _single_shot_session()}
        self._note_date = note_date
        self._fs = fs
        self.loop = fs.loop
        self._prepare_session()
        if provider is not None:
            fs.session._credentials = _renewed(provider)

    @classmethod
    def adapted(cls, options: dict[str, Any]) -> dict[str, Any]:
        options.pop("allow_http", None)  # the endpoint's scheme decides this
        if "region_name" in options:
            further = options.get("client_kwargs") or {}
            options["client_kwargs"] = {"region_name": options.pop("region_name"), **further}
        options["config_kwargs"] = {
            "max_pool_connections": CONCURRENCY,
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": REPLY_SECONDS,
            **(options.get("config_kwargs") or {}),
            "retries": {"total_max_attempts": 1},
        }
        return options

    def split(self, path: str) -> tuple[str, str]:
        # s3fs knows the names of access points. What it says of keys is not used: it looks for
        # versions in them, and older ones take the last slash away.
        bucket: str = self._fs.split_path(path)[0]
        return bucket, path[len(bucket) + 1 :]

    async def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        last = "" if end is None else end - 1
        wanted = {} if (start, end) == (0, None) else {"Range": f"bytes={start}-{last}"}
        reply = await self._call("get_object", path, **wanted)
        async with reply["Body"] as body:
            data: bytes = await body.read()
        return data

    async def info(self, path: str) -> ObjectInfo:
        reply = await self._call("head_object", path)
        return ObjectInfo(self.split(path)[1], int(reply["ContentLength"]), _changed_ms(reply))

    async def put(self, path: str, data: bytes, *, if_absent: bool = False) -> None:
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        reply = await self._call("put_object", path, Body=data, **condition)
        if "ETag" not in reply:  # somebody else has answered, such as a proxy
            raise IncompleteReplyError(f"the answer to PUT {path} has no ETag")

    async def page(
        self, start: str, *, delimited: bool = False, above: str = "", token: Any = None
    ) -> Page:
        bucket, prefix = self.split(start)
        if bucket.endswith(_DIRECTORY_BUCKET):
            prefix, above = prefix[: prefix.rfind("/") + 1], ""
        asked = {"Delimiter": "/" if delimited else "", "StartAfter": above}
        where = {"ContinuationToken": token} if token else asked
        given = {**where, "Delimiter": asked["Delimiter"]}
        async with _translated(start, needs_object=False):
            reply = await self._fs._call_s3(
                "list_objects_v2",
                Bucket=bucket,
                Prefix=prefix,
                **{name: value for name, value in given.items() if value},
                **self._fs.req_kw,
            )
        objects = [
            ObjectInfo(found["Key"], int(found["Size"]), _changed_ms(found))
            for found in reply.get("Contents", ())
        ]
        folders = [found["Prefix"] for found in reply.get("CommonPrefixes", ())]
        return Page(objects, folders, reply.get("NextContinuationToken"))

    async def delete(self, path: str) -> None:
        await self._call("delete_object", path)

    async def delete_together(self, paths: Sequence[str]) -> None:
        named = [{"Key": self.split(path)[1]} for path in paths]
        async with _translated(paths[0]):
            reply = await self._fs._call_s3(
                "delete_objects",
                Bucket=self.split(paths[0])[0],
                Delete={"Objects": named, "Quiet": True},
            )
        for failed in reply.get("Errors") or ():
            raise StorageError(
                f"{len(reply['Errors'])} of {len(paths)} objects were not deleted, one of them is "
                f"{failed.get('Key')}: {failed.get('Code')} {failed.get('Message')}"
            )

    async def copy(self, origin: str, path: str) -> None:
        """s3fs copies in parts if an object is too large for one request."""
        async with _translated(origin):
            await self._fs._cp_file(origin, path)

    async def begin_upload(self, path: str) -> Any:
        return (await self._call("create_multipart_upload", path))["UploadId"]

    async def put_part(self, path: str, upload: Any, part: Part) -> Any:
        done = await self._call(
            "upload_part", path, UploadId=upload, PartNumber=part.number, Body=part.data
        )
        return {"PartNumber": part.number, "ETag": done["ETag"]}

    async def end_upload(
        self, path: str, upload: Any, parts: Sequence[Any], size_bytes: int
    ) -> None:
        await self._call(
            "complete_multipart_upload",
            path,
            UploadId=upload,
            MultipartUpload={"Parts": list(parts)},
        )

    async def drop_upload(self, path: str, upload: Any) -> None:
        await self._call("abort_multipart_upload", path, UploadId=upload)

    async def _call(self, method: str, path: str, **more: Any) -> Any:
        bucket, key = self.split(path)
        async with _translated(path):
            return await self._fs._call_s3(method, Bucket=bucket, Key=key, **more)

    def _prepare_session(self) -> None:
        """The hook is on the session, since s3fs makes a new client when a connection was closed.
        Times are parsed in a faster way, for the same reason here."""
        fs = self._fs
        if fs.session is None:
            from aiobotocore.session import AioSession  # type: ignore[import-untyped]

            fs.session = AioSession(**fs.kwargs)
        fs.session.register("after-call.s3", self._note_reply)
        # botocore asks whether it may send the body, and waits a round trip for the answer.
        emitter = fs.session.get_component("event_emitter")
        emitter.register_last("before-call.s3", _send_body_at_once)
        parsers = fs.session.get_component("response_parser_factory")
        parsers.set_parser_defaults(timestamp_parser=parsed_time)

    def _note_reply(self, parsed: Mapping[str, Any], **_: object) -> None:
        """Called by botocore with every reply, also if it is an error."""
        headers = parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        if "date" in headers:
            self._note_date(headers["date"])


@asynccontextmanager
async def _translated(path: str, *, needs_object: bool = True) -> AsyncIterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if not needs_object or reply_of(error)[0] == "NoSuchBucket":
            raise MissingBucketError(path.partition("/")[0]) from error
        raise


def _send_body_at_once(params: Mapping[str, Any], **_: object) -> None:
    params["headers"].pop("Expect", None)


def _renewed(provider: Provider) -> Any:
    """Credentials for aiobotocore, which asks for them before it signs a request."""
    from aiobotocore.credentials import AioCredentials  # type: ignore[import-untyped]
    from botocore.credentials import ReadOnlyCredentials  # type: ignore[import-untyped]

    class Renewed(AioCredentials):  # type: ignore[misc]
        async def get_frozen_credentials(self) -> Any:
            known = await provider.fresh()
            return ReadOnlyCredentials(known["key"], known["secret"], known.get("token"))

    known = provider.current()
    return Renewed(known["key"], known["secret"], known.get("token"), method="pylogtable")


def _single_shot_session() -> type:
    """The HTTP session of aiobotocore, in which aiohttp does not send a PUT again when the
    connection was closed before the reply."""
    from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]

    class SingleShotSession(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            send_once(session)
            return session

    return SingleShotSession


def parsed_time(text: Any) -> datetime.datetime:
    """A time in a reply. botocore's own parser guesses the format, which takes two thirds of the
    processor time for a listing."""
    try:
        if text[-1:] == "Z" and text[10:11] == "T":
            return datetime.datetime.fromisoformat(text[:-1]).replace(tzinfo=datetime.timezone.utc)
        return parsedate_to_datetime(text)
    except (TypeError, ValueError):
        from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

        parsed: datetime.datetime = parse_timestamp(text)
        return parsed


def _changed_ms(found: Mapping[str, Any]) -> int:
    changed: datetime.datetime = found["LastModified"]
    return round(changed.timestamp() * 1000)


def _require_condition() -> None:
    found = importlib.metadata.version("botocore")
    if tuple(int(part) for part in found.split(".")[:3]) <= _LAST_WITHOUT_CONDITION:
        raise UnsupportedFormatError(
            f"botocore {found} cannot put an object only if it is absent: "
            "pip install --upgrade s3fs aiobotocore"
        )
