"""Writing one Parquet segment file: how records are stored in Parquet [SEG-2..8].

For appends, offsets count up from a predicted one. Rewrites pass the offsets of their records.
"""

from __future__ import annotations

import io
import os
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import LogTableError, SchemaMismatchError, StorageError
from pylogtable.format.footer_filters import ChunkId
from pylogtable.format.model import StagedSegment
from pylogtable.format.null_structs import null_field
from pylogtable.format.paths import segment_path
from pylogtable.format.schema import OFFSET, TIMESTAMP
from pylogtable.lazy_arrow import pc, pq
from pylogtable.segments.bloom import filter_bytes, make_filter
from pylogtable.segments.file_layout import BLOOM_FPP, FileLayout
from pylogtable.segments.footer import (
    FILTERS_KEY,
    PATH_KEY,
    add_filters,
    checksums_text,
    placeholder,
    seal_footer,
)
from pylogtable.storage.base import ObjectStore

SAMPLE_ROWS = 4096
SAMPLE_BYTES = 256 << 10
#: A column that keeps this part of its bytes is not worth its compression.
DENSE = 0.9
SINK_BYTES = 1 << 20


class SegmentWriter:
    """Writes one file, row group by row group. The file appears in the store when it is closed."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        partition: int,
        floor: int,
        file_id: str,
        layout: FileLayout,
        like: pa.Table,
    ) -> None:
        """`like` is the first row group that will be written; it determines the encodings. `floor`
        is the first offset that the file may hold."""
        self.path = segment_path(partition, floor, file_id)
        self._floor = self._next = floor
        self._has_given_offsets = False
        self._layout = layout
        self._schema = layout.schema
        self._facts_of = partial(layout.facts_of, partition, hashed=False)
        self._columns = like.schema
        self._row_groups: list[StagedSegment] = []
        self._row_group_offsets: list[int] = []
        named = like.rename_columns(self._schema.names[1:])
        repetitive = [] if layout.is_temporary else _repetitive_columns(named, layout.nested)
        dense = _dense_columns(named.drop_columns(repetitive)) if layout.chooses_codec else []
        blooms = layout.bloom_options(like.num_rows)
        self._repetitive = set(repetitive)
        # A filter is as large as its distinct values need, which is little if values repeat.
        large = set(blooms.get("bloom_filter_options", ())).difference(repetitive)
        self._bloom_bytes = len(large) * filter_bytes(like.num_rows, BLOOM_FPP)
        self._own_filters: list[tuple[ChunkId, bytes]] = []
        self._makes_filters = not blooms
        pages = layout.page_options(store.limits.page_rows, like)
        self._storing = _Storing(f"{store.url}/{self.path}")
        self._open = ExitStack()
        self._sink = _Sink(self._open.enter_context(store.open_output(self.path)))
        # Most of what is written is a few bytes, which cost more in Python than in C++.
        self._buffered = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), SINK_BYTES)
        self._filtered_columns = len(blooms.get("bloom_filter_options", ()))
        try:
            with self._storing:
                self._writer = pq.ParquetWriter(
                    self._buffered,
                    layout.schema,
                    compression=layout.codecs(dense),
                    version="2.6",
                    use_dictionary=layout.paths_below(repetitive) or False,
                    column_encoding=dict.fromkeys([OFFSET, TIMESTAMP], "DELTA_BINARY_PACKED"),
                    write_statistics=layout.bounded,
                    store_schema=False,
                    write_page_checksum=True,
                    **blooms,
                    **pages,
                )
        except BaseException as error:
            with suppress(type(error)):
                self._open.__exit__(type(error), error, error.__traceback__)
            raise

    @property
    def size_bytes(self) -> int:
        """The size of the file if it were closed now, without the footer. Bloom filters are written
        with the footer but count here: they are a sixth of a file of short records."""
        own = sum(len(each) for _, each in self._own_filters)
        return int(self._buffered.tell()) + own + len(self._row_group_offsets) * self._bloom_bytes

    def write_row_group(self, rows: pa.Table, offsets: npt.NDArray[np.int64] | None = None) -> None:
        """Add rows (`timestamp` and the topic's columns) as one row group. `offsets` must grow;
        without them offsets count up from the floor."""
        self._has_given_offsets = offsets is not None
        if offsets is None:
            offsets = np.arange(self._next, self._next + rows.num_rows, dtype=np.int64)
        self._row_groups.append(self._facts_of(rows))
        self._row_group_offsets.append(int(offsets[0]))
        self._next = int(offsets[-1]) + 1
        table = pa.Table.from_arrays([pa.array(offsets), *rows.columns], schema=self._schema)
        if self._makes_filters:
            self._own_filters += self._filters_of(table, len(self._row_groups) - 1)
        try:
            if not self._layout.abilities.refuses_nulls:
                _refuse_nulls(table)
            with self._storing:
                self._writer.write_table(table, row_group_size=rows.num_rows)
        except pa.ArrowInvalid as error:
            # Commits of older versions may have such nulls inside of a column [APPEND-2].
            raise SchemaMismatchError(
                f"records cannot be written to a file: {error}. verify with data=True names the "
                "segments that have such records, and erase removes them"
            ) from error

    def _filters_of(self, table: pa.Table, group: int) -> list[tuple[ChunkId, bytes]]:
        """A Bloom filter of each key column that can have one, made here [SEG-4]."""
        filters = []
        for name, leaf in self._layout.filtered.items():
            column = table[name]
            values = [column.unique()] if name in self._repetitive else column.chunks
            made = make_filter(values, BLOOM_FPP)
            if made is not None:
                filters.append((ChunkId(group, leaf), made))
        return filters

    def close(self, *, hashed: bool = False) -> StagedSegment:
        """Finish the file and publish it in the store. Bloom filters and footer are held back until
        the footer has the checksums of the filters [SUM-3]."""
        empty = placeholder(self._filtered_columns * len(self._row_group_offsets))
        sums = empty or checksums_text(self._own_filters)
        texts = {PATH_KEY: self.path, FILTERS_KEY: sums} if sums else {PATH_KEY: self.path}
        with self._storing:
            self._writer.add_key_value_metadata(texts)
            self._buffered.flush()
            self._sink.hold()
            self._writer.close()
            self._buffered.flush()
            tail = self._sink.held()
            if self._own_filters:
                tail, footer_checksum = add_filters(tail, self._sink.tell(), self._own_filters)
            else:
                tail, footer_checksum = seal_footer(tail, empty)
            self._sink.write(tail)
        size = self._sink.tell()
        self._open.close()
        return msgspec.structs.replace(
            StagedSegment.joined(self._row_groups or [self._facts_of(self._columns.empty_table())]),
            path=self.path,
            size_bytes=size,
            predicted_base=self._floor,
            row_groups=tuple(offset - self._floor for offset in self._row_group_offsets),
            hashed_over=self._layout.topic.partitions if hashed else None,
            footer_checksum=footer_checksum,
            given_end=self._next if self._has_given_offsets else None,
        )

    def abandon(self, error: BaseException) -> None:
        """Drop the file, so that nothing of it appears in the store."""
        self._writer.is_open = False
        self._sink.hold()
        self._open.__exit__(type(error), error, error.__traceback__)


class _Storing:
    """What pyarrow raises if the store fails, for instance if a disk is full, names the file. Some
    of our own errors are OSErrors as well."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, LogTableError):
            reason = os.strerror(error.errno) if error.errno else error
            raise StorageError(f"cannot write {self._url}: {reason}") from error


class _Sink(io.RawIOBase):
    """Passes what is written on to a stream of the store. After `hold` it keeps it instead, and
    `held` returns it and goes back."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self._position = 0
        self._kept: list[bytes] | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._position += size
        if self._kept is None:
            self._stream.write(data)
        else:
            self._kept.append(bytes(data))
        return size

    def hold(self) -> None:
        self._kept = []

    def held(self) -> bytes:
        kept = b"".join(self._kept or ())
        self._position -= len(kept)
        self._kept = None
        return kept


def _refuse_nulls(table: pa.Table) -> None:
    """Raise if a required field inside of a column is null: older versions of pyarrow write it."""
    for column in table.columns:
        if pa.types.is_nested(column.type):
            for name in map(null_field, column.chunks):
                if name is not None:
                    raise pa.ArrowInvalid(f"field {name!r} must not be null, and has nulls")


def _repetitive_columns(rows: pa.Table, nested: frozenset[str]) -> list[str]:
    """The columns whose values repeat enough for a dictionary. With 40,000 distinct values, a
    twentieth of a sample of 4,096 are still repeats."""
    sample = rows.drop_columns([TIMESTAMP])
    if rows.num_rows > SAMPLE_ROWS:
        sample = sample.take(pa.array(np.linspace(0, rows.num_rows - 1, SAMPLE_ROWS, dtype=int)))
    return [
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if name in nested or pc.count_distinct(column).as_py() <= 0.95 * sample.num_rows
    ]


def _dense_columns(rows: pa.Table) -> list[str]:
    """The columns of numbers or bytes that zstd makes hardly smaller, such as measured values, or
    payloads that are compressed already."""
    if rows.num_rows < SAMPLE_ROWS:
        return []
    sample = rows.slice(0, SAMPLE_ROWS).combine_chunks()
    dense = []
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        arrow = column.type
        if not pa.types.is_floating(arrow) and not pa.types.is_binary(arrow):
            continue
        values = column.chunk(0).buffers()[-1]
        if values is not None and values.size:
            part = values.slice(0, min(values.size, SAMPLE_BYTES))
            small = pa.compress(part, codec="zstd", asbytes=True)
            if len(small) > DENSE * part.size:
                dense.append(name)
    return dense
