"""Credentials that are given for a time, and asked for again before it ends.

`storage_options={"credentials": ask}`: `ask()` returns a mapping. For S3 it has `key`, `secret` and
`token`, for Google `token`, for Azure `sas_token`, `account_key` or `token`. `expires_at` is an ISO
time, a `datetime`, or seconds or milliseconds since 1970. `ask` may also be the name of a function,
`package.module:function`, or of a provider that comes with pylogtable (`unity-catalog`); then it
is found again in every process. A function that needs arguments gets the address, and the storage
options as the second one.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import importlib
import inspect
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from pylogtable.arguments import YEAR_10000_MS
from pylogtable.errors import InvalidRequestError, StorageError
from pylogtable.runtime import Runtime

#: Returns credentials, and when they expire.
Ask: TypeAlias = Callable[..., Mapping[str, Any]]

OPTION = "credentials"
#: A request that is signed with what expires now may arrive later. Credentials that live for a
#: short time are kept for four fifths of it.
RENEW_BEFORE_MS = 300_000
#: Somebody who gave no new credentials is asked again after this time, as long as the old ones are
#: valid.
ASK_AGAIN_MS = 10_000
#: Smaller numbers are seconds: as milliseconds they would be in 1973.
_SECONDS_BELOW = 10**11
#: What a store needs: one of these.
_NEEDED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "s3": (("key", "secret"),),
    "gs": (("token",),),
    "abfs": (("sas_token",), ("account_key",), ("token",)),
}
#: Options that say the same thing once and for all.
_FIXED: Mapping[str, tuple[str, ...]] = {
    "s3": ("key", "secret", "token", "profile", "anon"),
    "gs": ("token",),
    "abfs": ("sas_token", "account_key", "client_secret", "credential"),
}
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
    "expires": "expires_at",
    "expires_on": "expires_at",
}


class CredentialsError(StorageError):
    """There are no credentials, or no client can be made with them, or the store refuses them.
    Nothing was done."""


@dataclass(frozen=True)
class _Named:
    """A provider that comes with pylogtable. Options that begin with `prefix` are its own."""

    function: str
    prefix: str


_NAMED = {
    "unity-catalog": _Named(
        "pylogtable.storage.unity_catalog:temporary_credentials", "unity_catalog_"
    )
}


class Provider:
    """Asks for credentials, and keeps them while they are valid. Threads share what was asked."""

    def __init__(
        self,
        ask: Ask | str,
        protocol: str,
        url: str,
        options: Mapping[str, Any],
        runtime: Runtime | None = None,
    ) -> None:
        self._given = ask
        self._protocol = protocol
        self._url = url
        self._options = dict(options)
        self._runtime = runtime or Runtime()
        self._needed = _NEEDED[protocol]
        self._lock = threading.Lock()
        self._known: Mapping[str, Any] | None = None
        self._renew_at_ms = self._expires_ms = 0.0
        #: How often credentials were given.
        self.generation = 0

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            pickle.dumps(self._given)
        except Exception:
            raise InvalidRequestError(
                f"{OPTION}={self._given!r} cannot be sent to another process: give a function of a "
                "module, or its name, 'package.module:function'"
            ) from None
        return provider_for, (self._given, self._protocol, self._url, self._options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Provider) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._url)

    @property
    def _identity(self) -> tuple[object, ...]:
        return self._given, self._protocol, self._url, self._options

    def __repr__(self) -> str:
        return f"Provider({self._name}, {self._url!r})"

    @property
    def is_due(self) -> bool:
        return self._known is None or self._runtime.clock() >= self._renew_at_ms

    def afresh(self) -> Provider:
        """The same provider for another process, which has asked for nothing yet."""
        return provider_for(self._given, self._protocol, self._url, self._options)

    def require(self, *names: str) -> None:
        """From now on credentials need these names."""
        self._needed = (names,)

    def forget(self, generation: int) -> None:
        """The store has refused what was given as this generation. What was given later is kept:
        many requests may be refused at once."""
        with self._lock:
            if generation == self.generation:
                self._known = None

    def current(self) -> Mapping[str, Any]:
        """Credentials that are valid for a while."""
        with self._lock:
            known = self._known
            if known is None or self.is_due:
                known = self._known = self._renewed(known)
            return known

    async def fresh(self) -> Mapping[str, Any]:
        """The same for an event loop, which goes on while somebody is asked."""
        known = self._known
        return await asyncio.to_thread(self.current) if known is None or self.is_due else known

    def secrets(self) -> Iterator[str]:
        """What must not be shown."""
        for texts in (self._known or {}, self._options):
            for name, value in texts.items():
                if isinstance(value, str) and len(value) > 3 and not name.endswith(_SHOWN):
                    yield value
                    signature = value.partition("sig=")[2].partition("&")[0]
                    if signature:  # of a shared access signature, in an address or in a text
                        yield from (signature, unquote(signature))

    def _renewed(self, known: Mapping[str, Any] | None) -> Mapping[str, Any]:
        asked_ms = self._runtime.clock()
        try:
            given = self._asked()
            expires_at = given.get("expires_at")
            expires_ms = float("inf") if expires_at is None else self._expiry_ms(expires_at)
            if expires_ms <= self._runtime.clock():
                raise self._failure(f"those that it gave have expired already, at {expires_at}")
        except CredentialsError:
            if known is None or asked_ms >= self._expires_ms:
                raise
            self._renew_at_ms = min(asked_ms + ASK_AGAIN_MS, self._expires_ms)
            return known
        self._expires_ms = expires_ms
        self._renew_at_ms = renewal_ms(expires_ms, asked_ms)
        self.generation += 1
        return given

    def _asked(self) -> Mapping[str, Any]:
        try:
            ask = _found(self._given) if isinstance(self._given, str) else self._given
            given = ask(*(self._url, self._options)[: _count_arguments(ask)])
        except CredentialsError:
            raise
        except Exception as error:
            raise self._failure(f"{type(error).__name__}: {error}") from error
        if not isinstance(given, Mapping):
            raise self._failure(f"it must return a mapping, not {type(given).__name__}")
        given = given.get("Credentials", given)  # a reply of STS
        known = {_NAMES.get(str(name).lower(), str(name)): value for name, value in given.items()}
        for names in self._needed:
            if all(isinstance(known.get(name), str) and known[name] for name in names):
                return known
        wanted = " or ".join(" and ".join(names) for names in self._needed)
        told = ", ".join(f"{name} ({type(known[name]).__name__})" for name in sorted(known))
        raise self._failure(f"it must return {wanted} as text, and returned {told or 'nothing'}")

    def _expiry_ms(self, expires_at: Any) -> float:
        try:
            return expiry_ms(expires_at)
        except ValueError as error:
            raise self._failure(str(error)) from error

    def _failure(self, reason: str) -> CredentialsError:
        return CredentialsError(f"{self._name} gives no credentials for {self._url}: {reason}")

    @property
    def _name(self) -> str:
        given = self._given
        if isinstance(given, str):
            return given
        known_as = getattr(given, "__qualname__", type(given).__qualname__)
        return f"{getattr(given, '__module__', '')}:{known_as}".lstrip(":")


#: Ends of the names of options and credentials that are no secrets.
_SHOWN = ("_url", "_name", "_at", "region", "_operation")


def provider_in(options: dict[str, Any], protocol: str, url: str) -> Provider | None:
    """Take the provider out of the options, and what belongs to it."""
    given = options.pop(OPTION, None)
    name = given if isinstance(given, str) else None
    own = _own_options(options, name)
    if given is None or isinstance(given, Provider):
        return given
    fixed = _FIXED[protocol]
    if not callable(given) and name is None:
        raise InvalidRequestError(
            f"{OPTION} must be a function that returns credentials, or its name "
            f"('package.module:function', {', '.join(map(repr, _NAMED))}), not a "
            f"{type(given).__name__}. Fixed ones are options themselves: {', '.join(fixed)}"
        )
    both = [option for option in fixed if options.get(option)]
    if both:
        raise InvalidRequestError(
            f"give {OPTION} or {' and '.join(both)}: {OPTION} renew, and the others do not"
        )
    if name is not None:
        _found(name)
    return provider_for(given, protocol, url, {**options, **own})


def provider_for(ask: Ask | str, protocol: str, url: str, options: Mapping[str, Any]) -> Provider:
    """The provider of this process for an address. One that is known by its name is shared by all
    who open the address: each task of Spark does."""
    try:
        text = json.dumps(options, sort_keys=True) if isinstance(ask, str) else None
    except TypeError:
        text = None
    if text is None or not isinstance(ask, str):
        return Provider(ask, protocol, url, options)
    return _shared(ask, protocol, url, text, os.getpid())


@functools.lru_cache(maxsize=64)
def _shared(name: str, protocol: str, url: str, options: str, process: int) -> Provider:
    return Provider(name, protocol, url, json.loads(options))


def portable_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Storage options as JSON can have them: a function of a module becomes its name."""
    given = options.get(OPTION)
    if not callable(given):
        return dict(options)
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", "")
    text = f"{module}:{name}"
    if module in {None, "__main__"} or not name.isidentifier() or _found(text) is not given:
        raise InvalidRequestError(
            f"{OPTION}={given!r} is not known to Spark's workers: put the function into a module "
            "that they have, and give its name, 'package.module:function'"
        )
    return {**options, OPTION: text}


def module_of_provider(options: Mapping[str, Any]) -> str:
    """The module of a function that is given by its name; "" if none is."""
    given = options.get(OPTION)
    is_function = isinstance(given, str) and given not in _NAMED
    return str(given).partition(":")[0] if is_function else ""


def _own_options(options: dict[str, Any], provider: str | None) -> dict[str, Any]:
    own: dict[str, Any] = {}
    for name, named in _NAMED.items():
        found = [option for option in options if option.lower().startswith(named.prefix)]
        if found and name != provider:
            raise InvalidRequestError(f"{found[0]} needs {OPTION}={name!r}")
        own.update((option.lower(), options.pop(option)) for option in found)
    return own


def _found(name: str) -> Ask:
    function = _NAMED[name].function if name in _NAMED else name
    module, _, attribute = function.partition(":")
    try:
        found: Ask = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequestError(
            f"{OPTION}={name!r} is not found: it must be 'package.module:function', or one of "
            f"{', '.join(map(repr, _NAMED))} ({error})"
        ) from error
    return found


def _count_arguments(ask: Ask) -> int:
    """How many arguments a function needs."""
    try:
        parameters = inspect.signature(ask).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional and one.default is one.empty for one in parameters)


def renewal_ms(expires_ms: float, asked_ms: float) -> float:
    """When to ask again. What does not expire is kept until the store refuses it."""
    if expires_ms == float("inf"):
        return expires_ms
    return max(expires_ms - RENEW_BEFORE_MS, asked_ms + (expires_ms - asked_ms) * 0.8)


def expiry_ms(expires_at: Any) -> float:
    """When credentials expire, in milliseconds since 1970. Raises ValueError."""
    with suppress(ValueError, OverflowError):
        moment = _moment(expires_at)
        if isinstance(moment, datetime.datetime):
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=datetime.timezone.utc)
            return float(moment.timestamp() * 1000)
        if moment is not None and 0 <= moment < YEAR_10000_MS:
            return float(moment) * (1000 if moment < _SECONDS_BELOW else 1)
    raise ValueError(
        f"expires_at must be an ISO time, a datetime, or seconds or milliseconds since 1970, "
        f"not {expires_at!r}"
    )


def _moment(expires_at: Any) -> datetime.datetime | int | float | None:
    if isinstance(expires_at, str):
        if expires_at.strip().isdecimal():  # `expires_on` of Azure
            return int(expires_at)
        return datetime.datetime.fromisoformat(expires_at.replace("Z", "+00:00"))
    is_known = isinstance(expires_at, datetime.datetime | int | float)
    return expires_at if is_known and not isinstance(expires_at, bool) else None
