"""Reading a row group in batches of bounded bytes [SEG-12].

A file may unfold to far more than its size. A footer tells how large pages are once they are
decompressed, but a dictionary hides how large the values are: a file of 34 KB can hold 1 GiB. So
columns that lie in a dictionary are read as a dictionary and its indices, and unfolded bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import CorruptTopicError
from pylogtable.lazy_arrow import pc
from pylogtable.limits import Limits
from pylogtable.segments.footer import PATH_KEY

#: Rows at a time where a footer cannot tell how large values are.
CAUTIOUS_ROWS = 8192
#: A dictionary of about this size may have been given up: the rest of its column is plain, and very
#: slow to read as a dictionary.
FULL_DICTIONARY_BYTES = 1 << 20

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


class GroupPlan:
    """How to read these columns of a row group: which as `dictionaries`, and how many `rows` at a
    time. Raises if the row group is larger than the format allows."""

    def __init__(
        self, path: str, metadata: Any, group: int, columns: Sequence[str], limits: Limits
    ) -> None:
        self.dictionaries: list[str] = []
        self.rows = limits.batch_rows
        facts = metadata.row_group(group)
        values, size = facts.num_rows, 0
        for index in range(metadata.num_columns):
            chunk = facts.column(index)
            values += chunk.num_values
            size += chunk.total_uncompressed_size
        if values * size <= min(limits.batch_bytes, limits.max_group_bytes):
            return  # even if every value were as large as the row group
        # Our writer makes row groups of 16 MiB, measured before they are encoded.
        is_ours = PATH_KEY.encode() in (metadata.metadata or {})
        total, plain = 0, 0
        wanted = set(columns)
        for index in range(metadata.num_columns):
            described = metadata.schema.column(index)
            if described.path.partition(".")[0] not in wanted and described.path not in wanted:
                continue
            chunk = facts.column(index)
            size = max(
                chunk.total_uncompressed_size,
                chunk.num_values * _WIDTHS.get(chunk.physical_type, 4),
            )
            total += size
            encodings = set(chunk.encodings)
            is_coded = bool(encodings & {"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
            if chunk.physical_type != "BYTE_ARRAY" or not (
                is_coded or "DELTA_BYTE_ARRAY" in encodings
            ):
                plain += size
            elif (
                is_coded
                and described.max_repetition_level == 0
                and described.path in wanted
                and chunk.total_uncompressed_size < FULL_DICTIONARY_BYTES
            ):
                self.dictionaries.append(described.path)
            else:
                plain += size
                if not is_ours:
                    self.rows = min(limits.batch_rows, CAUTIOUS_ROWS)
        if total > limits.max_group_bytes:
            raise CorruptTopicError(
                path,
                "SEG-12",
                f"row group {group} has {total} bytes in the columns that are read; the limit is "
                f"{limits.max_group_bytes}",
            )
        fitting = facts.num_rows * limits.batch_bytes // max(1, plain)
        self.rows = max(1, min(self.rows, fitting))


def unfold(path: str, batch: pa.RecordBatch, limits: Limits) -> Iterator[pa.RecordBatch]:
    """The batch with plain columns in the place of dictionaries, cut so that each part has about
    `batch_bytes`."""
    folded = [i for i, field in enumerate(batch.schema) if pa.types.is_dictionary(field.type)]
    if not folded:
        if batch.num_rows == 1:
            _check_record(path, batch.nbytes, limits)
        yield batch
        return
    most = sum(_longest(batch.column(index)) for index in folded)
    if most * batch.num_rows <= limits.batch_bytes:
        yield _plain(batch, folded)
        return
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for index in folded:
        sizes += _value_bytes(batch.column(index))
    _check_record(path, int(sizes.max()), limits)
    ends = np.cumsum(sizes)
    start = 0
    while start < batch.num_rows:
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + limits.batch_bytes, side="right")))
        yield _plain(batch.slice(start, stop - start), folded)
        start = stop


def _check_record(path: str, size: int, limits: Limits) -> None:
    if size > limits.max_record_bytes:
        detail = f"it has a record of {size} bytes; the limit is {limits.max_record_bytes}"
        raise CorruptTopicError(path, "SEG-12", detail)


def _longest(column: pa.DictionaryArray) -> int:
    return pc.max(pc.binary_length(column.dictionary)).as_py() or 0


def _value_bytes(column: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    """The bytes of each value of a column; 0 for a null."""
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    taken: npt.NDArray[np.int64] = lengths.fill_null(0).to_numpy().astype(np.int64)
    return taken


def _plain(batch: pa.RecordBatch, folded: Sequence[int]) -> pa.RecordBatch:
    columns, fields = list(batch.columns), list(batch.schema)
    for index in folded:
        columns[index] = columns[index].dictionary_decode()
        fields[index] = fields[index].with_type(columns[index].type)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
