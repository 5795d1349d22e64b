"""Parses what users type: settings, columns, partitions, times and durations."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import click

import pylogtable
import pylogtable.times

if TYPE_CHECKING:
    import pyarrow as pa

    from pylogtable.engine import Position

_MOST_PARTITIONS = 10_000
#: What kcat calls a position.
_OTHER_WORDS = {"beginning": "earliest", "end": "latest"}
_ESCAPES = {r"\n": b"\n", r"\t": b"\t", r"\r": b"\r", r"\0": b"\0", "\\\\": b"\\"}


def parse_pair(pair: str, option: str, form: str = "name=value") -> tuple[str, str]:
    """`name=value`, as `--config` and `--header` take it."""
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{pair!r} is not {form}", param_hint=option)
    return name, value


def parse_settings(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Values by name, from `name=value`. Raises if a name has two values: one of them would be
    ignored. Values may be secrets, so they are not shown."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, value = parse_pair(pair, option)
        if settings.setdefault(name, value) != value:
            raise click.BadParameter(f"{name!r} is given twice: give it once", param_hint=option)
    return settings


def parse_config(pairs: Sequence[str]) -> dict[str, str]:
    """Settings such as `retention.ms=-1`."""
    given = (parse_pair(pair, "--config") for pair in pairs)
    stripped = [f"{name.strip()}={value.strip()}" for name, value in given]
    return parse_settings(stripped, "--config")


def parse_renames(pairs: Sequence[str]) -> dict[str, str]:
    """New names by old names, such as `note=remark`."""
    given = [parse_pair(pair, "--rename-column", "old=new, such as note=remark") for pair in pairs]
    renames = {old.strip(): new.strip() for old, new in given}
    if len(renames) != len(given):
        raise click.BadParameter("a column is renamed twice", param_hint="--rename-column")
    return renames


def parse_columns(columns: Sequence[str], option: str) -> pa.Schema | None:
    """Columns such as `amount:double` or `id:long not null`; None if there are none."""
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
        fields.append(
            pa.field(name.strip(), pylogtable.column_type(words), nullable=not is_required)
        )
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"column {name!r} is given twice", param_hint=option)
    return pa.schema(fields)


def parse_partitions(text: str | None) -> list[int] | None:
    """Partition numbers such as `0,2-4`; None means all."""
    if text is None:
        return None
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise click.BadParameter(
                f"{text!r} is not a list of partitions, such as 0 or 0,2 or 0-3",
                param_hint="--partition",
            )
        if last - first >= _MOST_PARTITIONS:
            raise click.BadParameter(
                f"{part!r} is too long: a topic has at most {_MOST_PARTITIONS} partitions",
                param_hint="--partition",
            )
        numbers += range(first, last + 1)
    return list(dict.fromkeys(numbers))


@contextmanager
def _usage_errors(option: str) -> Iterator[None]:
    """What the library refuses was wrong in an option."""
    try:
        yield
    except pylogtable.InvalidRequestError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def parse_time(text: str, option: str) -> datetime:
    """A time given to an option; UTC if it has no zone, as in Kafka's tools."""
    with _usage_errors(option):
        return pylogtable.times.as_datetime(pylogtable.times.parse_time(text, timezone.utc))


def parse_duration(text: str, option: str) -> timedelta:
    """A duration given to an option, such as `90s`, `15m`, `12h`, `7d` or `P1DT2H`."""
    with _usage_errors(option):
        return pylogtable.times.parse_duration(text)


def parse_position(given: str | int | datetime, option: str) -> Position:
    """A position given to an option. A time without a zone is in UTC."""
    from pylogtable import engine

    if isinstance(given, str):
        given = _OTHER_WORDS.get(given.strip().lower(), given)
    with _usage_errors(option):
        return engine.parse_position(given, timezone.utc)


def unescape(text: str) -> bytes:
    r"""Replace \n, \t, \r, \0, \\ and \xHH, and encode the rest."""
    pieces = re.findall(r"\\x[0-9A-Fa-f]{2}|\\.|[^\\]+|\\", text, re.DOTALL)
    return b"".join(map(_unescape_piece, pieces))


def _unescape_piece(piece: str) -> bytes:
    if piece in _ESCAPES:
        return _ESCAPES[piece]
    is_hex = len(piece) == 4 and piece.startswith("\\x")
    return bytes.fromhex(piece[2:]) if is_hex else os.fsencode(piece)


def time_from_microseconds(us: int | None) -> datetime | str | None:
    """A time since the epoch; as `@` and milliseconds if it is outside of the years 1 to 9999."""
    if us is None:
        return None
    try:
        return pylogtable.times.from_us(us)
    except OverflowError:
        return f"@{us // 1000}"
