"""Values as they are typed: settings, columns, partitions, times, durations, offsets."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import click

import pylogtable

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ESCAPES = {r"\n": b"\n", r"\t": b"\t", r"\r": b"\r", r"\0": b"\0", "\\\\": b"\\"}
# The words of SQL for types that have another name in the format.
_TYPE_WORDS = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte"}


def parse_config(pairs: Sequence[str]) -> dict[str, str]:
    """`retention.ms=-1`, several times."""
    config: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not name=value", param_hint="--config")
        config[name.strip()] = value.strip()
    return config


def parse_columns(columns: Sequence[str], option: str) -> pa.Schema | None:
    """`amount:double`, `id:long not null`, several times; None if there are none."""
    if not columns:
        return None
    import pyarrow as pa

    fields = []
    for column in columns:
        name, colon, text = column.partition(":")
        if not colon or not name:
            raise click.BadParameter(
                f"{column!r} is not name:type, such as amount:double", param_hint=option
            )
        words, is_required = re.subn(r"\s+not\s+null\s*$", "", text.strip(), flags=re.IGNORECASE)
        fields.append(pa.field(name.strip(), _column_type(words), nullable=not is_required))
    return pa.schema(fields)


def _column_type(text: str) -> pa.DataType:
    """A type of the format by its name, or, where it is nested, as JSON."""
    wire: Any = _TYPE_WORDS.get(text.lower(), text)
    if text.startswith("{"):
        try:
            wire = json.loads(text)
        except ValueError as error:
            raise click.BadParameter(f"column type {text!r} is not JSON: {error}") from None
    return pylogtable.column_type(wire)


def parse_partitions(text: str | None) -> list[int] | None:
    """`0,2-4`; None for all."""
    if text is None:
        return None
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise click.BadParameter(
                f"{text!r} does not name partitions: write 0, 0,2 or 0-3", param_hint="--partition"
            )
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return list(dict.fromkeys(numbers))


def to_time(text: str) -> datetime:
    """Milliseconds since the epoch (`@` before them is passed over), or ISO-8601, which is UTC if
    it names no zone; ValueError for anything else."""
    stripped = text.strip().removeprefix("@")
    if re.fullmatch(r"\d+", stripped):
        try:
            return _EPOCH + timedelta(milliseconds=int(stripped))
        except OverflowError:
            raise ValueError(f"{text!r} lies too far in the future") from None
    # Python before 3.11 knows neither Z nor any number of digits of a second's fraction.
    iso = re.sub(r"[zZ]$", "+00:00", stripped)
    iso = re.sub(r"\.(\d{1,6})\d*", lambda m: "." + m[1].ljust(6, "0"), iso)
    try:
        when = datetime.fromisoformat(iso)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time: write 2024-05-01T12:00:00Z, or milliseconds since the epoch"
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=timezone.utc)


def parse_time(text: str, option: str) -> datetime:
    """The same for what was given to an option."""
    try:
        return to_time(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def parse_duration(text: str, option: str) -> timedelta:
    """`90s`, `15m`, `12h`, `7d`, or ISO 8601 without years and months (`P1DT2H`)."""
    try:
        return pylogtable.parse_duration(text)
    except pylogtable.InvalidRequestError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def unescape(text: str) -> bytes:
    r"""Text with \n, \t, \r, \0, \\ and \xHH in it, as bytes."""
    return b"".join(
        _ESCAPES.get(piece) or (bytes.fromhex(piece[2:]) if _is_hex(piece) else os.fsencode(piece))
        for piece in re.findall(r"\\x[0-9A-Fa-f]{2}|\\.|[^\\]+|\\", text, re.DOTALL)
    )


def _is_hex(piece: str) -> bool:
    return len(piece) == 4 and piece.startswith("\\x")


def milliseconds(when: datetime) -> int:
    return (when - _EPOCH) // timedelta(milliseconds=1)


def from_microseconds(us: int | None) -> datetime | None:
    return None if us is None else _EPOCH + timedelta(microseconds=us)
