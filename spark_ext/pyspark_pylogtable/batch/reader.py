"""`spark.read.format("pylogtable")`: what Spark calls, first on the driver, then in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pylogtable import InvalidRequestError, LogTableError
from pyspark_pylogtable.batch.view_readers import (
    TABLES,
    GroupsReader,
    LatestReader,
    RecordsReader,
    TableReader,
    ViewReader,
)
from pyspark_pylogtable.columns import arrow_schema
from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.request.pinned import Pinned
from pyspark_pylogtable.request.ranges import check_batch, check_bounds
from pyspark_pylogtable.tasks.parts import check_nulls


def plan_read(
    options: Options, pinned: Pinned | LogTableError, use: Literal["read", "batch read"]
) -> ViewReader:
    """The reader for the view that the options ask for. If opening the topics failed, `pinned` is
    the error and is raised here."""
    options.refuse_for(use)
    if isinstance(pinned, LogTableError):
        raise pinned
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

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(parts) for parts in self._view.tasks()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # If there are no parts Spark still runs one task, without a part; Spark 4.0 even without
        # a partition.
        if partition is not None and partition.value is not None:
            for part in partition.value:
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
