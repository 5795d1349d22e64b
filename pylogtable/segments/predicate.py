"""A condition on the columns of a topic: which segments and row groups may have records that it
selects, and which records it selects.

It is a pyarrow expression. Arrow itself decides what can be skipped: it is told what is known of
the records of a segment or row group, and says whether the expression can then still be true.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.format.field_ids import column_ids
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.schema import OFFSET, PARTITION, TIMESTAMP, column_schema, table_schema
from pylogtable.lazy_arrow import ds, fs, pc
from pylogtable.segments.projection import Projection
from pylogtable.segments.segment_reader import Records, open_segment
from pylogtable.storage.base import ObjectStore

Mask = npt.NDArray[np.bool_]

EXAMPLE = 'pyarrow.compute.field("customer") == 7'


class Condition:
    """Selects the records for which `where` is true; null does not count as true. `columns` are the
    topic's columns that it uses. Raises if `where` is no condition on these. It can be pickled."""

    def __init__(self, topic: TopicInfo, where: Any) -> None:
        if not isinstance(where, pc.Expression):
            raise InvalidRequestError(
                f"`where` must be a pyarrow expression such as {EXAMPLE}, not {where!r:.80}"
            )
        self.where = where
        self._schema = table_schema(topic.fields)
        self._check()
        self.columns = self._used_columns()
        self._check_decimals()
        self._ids = _ids(topic, self.columns)

    def check_same_columns(self, topic: TopicInfo) -> None:
        """Raise if a column that the condition uses is another one by now."""
        if _ids(topic, self.columns) != self._ids:
            raise InvalidRequestError(
                f"a column of the condition {self.where} was renamed or dropped while records were "
                "erased; run it again with the new names"
            )

    def may_match(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments that may have such records, according to the manifest."""
        known = [
            _known_of(
                segment,
                (segment.base_offset, segment.end_offset - 1),
                (segment.min_timestamp_us, segment.max_timestamp_us),
            )
            for segment in segments
        ]
        return [segments[number] for number in self._possible(known)]

    def find(self, store: ObjectStore, topic: TopicInfo, segment: Segment) -> Mask:
        """Which records of the segment are selected. Only the columns that the condition uses are
        read, of row groups that may have such records."""
        reader = open_segment(store, segment)
        names = list(dict.fromkeys([*self.columns, OFFSET]))
        columns = Projection(column_schema(topic.fields, names), "", topic)
        stored_names = columns.stored_names(reader)
        possible = self._row_groups(reader)
        mask = np.zeros(segment.records, dtype=bool)
        at = 0
        for group, facts in enumerate(reader.groups):
            if group not in possible:
                at += facts.rows
                continue
            for batch in reader.batches([group], stored_names):
                shaped = columns.shape(batch, reader.true_offsets(batch), segment)
                offsets = shaped.column(OFFSET).to_numpy()
                mask[at + np.searchsorted(offsets, self._offsets(shaped, segment.path))] = True
                at += batch.num_rows
        return mask

    def _offsets(self, batch: pa.RecordBatch, path: str) -> npt.NDArray[np.int64]:
        """The offsets of the records that are selected, in any order."""
        try:
            found = pa.Table.from_batches([batch]).filter(self.where)
        except pa.ArrowException as error:
            raise InvalidRequestError(
                f"the condition {self.where} fails on records of {path}: {error}"
            ) from None
        offsets: npt.NDArray[np.int64] = found[OFFSET].to_numpy()
        return offsets

    def _row_groups(self, reader: Records) -> set[int]:
        """The row groups that may have such records, according to their offsets and times."""
        segment = reader.segment
        known = []
        for facts in reader.groups:
            offsets = facts.offsets
            if offsets is not None:
                offsets = offsets[0] + segment.shift, offsets[1] + segment.shift
            known.append(_known_of(segment, offsets, facts.times_us))
        return set(self._possible(known))

    def _possible(self, known: Sequence[Any]) -> list[int]:
        """The numbers of those facts with which the condition can be true. A dataset of files that
        are never opened lets Arrow decide that for all of them at once."""
        parquet, nowhere = ds.ParquetFileFormat(), fs.LocalFileSystem()
        fragments = [
            parquet.make_fragment(str(number), nowhere, partition_expression=fact)
            for number, fact in enumerate(known)
        ]
        dataset = ds.FileSystemDataset(fragments, self._schema, parquet, nowhere)
        return sorted(int(fragment.path) for fragment in dataset.get_fragments(self.where))

    def _check(self) -> None:
        nulls = [pa.nulls(1, field.type) for field in self._schema]
        try:
            # Some types that do not fit are noticed only when there is a row.
            pa.Table.from_arrays(nulls, names=self._schema.names).filter(self.where)
        except (pa.ArrowException, KeyError) as error:
            names = ", ".join(self._schema.names)
            reason = str(error).partition(" in partition: ")[0]
            if "Precision is not great enough" in reason:
                reason += ". Compare a decimal column with a decimal.Decimal, and not with an int"
            raise InvalidRequestError(
                f"`where` is not a condition on the columns {names}: {self.where}: {reason}"
            ) from None

    def _check_decimals(self) -> None:
        used = [self._schema.field(name) for name in self.columns]
        decimals = {field.name: field.type for field in used if _has_decimals(field.type)}
        if not decimals or _compares_decimals() or _has_one_scale(self.where, decimals.values()):
            return
        raise InvalidRequestError(
            f"pyarrow {pa.__version__} compares decimals of different scales wrongly, so it may "
            f"select other records by {', '.join(decimals)}; compare with a decimal that has as "
            f"many decimal places as the column, and alone, or use pyarrow 22 or newer for the "
            f"condition {self.where}"
        )

    def _used_columns(self) -> list[str]:
        """The columns without which the expression has no meaning. An expression that names columns
        by their position gets all of them."""
        names: list[str] = self._schema.names
        if "FieldPath(" in str(self.where):
            return names
        return [name for name in names if not self._works_without(name)]

    def _works_without(self, name: str) -> bool:
        try:
            self._schema.empty_table().drop_columns([name]).filter(self.where)
        except (pa.ArrowException, KeyError):
            return False
        return True


@cache
def _compares_decimals() -> bool:
    """True if this pyarrow compares decimals by their values, and not by their digits."""
    two = pa.table({"price": pa.array([Decimal("2.00")])})
    return bool(two.filter(pc.field("price") == Decimal("2")).num_rows)


def _has_one_scale(where: Any, kinds: Iterable[pa.DataType]) -> bool:
    """True if it is certain that only decimals of one scale are compared: there is no function, and
    all numbers have as many decimal places as the columns."""
    scales = {kind.scale if pa.types.is_decimal(kind) else None for kind in kinds}
    text = str(where)
    if len(scales) != 1 or re.search(r"\w\(|\dE", text):
        return False
    return {len(number[1] or "") for number in re.finditer(r"\d+(?:\.(\d+))?", text)} <= scales


def _has_decimals(arrow: pa.DataType) -> bool:
    children = (arrow.field(number).type for number in range(arrow.num_fields))
    return pa.types.is_decimal(arrow) or any(map(_has_decimals, children))


def _known_of(
    segment: Segment, offsets: tuple[int, int] | None, times_us: tuple[int, int] | None
) -> Any:
    """What is known of records, as an expression that is true for all of them."""
    known = pc.field(PARTITION) == segment.partition
    if offsets is not None:
        known &= (pc.field(OFFSET) >= offsets[0]) & (pc.field(OFFSET) <= offsets[1])
    if times_us is not None:
        low, high = (pa.scalar(us, pa.timestamp("us", "UTC")) for us in times_us)
        known &= (pc.field(TIMESTAMP) >= low) & (pc.field(TIMESTAMP) <= high)
    return known


def _ids(topic: TopicInfo, columns: Sequence[str]) -> dict[str, int | None]:
    ids = column_ids(topic)
    return {name: ids.get(name) for name in columns}
