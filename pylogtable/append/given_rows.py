"""The rows that callers give to an append, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from pylogtable.errors import SchemaMismatchError


def can_be_read_twice(data: Any) -> bool:
    """True if the rows can be read twice."""
    return isinstance(data, pa.Table | pa.RecordBatch | list | tuple)


def batches_of(data: Any) -> Iterable[pa.RecordBatch]:
    """The rows of anything that `Topic.append` takes, as Arrow batches."""
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.Table):
        # A table without rows has no batches, but its columns must be checked too.
        return data.to_batches() or [pa.RecordBatch.from_pylist([], data.schema)]
    if isinstance(data, pa.RecordBatchReader):
        same: Iterable[pa.RecordBatch] = data
        return same
    if hasattr(data, "__arrow_c_stream__"):
        reader: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(data)
        return reader
    if isinstance(data, Iterable) and not isinstance(data, Mapping | str | bytes):
        return _checked(data)
    raise SchemaMismatchError(
        f"cannot append {type(data).__name__}: give an Arrow table, batch, reader or an iterable "
        "of batches"
    )


def _checked(batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if isinstance(batch, pa.Table):
            yield from batch.to_batches()
        elif isinstance(batch, pa.RecordBatch):
            yield batch
        else:
            raise SchemaMismatchError(
                f"cannot append {type(batch).__name__} among batches: give Arrow record batches"
            )
