"""What is sent to an object store: each method is one request, and one answer.

A wire uses the client of its cloud for connections and credentials, and sends requests itself, so
that they are the same on every cloud: one for each verb, never repeated, with the condition that
the store checks, and with the store's time in the answer [STORE-2], [STORE-3], [STORE-5].
`storage/requests.py` repeats what may be repeated.

A path begins with the bucket. An object that does not exist is a `FileNotFoundError`, a bucket
that does not exist a `MissingBucketError`. Anything else is an error that `storage/replies.py`
knows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any, ClassVar

from pylogtable.errors import UnsupportedFormatError
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.storage.base import ObjectInfo

#: How many requests one client sends at a time.
CONCURRENCY = 32
CONNECT_SECONDS = 5.0
REPLY_SECONDS = DEFAULT_LIMITS.reply_seconds

#: Called with the `Date` of each answer.
NoteDate = Callable[[str], None]


class MissingBucketError(Exception):
    """The bucket, or the container, does not exist."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing. Keys are those of the bucket."""

    objects: Sequence[ObjectInfo]
    folders: Sequence[str] = ()
    #: Where the next page begins; None if this is the last one.
    token: Any = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an object that is uploaded. It is a multiple of 256 KiB, unless it is the last."""

    number: int
    offset: int
    data: bytes
    is_last: bool


class Wire(ABC):
    """The connection of this process to one store, with the credentials in `options`."""

    #: The Python package that connects, and the extra of pylogtable that installs it.
    package: ClassVar[str]
    extra: ClassVar[str]
    #: Where credentials may come from.
    advice: ClassVar[str]
    #: The fsspec file system that connects: its module and its name.
    client: ClassVar[tuple[str, str]]
    cloud: ClassVar[str]
    #: The options for addresses and credentials. The client may have more.
    options: ClassVar[frozenset[str]]
    #: Other names of options, in small letters: those of environment variables.
    option_names: ClassVar[Mapping[str, str]] = {}
    #: How many objects one request can delete.
    deleted_at_once: ClassVar[int] = 1

    #: The event loop in which requests are sent.
    loop: AbstractEventLoop

    @abstractmethod
    def __init__(self, options: Mapping[str, Any], note_date: NoteDate) -> None: ...

    @classmethod
    def client_class(cls) -> type[Any]:
        module, name = cls.client
        found: type[Any] = getattr(import_module(module), name)
        return found

    @classmethod
    def adapted(cls, options: dict[str, Any]) -> dict[str, Any]:
        """The options as the client wants them."""
        return options

    def split(self, path: str) -> tuple[str, str]:
        """The bucket and the key of a path."""
        bucket, _, key = path.partition("/")
        return bucket, key

    @abstractmethod
    async def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes `[start, end)` of an object, or all of it."""

    @abstractmethod
    async def info(self, path: str) -> ObjectInfo:
        """Size and time of an object."""

    @abstractmethod
    async def put(self, path: str, data: bytes, *, if_absent: bool = False) -> None:
        """Put an object. With `if_absent`, `FileExistsError` if it is there."""

    @abstractmethod
    async def page(
        self, start: str, *, delimited: bool = False, above: str = "", token: Any = None
    ) -> Page:
        """Objects whose path starts with these characters; the store may add others of the same
        folder, in any order. `delimited`: only those of one folder,
        and its folders. `above`: the store may leave out keys that are not above this one."""

    @abstractmethod
    async def delete(self, path: str) -> None:
        """Delete an object."""

    async def delete_together(self, paths: Sequence[str]) -> None:
        """Delete up to `deleted_at_once` objects of one bucket."""
        raise NotImplementedError

    @abstractmethod
    async def copy(self, origin: str, path: str) -> None:
        """Copy an object inside the store. Large ones may take several requests."""

    @abstractmethod
    async def begin_upload(self, path: str) -> Any:
        """Begin to upload an object in parts."""

    @abstractmethod
    async def put_part(self, path: str, upload: Any, part: Part) -> Any:
        """Upload a part. The same part may be sent again. Returns what `end_upload` needs."""

    @abstractmethod
    async def end_upload(
        self, path: str, upload: Any, parts: Sequence[Any], size_bytes: int
    ) -> None:
        """Make the object appear."""

    @abstractmethod
    async def drop_upload(self, path: str, upload: Any) -> None:
        """Let the store forget the parts. Where it forgets them by itself, nothing is sent."""


def missing_package(kind: type[Wire]) -> UnsupportedFormatError:
    """The error that names the package to install."""
    return UnsupportedFormatError(
        f"this address needs {kind.package}: pip install 'pylogtable[{kind.extra}]'"
    )


def date_ms(date: str) -> int | None:
    """The time in a `Date` header."""
    with suppress(TypeError, ValueError):
        return round(parsedate_to_datetime(date).timestamp() * 1000)
    return None


def send_once(session: Any) -> None:
    """Tell a session of aiohttp not to send a request again when its connection was closed. Older
    versions never do."""
    if hasattr(session, "_retry_connection"):
        session._retry_connection = False
