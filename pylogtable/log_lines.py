"""How a record of the log is written: one line for people, or one JSON object for programs."""

from __future__ import annotations

import json
import logging
import math
import traceback
from collections.abc import Mapping, Set
from datetime import datetime, timezone
from typing import Any, Literal

_FIXED = ("time", "level", "logger", "message")
_NO_FIELDS = frozenset(
    {*vars(logging.makeLogRecord({})), *_FIXED, "asctime", "taskName", "exception"}
)


class LineFormatter(logging.Formatter):
    """Writes a record in one line: as text, whose traceback follows, or as a JSON object.

    >>> handler.setFormatter(LineFormatter("json"))
    """

    def __init__(self, form: Literal["text", "json"]) -> None:
        super().__init__()
        self._is_json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        """The record as it is written."""
        if self._is_json:
            return as_json(record)
        exception = details_of(record).get("exception")
        return f"{as_text(record)}\n{exception}" if exception else as_text(record)


def as_json(record: logging.LogRecord) -> str:
    """The record as a JSON object in one line, whatever its values are."""
    given = {
        "time": _time(record),
        "level": record.levelname,
        "logger": record.name,
        "message": _message(record),
        **details_of(record),
    }
    return json.dumps(given)


def details_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of the record, and the traceback of its exception, as JSON has them."""
    found = {name: _plain(value) for name, value in _fields(record).items()}
    exception = vars(record).get("exception")
    if record.exc_info:
        exception = "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return {**found, "exception": exception} if exception else found


def as_text(record: logging.LogRecord) -> str:
    """The record in one line. Fields that the message has are not repeated."""
    shown = [
        f"{name}={_text(value)}"
        for name, value in _fields(record).items()
        if f"%({name})" not in str(record.msg)
    ]
    message = " ".join(_message(record).split())
    return " ".join([_time(record), record.levelname, message, *shown])


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _NO_FIELDS}


def _time(record: logging.LogRecord) -> str:
    """RFC 3339."""
    when = datetime.fromtimestamp(record.created, timezone.utc)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # values that do not fit the message
        return f"{record.msg} {record.args}"


def _plain(value: object) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | Set):
        return [_plain(each) for each in value]
    return str(value)


def _text(value: object) -> str:
    plain = _plain(value)
    text = plain if isinstance(plain, str) else json.dumps(plain)
    is_one_word = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if is_one_word or not isinstance(plain, str) else json.dumps(text)
