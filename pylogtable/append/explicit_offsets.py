"""Rows that bring their partition and their offset. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import CommitConflictError, InvalidRequestError, SchemaMismatchError
from pylogtable.format.model import MAX_OFFSET
from pylogtable.format.schema import OFFSET, PARTITION

Int64s = npt.NDArray[np.int64]


def check_place_columns(given: pa.Schema) -> None:
    """Raise if rows with these columns do not bring their partition and their offset [APPEND-5]."""
    for name in (PARTITION, OFFSET):
        if name not in given.names:
            raise SchemaMismatchError(
                f"column {name!r} is missing: with keep_offsets each row brings its partition and "
                "its offset"
            )
    if not pa.types.is_integer(given.field(OFFSET).type):
        kind = given.field(OFFSET).type
        raise SchemaMismatchError(f"column 'offset' is {kind}; it must be an integer")


def offsets_in(batch: pa.RecordBatch, first_row: int) -> Int64s:
    """The offsets of the rows. Raises if a row has no partition or no offset, or an offset that
    cannot be [APPEND-5]. `first_row` is how many rows came before this batch."""
    for name in (PARTITION, OFFSET):
        column = batch.column(name)
        if column.null_count:
            at = column.is_null().index(pa.scalar(True)).as_py()
            raise SchemaMismatchError.of_row(
                first_row + at,
                f"column {name!r} is null: with keep_offsets each row brings its partition and its "
                "offset",
            )
    # A large unsigned number becomes negative here, which is out of range as well.
    offsets: Int64s = batch.column(OFFSET).cast(pa.int64(), safe=False).to_numpy()
    wrong = (offsets < 0) | (offsets > MAX_OFFSET)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise InvalidRequestError.of_row(
            first_row + at,
            f"offset {batch.column(OFFSET)[at]} is out of range: offsets go from 0 to {MAX_OFFSET}",
        )
    return offsets


class RisingOffsets:
    """Checks that given offsets rise inside each partition, from one batch to the next. Whether
    they begin at or above its end is known when they are committed: a repeat comes first."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def check(self, partition: int, offsets: Int64s) -> None:
        """Take the offsets of the next rows of a partition; raises if they cannot follow."""
        before = self._last.get(partition, -1)
        falls = np.flatnonzero(np.diff(offsets, prepend=before) <= 0)
        if falls.size:
            at = int(falls[0])
            earlier = before if at == 0 else int(offsets[at - 1])
            raise InvalidRequestError(
                f"partition {partition}: offset {offsets[at]} comes after {earlier}. With "
                "keep_offsets the offsets of a partition must rise from row to row; sort the rows "
                "by partition and offset, and leave out rows that come twice. Nothing was appended"
            )
        self._last[partition] = int(offsets[-1])


def check_not_below_end(partition: int, first: int, end: int) -> None:
    """Raise if a record with a given offset is below the end of its partition [APPEND-5]."""
    if first < end:
        raise CommitConflictError(
            f"partition {partition}: the first row has offset {first}, and the end of the "
            f"partition is {end} already, so nothing was appended. Another writer was here, or "
            "these rows are in the log. Continue with the row at the end offset, "
            "topic.end_offsets(), and let one writer give the offsets of a topic"
        )
