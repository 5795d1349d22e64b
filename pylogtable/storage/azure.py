"""Azure Blob Storage and Data Lake: blobs through Azure's own client, connected by adlfs.

The condition is `If-None-Match: *`. adlfs itself is not asked to put objects: it takes several
requests for one.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from pylogtable.errors import InvalidRequestError, StorageError
from pylogtable.storage.base import ObjectInfo
from pylogtable.storage.credentials import OPTION, Provider
from pylogtable.storage.replies import reply_of
from pylogtable.storage.wire import (
    CONNECT_SECONDS,
    REPLY_SECONDS,
    MissingBucketError,
    NoteDate,
    Page,
    Part,
    Wire,
    send_once,
)

_COPY_PAUSE_SECONDS = 0.1


class AzureWire(Wire):
    """Containers of an account."""

    package = "adlfs"
    extra = "azure"
    client = ("adlfs", "AzureBlobFileSystem")
    cloud = "Azure"
    options = frozenset(
        {
            "account_host",
            "account_key",
            "account_name",
            "anon",
            "client_id",
            "client_secret",
            "connection_string",
            "credential",
            "sas_token",
            "tenant_id",
        }
    )
    advice = (
        "give account_key, sas_token, connection_string, or client_id, client_secret and "
        "tenant_id, or set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or what "
        "DefaultAzureCredential reads (AZURE_CLIENT_ID …, a managed identity, az login)"
    )
    option_names: ClassVar = {
        f"azure_storage_{name}": name
        for name in (
            "account_name",
            "account_key",
            "connection_string",
            "sas_token",
            "client_id",
            "client_secret",
            "tenant_id",
            "anon",
        )
    }

    def __init__(self, options: Mapping[str, Any], note_date: NoteDate) -> None:
        # Python prints warnings of a library without a handler. Azure's fill pages if there are no
        # credentials; the error says it in a line.
        logging.getLogger("azure").addHandler(logging.NullHandler())
        given = dict(options)
        if "anon" not in given and "AZURE_STORAGE_ANON" not in os.environ:
            given["anon"] = False  # older versions of adlfs look for no credentials otherwise
        provider: Provider | None = given.pop(OPTION, None)
        self._credential = (
            None if provider is None else _credential(provider, given.get("account_name"))
        )
        fs = self.client_class()(
            **given,
            **({} if self._credential is None else {"credential": self._credential.given}),
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        if self._credential is not None:
            fs.credential = None  # older versions of adlfs close it, and some cannot be closed
        self._fs = fs  # it closes the connection when it is dropped
        if self._credential is not None and fs.connection_string:  # it may be the environment's
            fs.service_client = _connected(fs.connection_string, self._credential.given)
        self.loop = fs.loop
        self._client = fs.service_client
        self._note_date = note_date
        self._how = {
            "retry_total": 0,
            "connection_timeout": CONNECT_SECONDS,
            "read_timeout": REPLY_SECONDS,
            "raw_response_hook": self._note_reply,
        } | {name: given[name] for name in ("connection_timeout", "read_timeout") if name in given}

    async def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        async with self._blob(path) as blob:
            wanted = {} if (start, end) == (0, None) else {"offset": start}
            if end is not None:
                wanted["length"] = end - start
            stream = await blob.download_blob(**wanted, **self._how)
            data: bytes = await stream.readall()
            return data

    async def info(self, path: str) -> ObjectInfo:
        async with self._blob(path) as blob:
            return _info(await blob.get_blob_properties(**self._how))

    async def put(self, path: str, data: bytes, *, if_absent: bool = False) -> None:
        async with self._blob(path) as blob:
            await blob.upload_blob(data, length=len(data), overwrite=not if_absent, **self._how)

    async def page(
        self, start: str, *, delimited: bool = False, above: str = "", token: Any = None
    ) -> Page:
        container, prefix = self.split(start)
        async with self._asking(start, needs_object=False):
            client = self._client.get_container_client(container)
            listing = client.walk_blobs if delimited else client.list_blobs
            pages = listing(prefix or None, include=["metadata"], **self._how).by_page(token)
            async for found in pages:
                entries = [one async for one in found]
                # With a hierarchical namespace, folders are listed among the blobs.
                blobs = [one for one in entries if hasattr(one, "size") and not _is_folder(one)]
                folders = [one.name for one in entries if not hasattr(one, "size")]
                return Page([_info(blob) for blob in blobs], folders, pages.continuation_token)
            return Page([])

    async def delete(self, path: str) -> None:
        async with self._blob(path) as blob:
            await blob.delete_blob(**self._how)

    async def copy(self, origin: str, path: str) -> None:
        """The store may copy after it has answered. Until then a copy has its size and no data."""
        async with self._blob(path) as blob:
            source = self._client.get_blob_client(*self.split(origin)).url
            status = (await blob.start_copy_from_url(source, **self._how))["copy_status"]
            while status == "pending":
                await asyncio.sleep(_COPY_PAUSE_SECONDS)
                status = (await blob.get_blob_properties(**self._how)).copy.status
            if status != "success":
                raise StorageError(f"the copy of {origin} ended as {status}")

    async def begin_upload(self, path: str) -> Any:
        """Blocks need no beginning. Those that are never used vanish after a week."""

    async def put_part(self, path: str, upload: Any, part: Part) -> Any:
        block = base64.b64encode(b"%08d" % part.number).decode()
        async with self._blob(path) as blob:
            await blob.stage_block(block, part.data, len(part.data), **self._how)
        return block

    async def end_upload(
        self, path: str, upload: Any, parts: Sequence[Any], size_bytes: int
    ) -> None:
        from azure.storage.blob import BlobBlock

        async with self._blob(path) as blob:
            await blob.commit_block_list([BlobBlock(block) for block in parts], **self._how)

    async def drop_upload(self, path: str, upload: Any) -> None:
        """Blocks are forgotten."""

    @asynccontextmanager
    async def _blob(self, path: str) -> AsyncIterator[Any]:
        async with self._asking(path):
            yield self._client.get_blob_client(*self.split(path))

    @asynccontextmanager
    async def _asking(self, path: str, *, needs_object: bool = True) -> AsyncIterator[None]:
        from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError

        await self._renew()
        transport = self._client._pipeline._transport
        await transport.open()
        send_once(transport.session)
        try:
            yield
        except ResourceNotFoundError as error:
            if not needs_object or reply_of(error)[0] in {
                "ContainerNotFound",
                "ContainerBeingDeleted",
            }:
                raise MissingBucketError(self.split(path)[0]) from error
            raise FileNotFoundError(path) from error
        except ResourceExistsError as error:
            if reply_of(error)[0] == "BlobAlreadyExists":
                raise FileExistsError(path) from error
            raise

    async def _renew(self) -> None:
        if self._credential is not None:
            await self._credential.renew()

    def _note_reply(self, reply: Any) -> None:
        date = reply.http_response.headers.get("Date")
        if date is not None:
            self._note_date(date)


class _Sas:
    """A shared access signature, in the place where Azure's client looks for it."""

    def __init__(self, provider: Provider, account: str | None) -> None:
        from azure.core.credentials import AzureSasCredential

        self._provider = provider
        self.given = AzureSasCredential(provider.current()["sas_token"].lstrip("?"))

    async def renew(self) -> None:
        known = await self._provider.fresh()
        self.given.update(known["sas_token"].lstrip("?"))


class _Key:
    """The key of the account."""

    def __init__(self, provider: Provider, account: str | None) -> None:
        from azure.core.credentials import AzureNamedKeyCredential

        self._provider = provider
        self._account = account or provider.current().get("account_name", "")
        self.given = AzureNamedKeyCredential(self._account, provider.current()["account_key"])

    async def renew(self) -> None:
        known = await self._provider.fresh()
        self.given.update(self._account, known["account_key"])


class _Token:
    """A token of Entra ID, which Azure's client asks for."""

    def __init__(self, provider: Provider, account: str | None) -> None:
        self._provider = provider
        self.given = self

    async def renew(self) -> None:
        """Azure's client asks by itself."""

    async def get_token(self, *scopes: str, **how: Any) -> Any:
        from azure.core.credentials import AccessToken

        known = await self._provider.fresh()
        # Azure's client would keep a token that the store has refused, if it said when it expires.
        return AccessToken(known["token"], 0)

    async def close(self) -> None:
        """Nothing is open."""


def _credential(provider: Provider, account: str | None) -> _Sas | _Key | _Token:
    kinds: Mapping[str, type[_Sas | _Key | _Token]] = {
        "sas_token": _Sas,
        "account_key": _Key,
        "token": _Token,
    }
    known = provider.current()
    name = next(name for name in kinds if known.get(name))
    provider.require(name)  # the client is made for one kind
    return kinds[name](provider, account)


def _connected(connection_string: str, credential: Any) -> Any:
    """adlfs uses the credentials in a connection string, and no others."""
    from azure.storage.blob.aio import BlobServiceClient

    parts = (part.partition("=")[0].lower() for part in connection_string.split(";"))
    if not {"accountkey", "sharedaccesssignature"}.isdisjoint(parts):
        raise InvalidRequestError(
            f"give {OPTION} or a connection_string with AccountKey or SharedAccessSignature: "
            f"{OPTION} renew, and the others do not"
        )
    return BlobServiceClient.from_connection_string(connection_string, credential=credential)


def _is_folder(blob: Any) -> bool:
    return (blob.metadata or {}).get("hdi_isfolder") == "true"


def _info(blob: Any) -> ObjectInfo:
    return ObjectInfo(blob.name, int(blob.size), round(blob.last_modified.timestamp() * 1000))
