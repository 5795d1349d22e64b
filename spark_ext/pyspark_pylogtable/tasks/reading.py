"""The reading half of the source: what each `view` shows, cut into parts for Spark's tasks.

A content is planned on the driver and read on executors. It holds the pinned topics, so whatever it
shows never changes.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pylogtable import (
    GROUPS_SCHEMA,
    HISTORY_SCHEMA,
    PARTITIONS_SCHEMA,
    SEGMENTS_SCHEMA,
    InvalidRequestError,
    LogTableError,
    SchemaMismatchError,
    SegmentGoneError,
    StorageError,
    View,
)
from pylogtable.engine import PartReader, ReadPart, ReadTask, Scan
from pyspark_pylogtable.columns import arrow_schema, check_asked, default_columns, spark_schema
from pyspark_pylogtable.options import Options
from pyspark_pylogtable.positions import Ranges, check_batch, check_bounds, resolve_batch
from pyspark_pylogtable.topics import Pinned

_TOPIC = pa.field("topic", pa.string())


@dataclass(frozen=True)
class Part:
    """One task's share of one topic."""

    topic: str
    what: Any = None


@dataclass(frozen=True)
class Content(ABC):
    """What a DataFrame shows of its topics."""

    options: Options
    pinned: Pinned

    @abstractmethod
    def schema(self) -> StructType:
        """Its columns, unless fewer are asked for."""

    @abstractmethod
    def check(self, asked: StructType) -> None:
        """Refuse columns it does not have."""

    @abstractmethod
    def parts(self) -> list[Part]:
        """What the tasks are to read."""

    @abstractmethod
    def read(self, part: Part, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a part with exactly these columns."""


class Records(Content):
    """The records of a range of offsets."""

    def schema(self) -> StructType:
        schemas = {name: self._columns(view) for name, view in self.pinned.views.items()}
        (first, schema), *others = schemas.items()
        for name, other in others:
            if other != schema:
                raise SchemaMismatchError(
                    f"topics {first!r} and {name!r} have different columns: "
                    f"{schema.simpleString()} and {other.simpleString()}. Read them one by one, "
                    'or only what they share: .option("columns", "…")'
                )
        return schema

    def check(self, asked: StructType) -> None:
        check_asked(asked, self.pinned.views)

    def parts(self) -> list[Part]:
        ranges = resolve_batch(self.options, self.pinned.views, self.pinned.assigned)
        planned = plan_parts(self.options, self.pinned.views, ranges)
        return [Part(topic, part) for topic, part in planned]

    def read(self, part: Part, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        reader = Scan(self.pinned.views[part.topic]).reader(columns)
        return read_records(reader, part.what, fail_on_data_loss=self.options.fail_on_data_loss)

    def _columns(self, view: View) -> StructType:
        names = self.options.columns or default_columns(
            view,
            include_headers=self.options.include_headers,
            with_topic=self.pinned.subscribed,
        )
        return spark_schema(Scan(view).reader(list(names)).schema)


class Latest(Records):
    """The newest record of each key; a tombstone is a record."""

    def parts(self) -> list[Part]:
        return [
            Part(topic, group)
            for topic, view in self.pinned.views.items()
            for group in Scan(view).key_groups()
        ]

    def read(self, part: Part, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        view = self.pinned.views[part.topic]
        try:
            newest = view.latest(columns=columns.names, partitions=part.what)
        except SegmentGoneError as error:
            raise StorageError(
                f"[DATA_LOSS] {part.topic}: a segment was removed after this DataFrame was loaded, "
                f"and without it older records would look like the newest; load it again ({error})"
            ) from error
        yield from newest.cast(columns).to_batches()


class Metadata(Content):
    """A table about the topics instead of their records."""

    def schema(self) -> StructType:
        every = self._every(with_topic=self.pinned.subscribed)
        if self.options.columns is None:
            return spark_schema(every)
        self._check_names(self.options.columns, every.names)
        return spark_schema(pa.schema([every.field(name) for name in self.options.columns]))

    def check(self, asked: StructType) -> None:
        self._check_names(asked.names, self._every(with_topic=True).names)

    def _every(self, *, with_topic: bool) -> pa.Schema:
        table, _ = _TABLES[self.options.view]
        return pa.schema([_TOPIC, *table]) if with_topic else table

    def _check_names(self, asked: Sequence[str], has: Sequence[str]) -> None:
        for name in asked:
            if name not in has:
                raise InvalidRequestError(
                    f"view={self.options.view} has no column {name!r}; it has {', '.join(has)}"
                )

    def parts(self) -> list[Part]:
        return [Part(topic) for topic in self.pinned.views]

    def read(self, part: Part, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        _, make = _TABLES[self.options.view]
        table = make(self.pinned.views[part.topic])
        table = table.append_column(_TOPIC, pa.repeat(part.topic, table.num_rows))
        yield from table.select(columns.names).cast(columns).to_batches()


class Groups(Metadata):
    """The consumer groups of the topics. No version has them, so they were read when the topics
    were pinned."""

    def _every(self, *, with_topic: bool) -> pa.Schema:
        return GROUPS_SCHEMA

    def read(self, part: Part, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        table = self.pinned.groups[part.topic]
        yield from table.select(columns.names).cast(columns).to_batches()


_TABLES: dict[str, tuple[pa.Schema, Callable[[View], pa.Table]]] = {
    "segments": (SEGMENTS_SCHEMA, View.segments),
    "partitions": (PARTITIONS_SCHEMA, View.partitions),
    "history": (HISTORY_SCHEMA, View.history),
}


def plan_parts(
    options: Options, views: Mapping[str, View], ranges: Ranges
) -> list[tuple[str, ReadPart]]:
    """The ranges cut into parts for tasks, each with its topic."""
    total = sum(map(_offsets_in, ranges.values()))
    return [
        (topic, part)
        for topic, spans in ranges.items()
        for part in Scan(views[topic]).parts(
            spans,
            max_records=options.max_records_per_partition,
            min_parts=_share(options.min_partitions, _offsets_in(spans), total),
        )
    ]


def read_records(
    reader: PartReader, part: ReadPart, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a part. A segment whose file is gone is an error, or left out with a
    warning."""
    for task in part.tasks:
        yield from _read_segment(reader, part, task, fail_on_data_loss)


def _read_segment(
    reader: PartReader, part: ReadPart, task: ReadTask, fail: bool
) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader.read(ReadPart((task,)))
    except SegmentGoneError as error:
        lost = (
            f"[DATA_LOSS] {reader.topic}-{part.partition}: the segment of offsets {task.start} to "
            f"{task.end - 1} was removed after this read was planned; read it again ({error})"
        )
        if fail:
            raise StorageError(f"{lost}, or set failOnDataLoss=false to go on") from error
        warnings.warn(lost, stacklevel=2)


def plan_content(
    options: Options, pinned: Pinned | LogTableError, use: Literal["read", "batch read"]
) -> Content:
    """What the options ask for, or the error that kept it from being found."""
    options.refuse_for(use)
    if isinstance(pinned, LogTableError):
        raise pinned
    if options.view == "groups":
        return Groups(options, pinned)
    if options.view in _TABLES:
        return Metadata(options, pinned)
    if options.view == "latest":
        _check_latest(pinned)
        return Latest(options, pinned)
    check_batch(options) if use == "batch read" else check_bounds(options)
    return Records(options, pinned)


def _check_latest(pinned: Pinned) -> None:
    """Refuse when it is planned what has no newest records."""
    for topic, view in pinned.views.items():
        if not view.key:
            raise InvalidRequestError(
                f"view=latest: topic {topic!r} has no key columns, so no record of it is newer "
                "than another"
            )
        if len(pinned.assigned[topic]) < view.partition_count:
            raise InvalidRequestError(
                "view=latest is of whole topics, and assign names only some partitions of "
                f"{topic!r}; use subscribe"
            )


class BatchReader(DataSourceReader):
    """Reads a content with the columns that the DataFrame has."""

    def __init__(self, content: Content, schema: StructType) -> None:
        content.check(schema)
        self._content = content
        self._columns = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in self._content.parts()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Of an empty plan Spark makes one task without a part, and 4.0 without a partition.
        if partition is not None and partition.value is not None:
            for batch in self._content.read(partition.value, self._columns):
                check_nulls(batch)
                yield batch


def check_nulls(batch: pa.RecordBatch) -> None:
    """Spark believes a schema of the user's that says NOT NULL, and answers wrongly if it lies."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise SchemaMismatchError(
                f"column {field.name!r} was asked for as NOT NULL, and has nulls; ask for it as "
                "nullable"
            )


def _offsets_in(spans: Mapping[int, tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans.values())


def _share(min_partitions: int | None, size: int, total: int) -> int | None:
    """A topic's part of `minPartitions`, by its part of the offsets."""
    if min_partitions is None or not total:
        return None
    return max(1, -(-min_partitions * size // total))
