"""Connects to an object store through fsspec: checks packages, maps option names, hides secrets.

Client versions without put-if-absent are refused. Clients repeat requests on their own: botocore,
s3fs and aiohttp do so at once, in three layers. Here they are told not to. `storage/requests.py`
repeats what may be repeated.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import inspect
import os
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from pylogtable.errors import InvalidRequestError, LogTableError, UnsupportedFormatError
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.runtime import TIMEOUT_OPTION, patience_in

CONCURRENCY = 32

_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs"}
_S3_NAMES = {
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
    "aws_session_token": "token",
    "aws_endpoint_url": "endpoint_url",
    "aws_endpoint_url_s3": "endpoint_url",
    "aws_endpoint": "endpoint_url",
}
_S3_REGIONS = ("aws_region", "aws_default_region")
_PUBLIC_OPTIONS = {"endpoint_url", "region_name", "account_name", "project"}
_CONNECT_SECONDS = 5.0


class Client:
    """The fsspec file system. It is made when first needed, once per process, for all roots.

    A forked or unpickled client connects again; only the options are passed on.
    """

    _last_reply_ms: int | None

    def __init__(self, protocol: str, storage_options: Mapping[str, object]) -> None:
        self._protocol = protocol
        given = dict(storage_options)
        #: How long the store may be silent before an operation ends with an error.
        self.patience_seconds = patience_in(given)
        given.pop(TIMEOUT_OPTION, None)
        self._options = _native_options(protocol, given)
        self.request_seconds = _request_seconds(self._options)
        self._secrets = sorted(_secret_texts(self._options), key=len, reverse=True)
        self._forget()

    @property
    def last_reply_ms(self) -> int | None:
        """The time in the last reply of S3; None for other stores, and before the first reply."""
        return self._last_reply_ms

    def _note_time(self, parsed: Mapping[str, Any], **_: object) -> None:
        """Called by botocore with every reply, also if it is an error."""
        headers = parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        with suppress(KeyError, TypeError, ValueError):
            moment = parsedate_to_datetime(headers["date"])
            self._last_reply_ms = round(moment.timestamp() * 1000)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._fs: Any = None
        self._single: Any = None
        self._last_reply_ms = None
        #: True as soon as the store has served or refused a request of this process.
        self.has_answered = False

    def __reduce__(self) -> tuple[type[Client], tuple[str, dict[str, Any]]]:
        options = {**self._options, TIMEOUT_OPTION: self.patience_seconds}
        return Client, (self._protocol, options)

    @property
    def fs(self) -> Any:
        """The file system of this process, connected."""
        if self._owner != os.getpid():
            self._forget()
        with self._lock:
            if self._fs is None:
                fs = _connect(self._protocol, self._options)
                if self._protocol == "s3":
                    _watch_replies(fs, self._note_time)
                self._single = single_shot(self._protocol, fs)
                self._fs = fs
            return self._fs

    @property
    def single(self) -> Any:
        """The same file system, but each of its requests is sent once."""
        return self.fs and self._single

    def in_one_put(self, size_bytes: int) -> dict[str, Any]:
        """The arguments with which `_pipe_file` sends an object in one request, however large."""
        return {} if self._protocol == "abfs" else {"chunksize": size_bytes + 1}

    def explain(self, error: Exception) -> str:
        """An error in words, without secrets."""
        if isinstance(error, LogTableError):
            return self.scrub(str(error))
        return self.scrub(f"{type(error).__name__}: {error}")

    def is_same_as(self, other: Client) -> bool:
        """True if both reach the same servers with the same rights, as far as the options say."""
        return self is other or (self._protocol, self._options) == (other._protocol, other._options)

    def scrub(self, text: str) -> str:
        """The text with every secret of the options replaced by `***`."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _connect(protocol: str, options: Mapping[str, Any]) -> Any:
    import fsspec

    try:
        kind = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        raise missing_package(protocol) from error
    _require_conditional_put(protocol, kind)
    fs = kind(**{**options, "use_listings_cache": False, "skip_instance_cache": True})
    if protocol == "s3":
        # Its own loop; that of botocore is switched off by `_native_options`.
        fs.retries = 1
        fs.config_kwargs = {**fs.config_kwargs, "http_session_cls": _single_shot_session()}
    return fs


def _single_shot_session() -> type:
    """The HTTP session of aiobotocore, in which aiohttp does not send a PUT again when the
    connection was closed before the reply."""
    from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]

    class SingleShotSession(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: str | None) -> Any:
            return _never_again(await super()._get_session(proxy_url))

    return SingleShotSession


def _never_again(session: Any) -> Any:
    """The session of aiohttp, told not to repeat requests. Older versions never do."""
    if hasattr(session, "_retry_connection"):
        session._retry_connection = False
    return session


def single_shot(protocol: str, fs: Any) -> Any:
    """A view of the file system in which each request is sent once. Uploads through files of fsspec
    do not use it: they have no other layer that repeats."""
    if protocol == "s3":
        return fs
    view = object.__new__(type(fs))
    view.__dict__.update(fs.__dict__)
    if protocol == "gs":
        view._request = types.MethodType(type(fs)._request.__wrapped__, view)
        return view
    view._timeout_kwargs = {**fs._timeout_kwargs, "retry_total": 0}

    async def put(path: str, data: bytes, **how: Any) -> Any:
        transport = fs.service_client._pipeline._transport
        await transport.open()
        _never_again(transport.session)
        return await type(fs)._pipe_file(view, path, data, **how)

    view._pipe_file = put
    return view


def _watch_replies(fs: Any, note: Callable[..., None]) -> None:
    """Call `note` with each reply of S3. The hook is on the session, since s3fs makes a new client
    when a connection was closed. Times are parsed in a faster way, for the same reason here."""
    if fs.session is None:
        from aiobotocore.session import AioSession  # type: ignore[import-untyped]

        fs.session = AioSession(**fs.kwargs)
    fs.session.register("after-call.s3", note)
    parsers = fs.session.get_component("response_parser_factory")
    parsers.set_parser_defaults(timestamp_parser=_parsed_time)


def _parsed_time(text: Any) -> datetime.datetime:
    """A time in a reply of S3. botocore's own parser guesses the format, which takes two thirds of
    the processor time for a listing."""
    try:
        if text[-1:] == "Z" and text[10:11] == "T":
            return datetime.datetime.fromisoformat(text[:-1]).replace(tzinfo=datetime.timezone.utc)
        return parsedate_to_datetime(text)
    except (TypeError, ValueError):
        from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

        parsed: datetime.datetime = parse_timestamp(text)
        return parsed


def missing_package(protocol: str) -> UnsupportedFormatError:
    """The error that names the package to install."""
    package = _PACKAGES[protocol]
    wanted = "'pylogtable[s3]'" if protocol == "s3" else package
    return UnsupportedFormatError(f"{protocol}:// needs {package}: pip install {wanted}")


def package_of(protocol: str) -> str:
    """The Python package for a protocol."""
    return _PACKAGES[protocol]


def _require_conditional_put(protocol: str, kind: type) -> None:
    """Raise for old clients, which silently ignore the condition and overwrite objects."""
    package = _PACKAGES[protocol]
    put = getattr(kind, "_pipe_file", None)
    known = () if put is None else inspect.signature(put).parameters
    # adlfs takes the mode among other arguments, and turns it into this one.
    if ("overwrite" if protocol == "abfs" else "mode") not in known:
        raise UnsupportedFormatError(
            f"this version of {package} cannot put an object only if it is absent: "
            f"pip install --upgrade {package}"
        )
    if protocol == "s3":
        found = importlib.metadata.version("botocore")
        if tuple(int(part) for part in found.split(".")[:3]) <= (1, 35, 20):
            raise UnsupportedFormatError(
                f"botocore {found} cannot put an object only if it is absent: "
                "pip install --upgrade s3fs aiobotocore"
            )


def _native_options(protocol: str, given: Mapping[str, object]) -> dict[str, Any]:
    """The options with the names that the file system uses. For S3, names of environment variables
    such as `AWS_ACCESS_KEY_ID` are accepted in any case. Unknown options are passed on."""
    if protocol != "s3":
        return dict(given)
    options: dict[str, Any] = {}
    region = None
    for name, value in given.items():
        plain = name.lower()
        if plain in _S3_NAMES:
            options[_S3_NAMES[plain]] = value
        elif plain in _S3_REGIONS:
            region = value
        elif plain != "aws_allow_http":  # the scheme of the endpoint decides this
            options[name] = value
    if region is not None:
        options["client_kwargs"] = {"region_name": region, **(options.get("client_kwargs") or {})}
    options["config_kwargs"] = {
        "max_pool_connections": CONCURRENCY,
        "connect_timeout": _CONNECT_SECONDS,
        "read_timeout": DEFAULT_LIMITS.reply_seconds,
        **(options.get("config_kwargs") or {}),
        "retries": {"total_max_attempts": 1},
    }
    for place in (options, options.get("client_kwargs") or {}):
        if urlsplit(str(place.get("endpoint_url") or "")).username is not None:
            raise InvalidRequestError(
                "endpoint_url must not contain credentials; give key and secret"
            )
    return options


def _request_seconds(options: Mapping[str, Any]) -> float:
    """How long a request may take, apart from the bytes it carries. The client itself gives up
    earlier if there is no connection, or no reply after all was sent."""
    given = options.get("config_kwargs") or {}
    connect = given.get("connect_timeout") or _CONNECT_SECONDS
    return float(connect) + float(given.get("read_timeout") or DEFAULT_LIMITS.reply_seconds)


def _secret_texts(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secret_texts(value)
        elif isinstance(value, str) and len(value) > 3 and name not in _PUBLIC_OPTIONS:
            yield value
