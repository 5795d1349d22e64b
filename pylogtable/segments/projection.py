"""The columns of a read: from records as a file has them to rows with the columns asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from pylogtable.errors import CorruptTopicError, SchemaMismatchError
from pylogtable.format.field_ids import LOG_IDS, ids_in_file, ids_of, numbered
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.schema import (
    HEADERS,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    column_schema,
    fits,
    from_arrow,
    nulls,
    to_arrow,
    widens,
)
from pylogtable.segments.segment_reader import Records

_WITHOUT_FILE = frozenset({PARTITION, OFFSET, "topic", "timestampType"})


@dataclass(frozen=True)
class Projection:
    """The columns `schema` of a topic called `topic`. `info` is the topic at the version that
    is read. It can be pickled."""

    schema: pa.Schema
    topic: str
    info: TopicInfo

    @cached_property
    def needs_file(self) -> bool:
        """False if the entry of a segment without holes says all that is asked for."""
        return not _WITHOUT_FILE.issuperset(self.schema.names)

    @cached_property
    def has_offsets(self) -> bool:
        return OFFSET in self.schema.names

    def stored_names(self, reader: Records) -> list[str]:
        """The columns of the file that are needed, after a check of their types. Most files have
        the same columns as the one before."""
        # Taken in one step: other threads may read other files.
        for schema, names in self._last_seen:
            if schema.equals(reader.schema, check_metadata=True):
                return list(names)
        check_column_names(reader, self.info, self.schema.names)
        wanted = {self._stored.get(name) for name in self.schema.names}
        names = [name for name in reader.schema.names if name in wanted]
        self._last_seen[:] = [(reader.schema, names)]
        return list(names)

    @cached_property
    def _last_seen(self) -> list[tuple[pa.Schema, list[str]]]:
        return []

    def with_columns(self, names: Sequence[str]) -> Projection:
        """The same columns, and these."""
        more = [name for name in names if name not in self.schema.names]
        if not more:
            return self
        added = column_schema(self.info.fields, more)
        return replace(self, schema=pa.schema([*self.schema, *added]))

    def shape(
        self, batch: pa.RecordBatch, offsets: pa.Array | None, segment: Segment
    ) -> pa.RecordBatch:
        """Exactly the columns of `schema`: the log's own are computed, missing ones are null, and
        old ones are widened."""
        columns = []
        for field in self.schema:
            index = batch.schema.get_field_index(self._stored.get(field.name, ""))
            if field.name == OFFSET:
                column = offsets
            elif field.name == PARTITION:
                column = pa.array(np.full(batch.num_rows, segment.partition, dtype=np.int32))
            elif field.name == "topic":
                column = pa.repeat(pa.scalar(self.topic), batch.num_rows)
            elif field.name == "timestampType":  # [SEG-9]
                column = pa.repeat(pa.scalar(int(segment.append_time), pa.int32()), batch.num_rows)
            elif index < 0:
                column = nulls(batch.num_rows, field.type)
            else:
                column = batch.column(index)
                if field.name in self._required and column.null_count:
                    detail = f"its column {field.name!r} has nulls, and the topic allows none"
                    raise CorruptTopicError(segment.path, "SEG-3", detail)
                # A file has ids on the fields inside of a column, which readers do not see.
                if not column.type.equals(field.type, check_metadata=True):
                    column = self._cast(column, field)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @cached_property
    def _stored(self) -> dict[str, str]:
        """The name in files of each column that files have [META-7]."""
        own = {OFFSET: OFFSET, TIMESTAMP: TIMESTAMP}
        return own | {field.name: field.stored_name for field in self.info.fields}

    @cached_property
    def _required(self) -> frozenset[str]:
        return frozenset(field.name for field in self.info.fields if not field.nullable)

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """The column with the type that the reader expects. That type is narrower than the file's
        only if the read began before the column was widened."""
        try:
            return column.cast(field.type)
        except pa.ArrowInvalid as error:
            raise SchemaMismatchError(
                f"column {field.name!r} of topic {self.topic!r} was {field.type} when this read "
                f"began. It is {column.type} now and has values that do not fit: {error}. Start "
                "the read, or the query, again to see the new type"
            ) from error


def check_column_names(reader: Records, topic: TopicInfo, names: Sequence[str]) -> None:
    """Raise if one of these columns does not fit the topic's, or is missing and must not be. A
    column that was added later may be missing, and is neither a key nor required [SEG-3]. A column
    with another id is another column. A file has all ids, or none [META-6]."""
    path, has_ids = reader.segment.path, any(map(ids_in_file, reader.schema))
    for name in (OFFSET, TIMESTAMP) if has_ids else ():
        _check_ids(path, reader.schema.field(name), [LOG_IDS[name]])
    for field in numbered(topic).fields:
        if field.name not in names:
            continue
        is_key = field.name in topic.key
        found = reader.schema.get_all_field_indices(field.stored_name)
        if not found and field.nullable and not is_key:
            continue
        if len(found) != 1:
            detail = f"it has {len(found)} columns {field.stored_name!r} where one belongs"
            raise CorruptTopicError(path, "SEG-3", detail)
        column = reader.schema.field(found[0])
        if not type_fits(column.type, to_arrow(field.type), may_widen=not is_key):
            given = f"its column {field.name!r} ({column.type})"
            detail = f"{given} does not fit the topic's ({field.type})"
            raise CorruptTopicError(path, "SEG-3", detail)
        if has_ids:
            _check_ids(path, column, ids_of(field))


def _check_ids(path: str, column: pa.Field, wanted: list[int]) -> None:
    found = ids_in_file(column)
    if found != wanted:
        detail = f"its column {column.name!r} has the ids {found}, not {wanted}"
        raise CorruptTopicError(path, "META-6", detail)


def stored_values(reader: Records, topic: TopicInfo) -> list[str]:
    """The value columns of a file, dropped ones included: they decide which of its records are
    tombstones [META-8]. Raises if a column does not fit the topic's."""
    check_column_names(reader, topic, [field.name for field in topic.fields])
    others = (OFFSET, TIMESTAMP, HEADERS, *topic.key)
    return [name for name in reader.schema.names if name not in others]


def type_fits(stored: pa.DataType, wanted: pa.DataType, *, may_widen: bool = True) -> bool:
    """True if a file's column of type `stored` may be one of the topic's type: the same, or
    a narrower one, unless it is a key [SEG-3]. A text is not binary here: writers have cast it."""
    if stored == wanted:
        return True
    try:
        given, topics = from_arrow(stored), from_arrow(wanted)
    except SchemaMismatchError:
        return False
    if to_arrow(given) != stored:
        return False
    if widens(given, topics):
        return may_widen
    return fits(given, topics) and given != "string"
