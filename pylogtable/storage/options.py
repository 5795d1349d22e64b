"""Checks what `storage_options` say, before anything is sent. An option that would do nothing is a
mistake, and most clients do not say so. Values are not shown: they may be secrets."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pylogtable.errors import InvalidRequestError
from pylogtable.storage.wire import Wire

GUIDE = "'Options for credentials' in pylogtable/storage/README.md has all"
_ENDPOINT = re.compile(r"https?://[^\s/@]+(/\S*)?")
_MAPPINGS = ("client_kwargs", "config_kwargs", "session_kwargs")
#: The client gets these from us.
_OURS = ("use_listings_cache", "skip_instance_cache")
#: Options of every fsspec file system, which are in no signature.
_OF_FSSPEC = ("batch_size", "listings_expiry_time", "max_paths")


def native_options(kind: type[Wire], given: Mapping[str, object]) -> dict[str, Any]:
    """The options with the names that the client uses. Unknown ones are passed on."""
    options: dict[str, Any] = {}
    named: dict[str, str] = {}
    for name, value in given.items():
        if name in _OURS:
            continue
        known_as = kind.option_names.get(name.lower(), name)
        if known_as in named:
            raise InvalidRequestError(f"{named[known_as]} and {name} are the same option: give one")
        named[known_as], options[known_as] = name, value
    anon = options.get("anon")
    if isinstance(anon, str):
        if anon.lower() not in {"true", "false"}:
            raise InvalidRequestError("anon must be True or False")
        options["anon"] = anon.lower() == "true"
    for name in _MAPPINGS:
        if not isinstance(options.get(name) or {}, Mapping):
            raise InvalidRequestError(f"{name} must be a mapping, such as {{'name': 'value'}}")
    return options


def endpoint_in(options: Mapping[str, Any]) -> str:
    """The server that native options name; "" if they name none."""
    further = options.get("client_kwargs") or {}
    return str(options.get("endpoint_url") or further.get("endpoint_url") or "")


def check_options(
    kind: type[Wire], options: Mapping[str, Any], place: str, kinds: Iterable[type[Wire]]
) -> None:
    """Raise if an option is one of another cloud, or nearly one of this cloud, or cannot be meant.
    `place` is the address."""
    for name in options.keys() - kind.options:
        others = [other for other in kinds if name in other.options]
        similar = _similar(name, kind.options)
        if others:
            of = " and ".join(other.cloud for other in others)
            raise InvalidRequestError(
                f"storage_options: {name} is an option of {of}, and {place} is on {kind.cloud}"
                + (f": did you mean {similar}?" if similar else f"; {GUIDE}")
            )
        if similar:
            raise _unknown(name, kind.options, place)
    endpoint = endpoint_in(options)
    if endpoint and not _ENDPOINT.fullmatch(endpoint):
        raise InvalidRequestError(
            "endpoint_url must be http://host:port or https://host, without blanks and credentials"
        )
    for name, value in options.items():
        is_text = isinstance(value, str) and name in kind.options
        if is_text and (value != value.strip() or not value.isprintable()):
            raise InvalidRequestError(f"{name} has a blank or a line break at one of its ends")


def check_known(kind: type[Wire], options: Mapping[str, Any], client: type, place: str) -> None:
    """Raise if the client itself does not know an option."""
    known = {*kind.options, *_OF_FSSPEC, *kind.option_names.values()}
    for base in client.__mro__:
        if base is not object and "__init__" in vars(base):
            known |= inspect.signature(vars(base)["__init__"]).parameters.keys()
    for name in options.keys() - known:
        raise _unknown(name, kind.options, place)


def _unknown(name: str, known: Collection[str], place: str) -> InvalidRequestError:
    similar = _similar(name, known)
    hint = f"did you mean {similar}?" if similar else f"there are {', '.join(sorted(known))}"
    return InvalidRequestError(
        f"storage_options: {name} is not an option for {place}: {hint}; {GUIDE}"
    )


def _similar(name: str, known: Iterable[str]) -> str | None:
    return next(iter(get_close_matches(name.lower(), known, n=1, cutoff=0.8)), None)
