"""Turns rows from users into rows of segment files. Pure.

Rows are cast to the topic's schema, get a timestamp and a partition, and are grouped by partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.append.explicit_offsets import check_place_columns, offsets_in
from pylogtable.errors import InvalidRequestError, SchemaMismatchError
from pylogtable.format.config import TopicConfig, stored_config
from pylogtable.format.model import TopicInfo
from pylogtable.format.null_structs import cast_without_hidden_nulls
from pylogtable.format.partitioner import NO_PARTITION, key_bytes, partition_for
from pylogtable.format.schema import (
    OFFSET,
    ON_REQUEST,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    WireType,
    column_hint,
    file_schema,
    fits,
    from_arrow,
    nulls,
    renamed_to,
    type_text,
    widens,
)
from pylogtable.lazy_arrow import pc

# Rows without a key go to one partition for at least this many rows, so that small appends make
# few files.
STICKY_ROWS = 1024
SMALL_SHARE_ROWS = 64

Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of a batch that go to one partition: `timestamp` and the topic's columns, and
    `offset` if the rows brought it. `hashed` is true if every row with a key is where its key
    places it [SEG-7]."""

    partition: int
    rows: pa.RecordBatch
    hashed: bool


class RowShaper:
    """Shapes the batches of one append. Uses the topic as it was when the append began."""

    def __init__(
        self, topic: TopicInfo, now_us: int, first_sticky: int, *, keep_offsets: bool = False
    ) -> None:
        """With `keep_offsets`, rows bring their partition and their offset, and their timestamp is
        kept whatever the settings say [APPEND-5]."""
        self.topic = topic
        self._keeps_offsets = keep_offsets
        self.config: TopicConfig = stored_config(topic.config)
        self.schema = pa.schema(list(file_schema(topic.fields))[1:])
        self._now = pa.scalar(now_us, TIMESTAMP_TYPE)
        self._sticky = first_sticky
        self._rows_seen = 0
        #: If this is a list, each batch adds an array to it: the partitions of its rows.
        self.placed: list[Int32s] | None = None

    def check_columns(self, given: pa.Schema) -> None:
        """Raise if data with these columns cannot be appended to the topic [APPEND-1]."""
        names = given.names
        wanted = {field.name: field for field in self.topic.fields}
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise SchemaMismatchError(f"columns occur twice: {', '.join(doubled)}")
        check_log_columns(given, keep_offsets=self._keeps_offsets)
        for column in given:
            name = column.name
            if name in (TIMESTAMP, PARTITION, OFFSET):
                continue
            if name not in wanted:
                raise SchemaMismatchError(f"the topic has no column {name!r}; {self._hint(name)}")
            self._check_type(name, column.type, wanted[name].type)
        missing = [f.name for f in self.topic.fields if not f.nullable and f.name not in names]
        if missing:
            raise SchemaMismatchError(f"column(s) {', '.join(missing)} must not be missing or null")

    def shares(self, batch: pa.RecordBatch) -> Iterator[Share]:
        """The rows of the batch by partition. Rows keep their order inside a partition
        [APPEND-4]."""
        rows = self._fit(batch)
        partitions, hashed = self._partitions(batch, rows)
        if self._keeps_offsets:
            given = pa.array(offsets_in(batch, self._rows_seen))
            schema = self.schema.append(pa.field(OFFSET, pa.int64(), nullable=False))
            rows = pa.RecordBatch.from_arrays([*rows.columns, given], schema=schema)
        self._rows_seen += batch.num_rows
        if self.placed is not None:
            self.placed.append(partitions)
        counts = np.bincount(partitions, minlength=self.topic.partitions)
        if counts.max() == batch.num_rows:
            only = int(counts.argmax())
            yield Share(only, rows, only in hashed)
            return
        # On one or two bytes numpy's stable sort is a radix sort.
        order = np.argsort(partitions.astype(np.uint16), kind="stable")
        ends = np.cumsum(counts)
        # Small shares are taken together and sliced, since each call costs as much as many rows.
        # Large shares are taken one by one, so that none of them keeps the others in memory.
        is_small = (counts > 0) & (counts < SMALL_SHARE_ROWS)
        small = rows.take(pa.array(order[np.repeat(is_small, counts)]))
        at = 0
        for number in np.flatnonzero(counts):
            count, end = int(counts[number]), int(ends[number])
            if is_small[number]:
                mine, at = small.slice(at, count), at + count
            else:
                mine = rows.take(pa.array(order[end - count : end]))
            yield Share(int(number), mine, int(number) in hashed)

    def _hint(self, unknown: str) -> str:
        """What a caller can do about a column that the topic does not have."""
        fields = self.topic.fields
        hint = column_hint(fields, unknown, [field.name for field in fields])
        if renamed_to(fields, unknown) is not None:
            return hint
        hint = hint if hint.endswith("?") else f"{hint}."
        if unknown in self.topic.retired:
            hint = f"it was dropped. {hint.capitalize()}"
        return f"{hint} To add a nullable column, use topic.alter(add_columns=...)"

    def _check_type(self, name: str, given: pa.DataType, wanted: WireType) -> None:
        if pa.types.is_null(given):
            return
        try:
            wire = _signed(given) or from_arrow(given)
        except SchemaMismatchError as error:
            raise SchemaMismatchError(f"column {name!r}: {error}") from None
        if not fits(wire, wanted):
            widen = ", or widen the topic's column with topic.alter(widen_columns=...)"
            raise SchemaMismatchError(
                f"column {name!r} is {type_text(wire)} (Arrow {given}), the topic has "
                f"{type_text(wanted)}; cast it{widen if widens(wanted, wire) else ''}"
            )

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the columns, types and order of a segment file, except `offset`."""
        columns = []
        for field in self.schema:
            index = batch.schema.get_field_index(field.name)
            given = batch.column(index) if index >= 0 else None
            if field.name == TIMESTAMP:
                column = self._timestamps(given, batch.num_rows)
            elif given is None:
                column = nulls(batch.num_rows, field.type)
            else:
                column = _cast(field.name, given, field.type)
            if not field.nullable and column.null_count:  # [APPEND-2]
                row = self._rows_seen + _first(pc.is_null(column))
                raise SchemaMismatchError.of_row(row, f"column {field.name!r} must not be null")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _timestamps(self, given: pa.Array | None, rows: int) -> pa.Array:
        sets_times = self.config.uses_append_time and not self._keeps_offsets
        if given is None or sets_times:  # [REC-1]
            return pa.repeat(self._now, rows)
        times = _microseconds(given)
        return pc.fill_null(times, self._now) if times.null_count else times

    def _partitions(self, batch: pa.RecordBatch, rows: pa.RecordBatch) -> tuple[Int32s, set[int]]:
        """The partition of each row, and the partitions in which every row with a key is where its
        key places it [SEG-7]."""
        chosen = np.full(batch.num_rows, NO_PARTITION, dtype=np.int32)
        if self.topic.key:
            keys = key_bytes([rows.column(name) for name in self.topic.key])
            self._check_keys(keys)
            chosen = partition_for(keys, self.topic.partitions)
        hashed = set(range(self.topic.partitions) if self.topic.key else ())
        index = batch.schema.get_field_index(PARTITION)
        if index >= 0 and batch.column(index).null_count < batch.num_rows:
            explicit = self._explicit(batch.column(index))
            given = explicit != NO_PARTITION
            by_hand = given & (chosen != NO_PARTITION)
            if self._keeps_offsets:  # a copy brings all partitions, and most are those of the keys
                by_hand &= chosen != explicit
            hashed.difference_update(np.unique(explicit[by_hand]).tolist())
            chosen = np.where(given, explicit, chosen)
        unplaced = np.flatnonzero(chosen == NO_PARTITION)
        if unplaced.size:
            chosen[unplaced] = self._sticky_partitions(unplaced.size)
        return chosen, hashed

    def _explicit(self, column: pa.Array) -> Int32s:
        """The partitions in a `partition` column, `NO_PARTITION` where it is null. Raises if one
        does not exist."""
        # A large unsigned number becomes negative here, which is out of range as well.
        signed = column.cast(pa.int64(), safe=False)
        values = pc.fill_null(signed, NO_PARTITION).to_numpy(zero_copy_only=False)
        given = _mask(pc.is_valid(column))
        wrong = given & ((values < 0) | (values >= self.topic.partitions))
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise InvalidRequestError.of_row(
                self._rows_seen + at,
                f"partition {column[at]} is out of range: the topic has {self.topic.partitions} "
                f"partition(s), 0 to {self.topic.partitions - 1}",
            )
        explicit: Int32s = values.astype(np.int32)
        return explicit

    def _check_keys(self, keys: pa.BinaryArray) -> None:
        if self.config.is_compacted and keys.null_count:  # [REC-4]
            raise InvalidRequestError.of_row(
                self._rows_seen + _first(pc.is_null(keys)),
                "a compacted topic cannot accept a record without a key: "
                f"{keys.null_count} row(s) have none",
            )

    def _sticky_partitions(self, rows: int) -> Int32s:
        """Partitions for rows without a key: many rows in turn for each partition [PART-5]."""
        count = self.topic.partitions
        rows_per_turn = max(STICKY_ROWS, -(-rows // count))
        turns = np.arange(rows, dtype=np.int64) // rows_per_turn
        partitions: Int32s = ((self._sticky + turns) % count).astype(np.int32)
        self._sticky = int(partitions[-1] + 1) % count
        return partitions


def check_log_columns(given: pa.Schema, *, keep_offsets: bool = False) -> None:
    """Raise if the data has one of the log's own columns other than `partition` and `timestamp`, or
    has these two with a wrong type [APPEND-1]. With `keep_offsets` it must have `partition` and
    `offset` [APPEND-5]."""
    if keep_offsets:
        check_place_columns(given)
    for column in given:
        name = column.name
        if name in ON_REQUEST or (name == OFFSET and not keep_offsets):
            keep = ", or keep the offsets with keep_offsets=True" if name == OFFSET else ""
            raise SchemaMismatchError(
                f"column {name!r} is given by the log and cannot be written; drop it{keep}"
            )
        if name == TIMESTAMP and (not pa.types.is_timestamp(column.type) or column.type.tz is None):
            raise SchemaMismatchError(
                f"column 'timestamp' is {column.type}; it must be a timestamp with a "
                "time zone, such as timestamp[us, tz=UTC]"
            )
        if name == PARTITION and not pa.types.is_integer(column.type):
            raise SchemaMismatchError(f"column 'partition' is {column.type}; it must be an integer")


def check_values(given: pa.RecordBatch) -> None:
    """Raise if a column has text that is not UTF-8, or an index into a dictionary that has no such
    value [APPEND-1]. Arrow does not check either when an array is made."""
    for field, column in zip(given.schema, given.columns, strict=True):
        if not _may_be_invalid(field.type):
            continue
        try:
            column.validate(full=True)
        except (pa.ArrowException, ValueError) as error:
            raise SchemaMismatchError(
                f"column {field.name!r} is not valid: {error}. Nothing was appended. Bytes that "
                "are not UTF-8 belong into a binary column"
            ) from None


def _may_be_invalid(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_may_be_invalid(kind.field(at).type) for at in range(kind.num_fields))
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_text or pa.types.is_string_view(kind) or pa.types.is_dictionary(kind))


def _microseconds(given: pa.Array) -> pa.Array:
    """Timestamps of any unit in microseconds, rounded down."""
    if given.type.unit == "ns":
        whole = np.floor_divide(given.cast(pa.int64()).fill_null(0).to_numpy(), 1000)
        return pa.array(whole, mask=_mask(pc.is_null(given))).cast(TIMESTAMP_TYPE)
    return _cast(TIMESTAMP, given, TIMESTAMP_TYPE)


def _cast(name: str, column: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return cast_without_hidden_nulls(column, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(
            f"column {name!r}: a value of {column.type} does not fit into {wanted}: {error}"
        ) from None


def _signed(given: pa.DataType) -> str | None:
    """The stored type that holds every value of an unsigned integer type."""
    return {pa.uint8(): "short", pa.uint16(): "integer", pa.uint32(): "long"}.get(given)


def _mask(booleans: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = booleans.to_numpy(zero_copy_only=False)
    return mask


def _first(booleans: pa.Array) -> int:
    return int(np.flatnonzero(_mask(booleans))[0])
