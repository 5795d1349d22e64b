"""How the files of a topic are laid out in Parquet, whatever this pyarrow can do by itself
[SEG-3], [SEG-4], [SEG-8]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import pyarrow as pa

from pylogtable.format.config import stored_config
from pylogtable.format.field_ids import stored_schema
from pylogtable.format.model import StagedSegment, TopicInfo
from pylogtable.format.schema import OFFSET, TIMESTAMP, is_keys_only, value_columns
from pylogtable.format.tombstones import count_keyless, count_tombstones
from pylogtable.lazy_arrow import pc, pq
from pylogtable.segments.bloom import can_filter

BLOOM_FPP = 0.01
TEMPORARY_CODEC = "none"
# What pyarrow has by default: the size of a page, and how many values it writes at a time.
_PAGE_BYTES = 1 << 20
_FEWEST_PAGE_ROWS = 1024


@dataclass(frozen=True)
class Abilities:
    """What a version of pyarrow can do when it writes Parquet."""

    #: Bloom filters, from version 25 on. Those of version 24 are as large as if no value repeated.
    filters: bool
    #: Pages of a given number of rows, from version 23 on.
    page_rows: bool
    #: It raises for nulls in a required field inside of a column, from version 20 on.
    refuses_nulls: bool = False


@cache
def abilities_of_pyarrow() -> Abilities:
    """What the installed pyarrow can do. Signatures do not tell: some versions take an option as
    one of `**options`."""
    tells_places = hasattr(pq.ColumnChunkMetaData, "bloom_filter_offset")  # not in version 24
    return Abilities(
        filters=tells_places and _takes(bloom_filter_options={}),
        page_rows=_takes(max_rows_per_page=1),
        refuses_nulls=_refuses_nulls(),
    )


def _refuses_nulls() -> bool:
    required = pa.field("x", pa.int8(), nullable=False)
    wrong = pa.StructArray.from_arrays([pa.array([None], pa.int8())], fields=[required])
    try:
        pq.write_table(pa.table({"c": wrong}), pa.BufferOutputStream())
    except pa.ArrowInvalid:
        return True
    return False


def _takes(**option: Any) -> bool:
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([]), **option).close()
    except TypeError:
        return False
    return True


class FileLayout:
    """What all files of a topic have in common. It is made once and not for each file: an append to
    a topic of many partitions writes many small files."""

    def __init__(
        self, topic: TopicInfo, *, temporary: bool = False, abilities: Abilities | None = None
    ) -> None:
        """A temporary file is read once, and soon. So it is fast to write and not small. Without
        `abilities`, pyarrow is asked for them."""
        config = stored_config(topic.config)
        self.is_temporary = temporary
        self.topic = topic
        self.values = value_columns(topic)
        self.keys_only = is_keys_only(topic)
        self.schema = stored_schema(topic)
        self.codec = TEMPORARY_CODEC if temporary else config.parquet_codec
        self.chooses_codec = config.compression_type == "producer" and not temporary
        self.segment_bytes = config.segment_bytes
        self.append_time = config.uses_append_time
        self.leaf_paths = {
            field.name: _paths_below(field.name, field.type) for field in self.schema
        }
        bounded = [OFFSET, TIMESTAMP] if temporary else _bounded_columns(self.schema, topic.key)
        self.bounded = [path for name in bounded for path in self.leaf_paths[name]]
        self.nested = frozenset(f.name for f in self.schema if pa.types.is_nested(f.type))
        self._abilities = abilities

    @cached_property
    def abilities(self) -> Abilities:
        return self._abilities or abilities_of_pyarrow()

    @cached_property
    def filtered(self) -> dict[str, int]:
        """The columns that get a Bloom filter, in their order, each with its number among the leaf
        columns."""
        if self.is_temporary:
            return {}
        leaves = self.paths_below(self.schema.names)
        return {
            path: number
            for number, path in enumerate(leaves)
            if path in self.topic.key and self._can_filter(self.schema.field(path).type)
        }

    def _can_filter(self, arrow: pa.DataType) -> bool:
        """pyarrow also makes filters of decimals, which we cannot: how they are stored is pyarrow's
        choice."""
        return not pa.types.is_boolean(arrow) if self.abilities.filters else can_filter(arrow)

    def facts_of(self, partition: int, rows: pa.Table, *, hashed: bool) -> StagedSegment:
        """What is known of these rows, before they are in a file or in a commit. `hashed` says that
        keys alone have placed them."""
        times = pc.min_max(rows[TIMESTAMP].cast(pa.int64()))
        return StagedSegment(
            partition=partition,
            predicted_base=0,
            path="@0",
            records=rows.num_rows,
            size_bytes=0,
            min_timestamp_us=times["min"].as_py() or 0,
            max_timestamp_us=times["max"].as_py() or 0,
            tombstones=count_tombstones(rows, self.topic.key, self.values),
            null_keys=count_keyless(rows, self.topic),
            keys_only=self.keys_only,
            hashed_over=self.topic.partitions if hashed else None,
            append_time=self.append_time,
        )

    def paths_below(self, columns: Sequence[str]) -> list[str]:
        """The Parquet paths of the leaf columns under these top-level columns."""
        return [path for name in columns for path in self.leaf_paths[name]]

    def codecs(self, dense: Sequence[str]) -> str | dict[str, str]:
        """The codec of each leaf column. Columns that would not get smaller are not compressed:
        that would only take time."""
        if not dense:
            return self.codec
        return self._usual_codecs | dict.fromkeys(self.paths_below(dense), "none")

    @cached_property
    def _usual_codecs(self) -> dict[str, str]:
        return dict.fromkeys(self.paths_below(self.schema.names), self.codec)

    def bloom_options(self, rows: int) -> dict[str, Any]:
        """A Bloom filter for each key column that can have one, if pyarrow writes it [SEG-4]."""
        if not self.filtered or not self.abilities.filters:
            return {}
        wanted = {"ndv": max(1, rows), "fpp": BLOOM_FPP}
        return {"bloom_filter_options": dict.fromkeys(self.filtered, wanted)}

    def page_options(self, page_rows: int, like: pa.Table) -> dict[str, Any]:
        """An index of pages with few rows, if `like` has more."""
        if like.num_rows <= page_rows or self.is_temporary:
            return {}
        if self.abilities.page_rows:
            return {"write_page_index": True, "max_rows_per_page": page_rows}
        # An older pyarrow looks at the size of a page after each batch of values: this ends the
        # page after each batch. A batch of the widest column must not be a large page, either.
        widest = max(column.nbytes for column in like.columns) / like.num_rows
        fitting = max(_FEWEST_PAGE_ROWS, int(_PAGE_BYTES / max(1, widest)))
        batch_rows = min(page_rows, fitting)
        return {"write_page_index": True, "write_batch_size": batch_rows, "data_page_size": 1}


def _bounded_columns(schema: pa.Schema, key: Sequence[str]) -> list[str]:
    """The columns that get statistics. Binary payloads get none: their statistics are large and of
    little use."""
    return [f.name for f in schema if f.name in key or not pa.types.is_binary(f.type)]


def _paths_below(path: str, arrow: pa.DataType) -> list[str]:
    if pa.types.is_list(arrow):
        return _paths_below(f"{path}.list.element", arrow.value_type)
    if pa.types.is_map(arrow):
        return [
            *_paths_below(f"{path}.key_value.key", arrow.key_type),
            *_paths_below(f"{path}.key_value.value", arrow.item_type),
        ]
    if pa.types.is_struct(arrow):
        children = (arrow.field(index) for index in range(arrow.num_fields))
        return [
            below
            for child in children
            for below in _paths_below(f"{path}.{child.name}", child.type)
        ]
    return [path]
