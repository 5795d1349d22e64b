"""The client of an object store in this process: its options, its connection, its secrets.

Clients repeat requests on their own: botocore, s3fs and aiohttp do so at once, in three layers.
Here they are told not to. `storage/requests.py` repeats what may be repeated.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from pylogtable.errors import LogTableError
from pylogtable.runtime import TIMEOUT_OPTION, patience_in
from pylogtable.storage.azure import AzureWire
from pylogtable.storage.credentials import OPTION, CredentialsError, provider_in
from pylogtable.storage.google import GoogleWire
from pylogtable.storage.options import check_known, check_options, endpoint_in, native_options
from pylogtable.storage.replies import (
    causes,
    is_about_tls,
    is_expired,
    lacks_credentials,
    wrong_credentials,
)
from pylogtable.storage.s3 import S3Wire
from pylogtable.storage.wire import (
    CONNECT_SECONDS,
    REPLY_SECONDS,
    MissingBucketError,
    Wire,
    date_ms,
    missing_package,
)

WIRES: Mapping[str, type[Wire]] = {"s3": S3Wire, "gs": GoogleWire, "abfs": AzureWire}

_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_", "FSSPEC_", "DATABRICKS_")
#: Parts of connection strings and of addresses. Servers and clients repeat them, decoded or not.
_SIGNATURE = re.compile(
    r"\b(sig|AccountKey|SharedAccessSignature|access_token|X-Amz-Security-Token)=[^&;\s\"'<>]+",
    re.I,
)
_PUBLIC_OPTIONS = {
    "endpoint_url",
    "region_name",
    "account_name",
    "account_host",
    "project",
    "profile",
}


#: As `token` they say how to find one.
_WORDS_OF_GOOGLE = {"anon", "browser", "cache", "cloud", "google_default"}


class Client:
    """A wire that is made when first needed, once per process, for all roots of a store.

    A forked client connects again. An unpickled one does so once in a process: only the options are
    passed on, and tasks of Spark bring the same ones again and again.
    """

    _last_reply_ms: int | None

    def __init__(self, protocol: str, url: str, storage_options: Mapping[str, object]) -> None:
        self._protocol = protocol
        self._url = url
        given = dict(storage_options)
        #: How long the store may be silent before an operation ends with an error.
        self.patience_seconds = patience_in(given)
        given.pop(TIMEOUT_OPTION, None)
        kind = WIRES[protocol]
        native = native_options(kind, given)
        self._provider = provider_in(native, protocol, url)
        check_options(kind, native, url, WIRES.values())
        self._options = kind.adapted(native)
        #: Clients look there for what the options do not say.
        self._variables = {
            name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)
        }
        self.request_seconds = _request_seconds(self._options)
        secrets = {*_secret_texts(self._options), *_secret_variables(self._variables)}
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._forget()

    @property
    def endpoint(self) -> str:
        """The server that the options name; "" if they name none."""
        return endpoint_in(self._options).rstrip("/")

    @property
    def last_reply_ms(self) -> int | None:
        """The time in the last reply; None before the first one."""
        return self._last_reply_ms

    def _note_date(self, date: str) -> None:
        moment = date_ms(date)
        if moment is not None:
            self._last_reply_ms = moment

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._wire: Wire | None = None
        self._last_reply_ms = None
        #: True as soon as the store has served or refused a request of this process.
        self.has_answered = False

    def __reduce__(self) -> tuple[Any, tuple[str, str, dict[str, Any]]]:
        options = {**self._options, TIMEOUT_OPTION: self.patience_seconds}
        if self._provider is not None:
            options[OPTION] = self._provider
        return _received, (self._protocol, self._url, options)

    @property
    def wire(self) -> Wire:
        """The wire of this process, connected."""
        if self._owner != os.getpid():
            self._forget()
            self._provider = self._provider and self._provider.afresh()
        with self._lock:
            if self._wire is None:
                self._wire = self._connected()
            return self._wire

    def _connected(self) -> Wire:
        kind = WIRES[self._protocol]
        renewed = {} if self._provider is None else {OPTION: self._provider}
        try:
            check_known(kind, self._options, kind.client_class(), self._url)
            return kind({**_copied(self._options), **renewed}, self._note_date)
        except ImportError as error:
            raise missing_package(kind) from error
        except LogTableError:
            raise
        except Exception as error:
            raise CredentialsError(
                f"cannot connect to {self._url}: {self.explain(error)}"
            ) from self.shown(error)

    @property
    def generation(self) -> int:
        """Which credentials are in use."""
        return 0 if self._provider is None else self._provider.generation

    def renew(self, error: Exception, generation: int) -> bool:
        """True if a request was refused for credentials that can be asked for again. `generation`
        was in use when it was sent."""
        if self._provider is None or not is_expired(error):
            return False
        self._provider.forget(generation)
        return True

    def explain(self, error: Exception) -> str:
        """An error in words, without secrets."""
        if isinstance(error, LogTableError):
            return self.scrub(str(error))
        if isinstance(error, MissingBucketError):
            where = f" at {self.endpoint}" if self.endpoint else ""
            return self.scrub(
                f"{self._place} does not exist{where}: create it, or check the address"
            )
        advice, first_line = WIRES[self._protocol].advice, _first_line(error)
        if lacks_credentials(error):
            return self.scrub(f"no credentials were found: {advice} ({first_line})")
        if (code := wrong_credentials(error)) is not None:
            return self.scrub(
                f"the store refuses the credentials ({code}): check the options or variables that "
                f"give them ({first_line})"
            )
        if is_about_tls(error):
            first_line += "; does the address need http:// or https://?"
        return self.scrub(f"{type(error).__name__}: {first_line}")

    def shown(self, error: BaseException) -> BaseException | None:
        """The error, to be shown as the cause of another one; None if it tells a secret."""
        tells = any(self.scrub(str(seen)) != str(seen) for seen in causes(error))
        return None if tells else error

    @property
    def _place(self) -> str:
        name = self._url.partition("://")[2].partition("/")[0].partition("@")[0]
        return f"the {'container' if self._protocol == 'abfs' else 'bucket'} {name!r}"

    def is_same_as(self, other: Client) -> bool:
        """True if both reach the same servers with the same rights, as far as the options say."""
        return self is other or (self._protocol, self._options, self._provider) == (
            other._protocol,
            other._options,
            other._provider,
        )

    def is_twin_of(self, other: Client) -> bool:
        """True if one can stand for the other."""
        return self._surroundings == other._surroundings and self.is_same_as(other)

    @property
    def _surroundings(self) -> tuple[object, ...]:
        return self._url, self.patience_seconds, self._variables

    def scrub(self, text: str) -> str:
        """The text with every secret replaced by `***`."""
        given = () if self._provider is None else self._provider.secrets()
        for secret in (*self._secrets, *given):
            text = text.replace(secret, "***")
        return _SIGNATURE.sub(r"\1=***", text)


#: The clients that came from other processes, the last used one last. To connect to S3 takes a
#: third of a second of processor time. There is no lock, which a fork could leave locked: at worst
#: two threads connect.
_arrived: list[Client] = []
_MOST_ARRIVED = 8


def _received(protocol: str, url: str, options: dict[str, Any]) -> Client:
    """The client with these options in this process."""
    new = Client(protocol, url, options)
    client = next((known for known in tuple(_arrived) if known.is_twin_of(new)), new)
    others = [known for known in tuple(_arrived) if known is not client]
    _arrived[:] = [*others, client][-_MOST_ARRIVED:]
    return client


def _first_line(error: Exception) -> str:
    """What an error says; two lines if the first one only announces the second."""
    lines = str(error).splitlines() or [""]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def _copied(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for a client, which writes into the mappings that it gets. Other objects, such as
    credentials, may have no copies."""
    return {
        name: _copied(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
    }


def _request_seconds(options: Mapping[str, Any]) -> float:
    """How long a request may take, apart from the bytes it carries. The client itself gives up
    earlier if there is no connection, or no reply after all was sent."""
    given = options.get("config_kwargs") or {}
    connect = given.get("connect_timeout") or CONNECT_SECONDS
    return float(connect) + float(given.get("read_timeout") or REPLY_SECONDS)


def _secret_variables(variables: Mapping[str, str]) -> Iterator[str]:
    for name, value in variables.items():
        is_secret = any(word in name for word in ("SECRET", "TOKEN", "KEY", "CONNECTION_STRING"))
        if is_secret and len(value) > 3 and not name.endswith("_FILE"):
            yield value


def _secret_texts(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secret_texts(value)
        elif isinstance(value, str) and len(value) > 3 and name not in _PUBLIC_OPTIONS:
            yield from {value} - _WORDS_OF_GOOGLE
