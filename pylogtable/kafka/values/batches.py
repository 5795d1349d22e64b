"""Decodes values in batches, and finds those that are damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from pylogtable.kafka.values.frames import Rows

#: Values that are decoded together: a few megabytes of objects, which stay in the caches.
BATCH = 8192

Convert = Callable[[pa.LargeBinaryArray], pa.Array]


class SchemaError(Exception):
    """Nothing that was written with this schema can become columns. The text says why."""


class ValueFormat(Protocol):
    """Decodes the bodies of one schema."""

    @property
    def type(self) -> pa.DataType | None:
        """The type of its values, if the schema says it. That of a record is a struct."""
        ...

    def decode(self, bodies: pa.LargeBinaryArray, header_rest: bytes | None) -> Found:
        """`header_rest` is what follows the schema in a header; None: the bodies begin with it."""
        ...


@dataclass(frozen=True)
class Part:
    """Values of one type, one for each of `rows`."""

    rows: Rows
    values: pa.Array
    is_record: bool


@dataclass(frozen=True)
class Found:
    """`failures` are rows, and why they have no value."""

    parts: list[Part]
    failures: list[tuple[int, str]]

    def at(self, rows: Rows) -> Found:
        """With other numbers for the rows."""
        parts = [Part(rows[part.rows], part.values, part.is_record) for part in self.parts]
        return Found(parts, [(int(rows[row]), reason) for row, reason in self.failures])


def decode(bodies: pa.LargeBinaryArray, convert: Convert, is_record: bool) -> Found:
    """`convert` raises if any of its values is damaged: then each half is tried."""
    return convert_all(
        len(bodies), lambda start, end: convert(bodies.slice(start, end - start)), is_record
    )


def convert_all(count: int, convert: Callable[[int, int], pa.Array], is_record: bool) -> Found:
    """The same for any values: `convert` is called with ranges of so many of them."""
    parts: list[pa.Array] = []
    rows: list[Rows] = []
    failures: list[tuple[int, str]] = []
    for start in range(0, count, BATCH):
        for part, values in _parts(start, min(start + BATCH, count), convert):
            if isinstance(values, str):
                failures.append((part[0], values))
            else:
                parts.append(values)
                rows.append(np.arange(*part))
    if not parts:
        return Found([], failures)
    return Found([Part(np.concatenate(rows), pa.concat_arrays(parts), is_record)], failures)


def together(found: list[Found]) -> Found:
    """Parts of the same type are one part, with rising rows."""
    same: dict[tuple[str, bool], list[Part]] = {}
    for part in (part for each in found for part in each.parts):
        same.setdefault((str(part.values.type), part.is_record), []).append(part)
    failures = [failure for each in found for failure in each.failures]
    return Found([_one(parts) for parts in same.values()], failures)


def _one(parts: list[Part]) -> Part:
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    values = pa.concat_arrays([part.values for part in parts]).take(pa.array(order))
    return Part(rows[order], values, parts[0].is_record)


def _parts(
    start: int, end: int, convert: Callable[[int, int], pa.Array]
) -> Iterator[tuple[tuple[int, int], pa.Array | str]]:
    """Pairs of a range and its values, or of one row and why it has none."""
    try:
        values = convert(start, end)
    except MemoryError:
        raise
    except Exception as error:  # whatever a library says of damaged bytes
        if end - start == 1:
            yield (start, end), _reason(error)
            return
        middle = (start + end) // 2
        yield from _parts(start, middle, convert)
        yield from _parts(middle, end, convert)
    else:
        yield (start, end), values


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "its bytes end too early"
    if isinstance(error, IndexError):
        return "it has the number of an enum's symbol or of a union's branch that is not there"
    return str(error) or type(error).__name__
