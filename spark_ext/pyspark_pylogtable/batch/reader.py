"""What Spark calls for batch reads: one reader for each view."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
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
    SchemaMismatchError,
    SegmentGoneError,
    StorageError,
    View,
)
from pylogtable.engine import Scan
from pyspark_pylogtable.columns import arrow_schema, check_requested, default_columns, spark_schema
from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.request.pinned import Pinned
from pyspark_pylogtable.request.ranges import check_batch, check_bounds, resolve_batch
from pyspark_pylogtable.tasks.driver import Driver
from pyspark_pylogtable.tasks.parts import check_nulls, plan_tasks, read_records

_TOPIC = pa.field("topic", pa.string())


@dataclass(frozen=True)
class ViewPart:
    """What a task reads of one topic. `share` is a `ReadPart` of records, the partitions whose
    latest records to read, or None for a whole table."""

    topic: str
    share: Any = None


@dataclass(frozen=True)
class ViewReader(ABC):
    """Reads one view of the pinned topics."""

    options: Options
    pinned: Pinned

    @abstractmethod
    def schema(self) -> StructType:
        """The columns of a DataFrame if the user gives no schema."""

    @abstractmethod
    def check(self, requested: StructType) -> None:
        """Raise if the view does not have these columns."""

    @abstractmethod
    def tasks(self) -> list[list[ViewPart]]:
        """What each task reads, part by part."""

    @abstractmethod
    def read(self, part: ViewPart, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a part, with exactly these columns."""


class RecordsReader(ViewReader):
    """`view=records`: the records of a range of offsets, all of them or those of given keys."""

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

    def check(self, requested: StructType) -> None:
        check_requested(requested, self.pinned.views)

    def tasks(self) -> list[list[ViewPart]]:
        ranges = resolve_batch(self.options, self.pinned.views, self.pinned.assigned)
        planned = plan_tasks(self.options, self.pinned.views, ranges)
        return [[ViewPart(topic, part) for topic, part in parts] for parts in planned]

    def read(self, part: ViewPart, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        reader = Scan(self.pinned.views[part.topic], self.options.keys).reader(columns)
        return read_records(reader, part.share, fail_on_data_loss=self.options.fail_on_data_loss)

    def _columns(self, view: View) -> StructType:
        names = self.options.columns or default_columns(
            view.schema,
            include_headers=self.options.include_headers,
            with_topic=self.pinned.is_subscribed,
        )
        return spark_schema(Scan(view).reader(list(names)).schema)


class LatestReader(RecordsReader):
    """`view=latest`: the newest record of each key, or of given keys, tombstones included."""

    def tasks(self) -> list[list[ViewPart]]:
        if self.options.keys is not None:
            for view in self.pinned.views.values():
                view.latest(self.options.keys, partitions=[])  # raises if a key has another type
            return [[ViewPart(topic)] for topic in self.pinned.views]
        return [
            [ViewPart(topic, partitions)]
            for topic, view in self.pinned.views.items()
            for partitions in Scan(view).key_groups()
        ]

    def read(self, part: ViewPart, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        view = self.pinned.views[part.topic]
        try:
            newest = view.latest(self.options.keys, columns.names, part.share)
        except SegmentGoneError as error:
            raise StorageError(
                f"[DATA_LOSS] {part.topic}: a segment is gone, and without it older records would "
                f"look like the newest: {error}"
            ) from error
        yield from newest.cast(columns).to_batches()


class TableReader(ViewReader):
    """`view=segments`, `partitions` or `history`: a table about each topic."""

    def schema(self) -> StructType:
        every = self._all_columns(with_topic=self.pinned.is_subscribed)
        if self.options.columns is None:
            return spark_schema(every)
        self._check_names(self.options.columns, every.names)
        return spark_schema(pa.schema([every.field(name) for name in self.options.columns]))

    def check(self, requested: StructType) -> None:
        self._check_names(requested.names, self._all_columns(with_topic=True).names)

    def _all_columns(self, *, with_topic: bool) -> pa.Schema:
        table, _ = TABLES[self.options.view]
        return pa.schema([_TOPIC, *table]) if with_topic else table

    def _check_names(self, requested: Sequence[str], existing: Sequence[str]) -> None:
        for name in requested:
            if name not in existing:
                raise InvalidRequestError(
                    f"view={self.options.view} has no column {name!r}; it has {', '.join(existing)}"
                )

    def tasks(self) -> list[list[ViewPart]]:
        return [[ViewPart(topic)] for topic in self.pinned.views]

    def read(self, part: ViewPart, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        _, make = TABLES[self.options.view]
        table = make(self.pinned.views[part.topic])
        table = table.append_column(_TOPIC, pa.repeat(part.topic, table.num_rows))
        yield from table.select(columns.names).cast(columns).to_batches()


class GroupsReader(TableReader):
    """`view=groups`: the consumer groups. They have no versions, so they were read when the topics
    were pinned."""

    def _all_columns(self, *, with_topic: bool) -> pa.Schema:
        return GROUPS_SCHEMA

    def read(self, part: ViewPart, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        table = self.pinned.groups[part.topic]
        yield from table.select(columns.names).cast(columns).to_batches()


TABLES: dict[str, tuple[pa.Schema, Callable[[View], pa.Table]]] = {
    "segments": (SEGMENTS_SCHEMA, View.segments),
    "partitions": (PARTITIONS_SCHEMA, View.partitions),
    "history": (HISTORY_SCHEMA, View.history),
}


def plan_read(options: Options, pinned: Pinned, use: Literal["read", "batch read"]) -> ViewReader:
    """The reader for the view that the options ask for."""
    if options.view == "groups":
        return GroupsReader(options, pinned)
    if options.view in TABLES:
        return TableReader(options, pinned)
    if options.view == "latest":
        _check_latest(pinned)
        return LatestReader(options, pinned)
    check_batch(options) if use == "batch read" else check_bounds(options)
    return RecordsReader(options, pinned)


class BatchReader(DataSourceReader):
    """Reads one view with the columns of the DataFrame."""

    def __init__(self, view: ViewReader, schema: StructType) -> None:
        view.check(schema)
        self._view = view
        self._columns = arrow_schema(schema)
        self._driver = Driver()

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(parts) for parts in self._view.tasks()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # If there are no parts Spark still runs one task, without a part; Spark 4.0 even without
        # a partition.
        if partition is not None and partition.value is not None:
            for part in partition.value:
                with self._driver.explaining(self._view.pinned.views[part.topic].url):
                    for batch in self._view.read(part, self._columns):
                        check_nulls(batch)
                        yield batch


def _check_latest(pinned: Pinned) -> None:
    """Raise if a topic has no newest record per key, or if only some partitions are read."""
    for topic, view in pinned.views.items():
        if not view.key:
            raise InvalidRequestError(
                f"view=latest: topic {topic!r} has no key columns, so there is no newest record "
                "of a key"
            )
        if len(pinned.assigned[topic]) < view.partition_count:
            raise InvalidRequestError(
                "view=latest reads whole topics, and assign names only some partitions of "
                f"{topic!r}; use subscribe"
            )
