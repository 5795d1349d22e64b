"""Decodes values in batches, and finds those that are damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pylogtable.kafka.values.frames import Rows

#: Values that are decoded together: a few megabytes of objects, which stay in the caches.
_BATCH = 8192

Convert = Callable[[pa.LargeBinaryArray], pa.Array]


class SchemaError(Exception):
    """Nothing that was written with this schema can become columns. The text says why."""


@dataclass(frozen=True)
class Values:
    """`array` has one value for each of `rows`; None if there is no such row."""

    rows: Rows
    array: pa.Array | None
    failures: list[tuple[int, str]]


def decode(bodies: pa.LargeBinaryArray, convert: Convert) -> Values:
    """`convert` raises if any of its values is damaged: then each half is tried."""
    parts: list[pa.Array] = []
    rows: list[Rows] = []
    failures: list[tuple[int, str]] = []
    for start in range(0, len(bodies), _BATCH):
        for part, values in _parts(bodies, start, min(start + _BATCH, len(bodies)), convert):
            if isinstance(values, str):
                failures.append((part[0], values))
            else:
                parts.append(values)
                rows.append(np.arange(*part))
    if not parts:
        return Values(np.zeros(0, np.int64), None, failures)
    return Values(np.concatenate(rows), pa.concat_arrays(parts), failures)


def _parts(
    bodies: pa.LargeBinaryArray, start: int, end: int, convert: Convert
) -> Iterator[tuple[tuple[int, int], pa.Array | str]]:
    """Pairs of a range and its values, or of one row and why it has none."""
    try:
        values = convert(bodies.slice(start, end - start))
    except MemoryError:
        raise
    except Exception as error:  # whatever a library says of damaged bytes
        if end - start == 1:
            yield (start, end), _reason(error)
            return
        middle = (start + end) // 2
        yield from _parts(bodies, start, middle, convert)
        yield from _parts(bodies, middle, end, convert)
    else:
        yield (start, end), values


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "its bytes end too early"
    if isinstance(error, IndexError):
        return "it has the number of an enum's symbol or of a union's branch that is not there"
    return str(error) or type(error).__name__
