"""Credentials that are given for a time, and asked for again before it ends.

`storage_options={"credentials": ask}`: `ask()` returns a mapping. For S3 it has `key`, `secret` and
`token`, for Google `token`, for Azure `sas_token`, `account_key` or `token`. `expires_at` is an ISO
time, a `datetime`, or seconds or milliseconds since 1970. `ask` may also be the name of a function,
`package.module:function`, or of a provider that comes with pylogtable (`unity-catalog`); then it
is found again in every process. `storage_options` without the credentials are passed to it if it
takes an argument.
"""

from __future__ import annotations

import asyncio
import datetime
import importlib
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pylogtable.errors import InvalidRequestError, StorageError
from pylogtable.runtime import Runtime

#: Returns credentials, and when they expire.
Ask: TypeAlias = Callable[..., Mapping[str, Any]]

OPTION = "credentials"
#: A request that is signed with what expires now may arrive later. Credentials that live for a
#: short time are kept for four fifths of it.
RENEW_BEFORE_MS = 300_000
#: Smaller numbers are seconds: as milliseconds they would be in 1973.
_SECONDS_BELOW = 10**11
_NAMED = {"unity-catalog": "pylogtable.storage.unity_catalog:temporary_credentials"}
#: The names that clouds and their tools use for the same thing.
_NAMES = {
    "access_key_id": "key",
    "aws_access_key_id": "key",
    "accesskeyid": "key",
    "secret_access_key": "secret",
    "aws_secret_access_key": "secret",
    "secretaccesskey": "secret",
    "session_token": "token",
    "aws_session_token": "token",
    "sessiontoken": "token",
    "access_token": "token",
    "expiration": "expires_at",
    "expiry": "expires_at",
    "expires_on": "expires_at",
}


class Provider:
    """Asks for credentials, and keeps them while they are valid. Threads share what was asked."""

    def __init__(self, ask: Ask | str, url: str, options: Mapping[str, Any]) -> None:
        self._given = ask
        self._url = url
        self._options = dict(options)
        self._runtime = Runtime()
        self._lock = threading.Lock()
        self._known: Mapping[str, Any] | None = None
        self._renew_at_ms: float = 0.0

    def __reduce__(self) -> tuple[type[Provider], tuple[Ask | str, str, dict[str, Any]]]:
        return Provider, (self._given, self._url, self._options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Provider) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self._url)

    @property
    def is_due(self) -> bool:
        return self._known is None or self._runtime.clock() >= self._renew_at_ms

    def forget(self) -> None:
        """The store has refused what is known."""
        self._known = None

    def current(self) -> Mapping[str, Any]:
        """Credentials that are valid for a while."""
        with self._lock:
            known = self._known
            if known is None or self.is_due:
                asked_ms = self._runtime.clock()
                known = self._asked()
                self._renew_at_ms = _renewal_ms(known.get("expires_at"), asked_ms)
                self._known = known
            return known

    async def fresh(self) -> Mapping[str, Any]:
        """The same for an event loop, which goes on while somebody is asked."""
        known = self._known
        return await asyncio.to_thread(self.current) if known is None or self.is_due else known

    def _asked(self) -> Mapping[str, Any]:
        ask = _found(self._given) if isinstance(self._given, str) else self._given
        try:
            given = ask(self._url, self._options) if _takes_arguments(ask) else ask()
        except StorageError:
            raise
        except Exception as error:
            raise StorageError(
                f"no credentials for {self._url}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(given, Mapping):
            raise InvalidRequestError(
                f"credentials for {self._url} must be a mapping, not {type(given).__name__}"
            )
        return {_NAMES.get(str(name).lower(), str(name)): value for name, value in given.items()}


def provider_in(options: dict[str, Any], url: str) -> Provider | None:
    """Take the provider out of the options."""
    given = options.pop(OPTION, None)
    if given is None or isinstance(given, Provider):
        return given
    if not callable(given) and not isinstance(given, str):
        raise InvalidRequestError(
            f"{OPTION} must be a function that returns credentials, or its name "
            f"('package.module:function', {', '.join(map(repr, _NAMED))}), not {given!r}"
        )
    if isinstance(given, str):
        _found(given)
    return Provider(given, url, options)


def _found(name: str) -> Ask:
    module, _, function = _NAMED.get(name, name).partition(":")
    try:
        found: Ask = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequestError(
            f"{OPTION}={name!r} is not found: it must be 'package.module:function', or one of "
            f"{', '.join(map(repr, _NAMED))} ({error})"
        ) from error
    return found


def _takes_arguments(ask: Ask) -> bool:
    try:
        return len(inspect.signature(ask).parameters) >= 2
    except (TypeError, ValueError):
        return False


def _renewal_ms(expires_at: Any, asked_ms: int) -> float:
    """When to ask again. What does not expire is kept until the store refuses it."""
    if expires_at is None:
        return float("inf")
    expires_ms = expiry_ms(expires_at)
    return max(expires_ms - RENEW_BEFORE_MS, asked_ms + (expires_ms - asked_ms) * 0.8)


def expiry_ms(expires_at: Any) -> float:
    """When credentials expire, in milliseconds since 1970."""
    if isinstance(expires_at, str):
        expires_at = datetime.datetime.fromisoformat(expires_at.replace("Z", "+00:00"))
    if isinstance(expires_at, datetime.datetime):
        if expires_at.tzinfo is None:
            expires_at = expires_at.replace(tzinfo=datetime.timezone.utc)
        return float(expires_at.timestamp() * 1000)
    if isinstance(expires_at, int | float):
        return float(expires_at) * (1000 if expires_at < _SECONDS_BELOW else 1)
    raise InvalidRequestError(
        f"expires_at must be an ISO time, a datetime or a number, not {expires_at!r}"
    )
