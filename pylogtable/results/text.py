"""Tables, numbers and times as HTML and as people say them. Pure; every value is escaped, since
names come from outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from html import escape
from itertools import pairwise

_EPOCH = datetime(1970, 1, 1)
_COUNT_UNITS = ("", "k", "M", "G", "T", "P", "E")
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_TIME_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def table_html(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    top = f"<tr>{_cells('th', head)}</tr>" if head else ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table>{top}{body}</table>"


def titled_html(title: str, *parts: str) -> str:
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def bytes_text(size: int) -> str:
    """A size as people say it."""
    amount = float(size)
    for unit in _SIZE_UNITS[:-1]:
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_SIZE_UNITS[-1]}"


def short_count(count: float) -> str:
    """A number of a few characters: 950, 1.2k, 35M."""
    amount, thousands = float(count), 0
    while amount >= 999.5 and thousands < len(_COUNT_UNITS) - 1:
        amount /= 1000
        thousands += 1
    digits = 1 if amount < 9.95 else 0
    return f"{amount:.{digits}f}".removesuffix(".0") + _COUNT_UNITS[thousands]


def percent_text(share: float) -> str:
    """A share of all, without a nothing or an all that is none."""
    if 0 < share < 0.01:
        return "<1%"
    return ">99%" if 0.99 < share < 1 else f"{share:.0%}"


def duration_text(ms: float) -> str:
    """A length of time in its greatest unit, and in the next if that says more: 3 d 4 h."""
    left = int(abs(ms))
    if 0 < left < 1000:
        return f"{left} ms"
    for (size, unit), (next_size, next_unit) in pairwise(_TIME_UNITS):
        if left >= size:
            more = left % size // next_size
            first = f"{left // size:,} {unit}"
            wants_more = more and unit != "s" and left // size < 10
            return f"{first} {more} {next_unit}" if wants_more else first
    return "0 s"


def time_text(ms: float, unit: str = "seconds") -> str:
    """A moment in UTC, to the `day` or as `datetime.isoformat` has it; one that no calendar of
    Python's reaches as a number."""
    try:
        moment = _EPOCH + timedelta(milliseconds=int(ms))
    except OverflowError:
        return f"{int(ms):,} ms"
    return str(moment.date()) if unit == "day" else moment.isoformat(" ", unit)


def _cells(tag: str, row: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
