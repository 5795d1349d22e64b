"""What an error of a storage client says: whether a request was refused, or may have been served.

The clients are optional packages, so their errors are known by name and by what they carry.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from pylogtable.observe import Outcome
from pylogtable.storage.base import Created, ObjectMissingError
from pylogtable.storage.wire import MissingBucketError

#: There are no credentials: of botocore, Azure, Google and ours.
_NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "ProfileNotFound",
        "SSOTokenLoadError",
        "UnauthorizedSSOTokenError",
        "CredentialUnavailableError",
        "DefaultCredentialsError",
    }
)
_NEVER_SENT = _NO_CREDENTIALS | {
    "ParamValidationError",
    "AzureSigningError",
    "CredentialsError",
    "InvalidURL",  # aiohttp
}
#: A 4xx that does not say whether the request was, or still will be, served.
_UNDECIDED_STATUS = frozenset({408, 409, 425, 429})
_UNDECIDED_CODES = frozenset({"NoSuchKey", "NoSuchUpload", "RequestTimeout"})
#: `AuthenticationFailed` is what Azure says of a signature whose time is over. Servers that speak
#: S3 do not know the key of a session any more. The answer to a HEAD has no code, only a status.
_EXPIRED_CODES = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "TokenRefreshRequired",
        "RequestExpired",
        "InvalidToken",
        "InvalidTokenId",
        "InvalidAccessKeyId",
        "XAdminUserNotFound",  # versitygw, of the same
        "AuthenticationFailed",
        "AuthorizationFailure",  # Azurite, of the same
        "400",
        "403",
    }
)
_TRANSIENT_STATUS = frozenset({408, 425, 429})
_TRANSIENT_CODES = frozenset({"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException"})
_TRANSIENT_NAMES = frozenset(
    {
        "HTTPClientError",  # botocore: a reply that was cut, a time-out
        "ConnectionError",  # Python, botocore, requests
        "ClientError",  # aiohttp
        "HttpProcessingError",  # aiohttp: the head of a reply was cut
        "IncompleteRead",
        "IncompleteReadError",
        "ResponseStreamingError",
        "ResponseParserError",
        "ServiceRequestError",  # Azure
        "ServiceResponseError",
        "IncompleteReplyError",
    }
)


#: There was no whole reply. The 400 that aiohttp puts into such an error is not the store's.
_NO_REPLY_NAMES = frozenset({"HTTPClientError", "HttpProcessingError", "ClientResponseError"})


_ANSWERS = (FileNotFoundError, FileExistsError, PermissionError, MissingBucketError)


class RefusedError(Exception):
    """The store has answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status


class IncompleteReplyError(Exception):
    """The store has taken only a part of what was sent."""


def reply_of(error: BaseException) -> tuple[str, int]:
    """The error code and the HTTP status of an error; "" and 0 if there was no reply."""
    for seen in causes(error):
        if not _NO_REPLY_NAMES.isdisjoint(kind.__name__ for kind in type(seen).__mro__):
            break
        response = getattr(seen, "response", None)
        if isinstance(response, dict):
            code = response.get("Error", {}).get("Code", "")
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return str(code), int(status)
        for name in ("status_code", "status", "code"):
            status = getattr(seen, name, None)
            if isinstance(status, int):
                code = getattr(seen, "error_code", "")
                return str(getattr(code, "value", code)), status  # Azure's codes are an Enum
    return "", 0


def outcome_of_create(error: Exception) -> Created | None:
    """The outcome of a put-if-absent that sent one request and raised; None if certainly nothing
    was put [STORE-3].

    s3fs turns a 412 into FileExistsError only if the server names the condition, which
    S3-compatible servers may not do. Any answer that is not a known refusal proves nothing.
    """
    code, status = reply_of(error)
    if isinstance(error, FileExistsError) or status == 412:
        return Created.EXISTS
    if isinstance(error, TimeoutError) or code in _UNDECIDED_CODES:
        return Created.UNKNOWN
    is_refused = (
        isinstance(error, PermissionError | FileNotFoundError | TypeError | MissingBucketError)
        or was_never_sent(error)
        or (400 <= status < 500 and status not in _UNDECIDED_STATUS)
    )
    return None if is_refused else Created.UNKNOWN


def outcome_of(error: BaseException) -> Outcome:
    """What to tell those who watch requests of one that raised this error."""
    code, status = reply_of(error)
    if isinstance(error, GeneratorExit):  # nobody wanted the rest of a listing
        return "ok"
    if isinstance(error, FileExistsError) or status == 412:
        return "exists"
    if isinstance(error, FileNotFoundError | ObjectMissingError):
        return "missing"
    is_refusal = any(
        isinstance(seen, PermissionError | MissingBucketError) for seen in causes(error)
    )
    if is_refusal or 400 <= status < 500 or status == 503 or code in _TRANSIENT_CODES:
        return "refused"
    if not status and isinstance(error, Exception) and is_transient(error):
        return "unanswered"
    return "failed"


def was_never_sent(error: Exception) -> bool:
    """True if the client gave up before it sent a request."""
    return type(error).__name__ in _NEVER_SENT or lacks_credentials(error)


def lacks_credentials(error: Exception) -> bool:
    """True if the client has found no credentials. Azure's raises an error without an answer."""
    name = type(error).__name__
    is_unasked = name == "ClientAuthenticationError" and getattr(error, "response", None) is None
    return is_unasked or name in _NO_CREDENTIALS


def is_transient(error: Exception) -> bool:
    """True if the same request may succeed a moment later: there was no whole reply, or the store
    says that it is not able to serve it now."""
    code, status = reply_of(error)
    if code in _TRANSIENT_CODES or status in _TRANSIENT_STATUS or 500 <= status != 501:
        return True
    if status or isinstance(error, _ANSWERS):
        return False
    names = {kind.__name__ for kind in type(error).__mro__}
    if is_about_tls(error) or "InvalidURL" in names:
        return False
    # Before Python 3.11 the TimeoutError of asyncio is another one of the same name.
    return "TimeoutError" in names or not _TRANSIENT_NAMES.isdisjoint(names)


def is_about_tls(error: BaseException) -> bool:
    """True if there is no TLS with the server, or a certificate that is not trusted."""
    names = (kind.__name__ for seen in causes(error) for kind in type(seen).__mro__)
    return any("SSL" in name or "Certificate" in name for name in names)


def refuses_connections(error: BaseException) -> bool:
    """True if nothing listens at the address."""
    return any(
        isinstance(seen, OSError) and seen.errno == errno.ECONNREFUSED for seen in causes(error)
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, its cause, the cause of that, and so on. Some errors are their own cause."""
    seen: BaseException | None = error
    passed: set[int] = set()
    while seen is not None and id(seen) not in passed:
        passed.add(id(seen))
        yield seen
        seen = seen.__cause__ or seen.__context__


def is_expired(error: Exception) -> bool:
    """True if the store refuses the credentials, and may take other ones. Nothing was done."""
    code, status = reply_of(error)
    return status == 401 or code in _EXPIRED_CODES


def wrong_credentials(error: Exception) -> str | None:
    """The code with which the store refuses the credentials themselves; None if it does not. A HEAD
    tells no code, and may be refused for other reasons."""
    code, status = reply_of(error)
    if type(error).__name__ == "AzureSigningError":
        return "account_key is not in base64"
    is_wrong = is_expired(error) or code == "SignatureDoesNotMatch"
    return (code or str(status)) if is_wrong and not code.isdigit() else None


def is_unknown_upload(error: BaseException) -> bool:
    """True if the store does not know an upload, or not any more."""
    cause = error.__cause__
    code, status = reply_of(error)
    return code == "NoSuchUpload" or status == 410 or isinstance(cause, FileNotFoundError)


def refuses_copy(error: Exception) -> bool:
    """True if the server does not copy by itself: it cannot, or it may not read the one place and
    write the other in one request."""
    code, status = reply_of(error)
    return (
        isinstance(error, PermissionError | NotImplementedError)
        or code == "NotImplemented"
        or status in {400, 403, 405, 501}
    )
