"""Credentials that Unity Catalog gives for a path, for about an hour.

The request is `POST /api/2.1/unity-catalog/temporary-path-credentials`, of Databricks and of Unity
Catalog OSS. On Databricks the metastore must allow external access, and the caller needs EXTERNAL
USE LOCATION on the external location of the path.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pylogtable.runtime import Runtime
from pylogtable.storage.credentials import CredentialsError

_PATH = "/api/2.1/unity-catalog/temporary-path-credentials"
_OPERATIONS = ("PATH_READ_WRITE", "PATH_READ")
_REPLY_SECONDS = 15.0
_MOST_BYTES = 2**20
_PAUSE_SECONDS = 1.0
_TRIES = 3
#: The names in a reply, and in the options of the clients.
_KINDS: Mapping[str, Mapping[str, str]] = {
    "aws_temp_credentials": {
        "access_key_id": "key",
        "secret_access_key": "secret",
        "session_token": "token",
    },
    "r2_temp_credentials": {
        "access_key_id": "key",
        "secret_access_key": "secret",
        "session_token": "token",
    },
    "azure_user_delegation_sas": {"sas_token": "sas_token"},
    "azure_aad": {"aad_token": "token"},
    "gcp_oauth_token": {"oauth_token": "token"},
}


def temporary_credentials(url: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Credentials for everything below an address."""
    host = options.get("unity_catalog_url") or os.environ.get("DATABRICKS_HOST")
    token = options.get("unity_catalog_token") or os.environ.get("DATABRICKS_TOKEN")
    operation = options.get("unity_catalog_operation") or _OPERATIONS[0]
    if not host:
        raise CredentialsError(
            f"Unity Catalog is not known, so there are no credentials for {url}: give "
            "unity_catalog_url and unity_catalog_token, or set DATABRICKS_HOST and DATABRICKS_TOKEN"
        )
    if operation not in _OPERATIONS:
        raise CredentialsError(
            f"unity_catalog_operation must be {' or '.join(_OPERATIONS)}, not {operation!r}"
        )
    place = _address(str(host))
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    asked = json.dumps({"url": url, "operation": operation}).encode()
    try:
        status, body = _answer(urllib.request.Request(place + _PATH, asked, headers, method="POST"))
    except _Unanswered as error:
        raise CredentialsError(
            f"Unity Catalog at {place} gives no credentials for {url}: {error}"
        ) from error
    text = body.decode(errors="replace")
    if token:
        text = text.replace(str(token), "***")
    if status != 200:
        raise CredentialsError(
            f"Unity Catalog at {place} refuses {operation} credentials for {url}: "
            f"{status} {_reason(text)}"
        )
    return _credentials(place, text)


class _Unanswered(Exception):
    """There was no answer. The text says why."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token is for the catalog, and for nobody that it names."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _answer(request: urllib.request.Request) -> tuple[int, bytes]:
    opener = urllib.request.build_opener(_NoRedirect)
    runtime = Runtime()
    for tried in range(1, _TRIES + 1):
        try:
            began = runtime.monotonic()
            try:
                reply = opener.open(request, timeout=_REPLY_SECONDS)
            except urllib.error.HTTPError as error:
                reply = error
            with reply:
                body = _body(reply, runtime, began + _REPLY_SECONDS)
            if reply.status not in {429, 500, 502, 503, 504} or tried == _TRIES:
                return reply.status, body
        except (OSError, http.client.HTTPException) as error:
            if tried == _TRIES:
                reason = getattr(error, "reason", error)
                raise _Unanswered(f"{type(error).__name__}: {reason}") from error
        runtime.pause(_PAUSE_SECONDS * tried)
    raise AssertionError("the last try returns or raises")


def _body(reply: Any, runtime: Runtime, until: float) -> bytes:
    """The body of a reply. A server that sends it byte by byte has no longer than others."""
    parts = []
    while part := reply.read1(_MOST_BYTES):
        parts.append(part)
        if runtime.monotonic() > until or sum(map(len, parts)) > _MOST_BYTES:
            raise TimeoutError(f"no whole answer in {_REPLY_SECONDS:.0f} s and 1 MiB")
    return b"".join(parts)


def _address(host: str) -> str:
    with_scheme = host if "://" in host else f"https://{host}"
    parts = urlsplit(with_scheme)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise CredentialsError(
            "unity_catalog_url must be the address of a workspace or a catalog, such as "
            "https://host, without credentials"
        )
    return with_scheme.rstrip("/")


def _reason(text: str) -> str:
    try:
        said = json.loads(text)
        reason = f"{said.get('error_code', '')} {said.get('message', '')}"
    except (ValueError, AttributeError):
        reason = text
    return " ".join(reason.split())[:300]


def _credentials(place: str, text: str) -> Mapping[str, Any]:
    try:
        reply = json.loads(text)
        for kind, names in _KINDS.items():
            if reply.get(kind):
                known = {name: reply[kind].get(given) for given, name in names.items()}
                return {**known, "expires_at": reply.get("expiration_time")}
        found = sorted(reply)
    except (ValueError, AttributeError) as error:
        raise CredentialsError(
            f"the answer of Unity Catalog at {place} is not the documented one"
        ) from error
    raise CredentialsError(
        f"Unity Catalog at {place} gave none of {', '.join(_KINDS)}: its answer has {found}"
    )
