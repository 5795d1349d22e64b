"""`LogTable`: a topic in a Spark session, for notebooks and jobs."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

import pylogtable
from pylogtable import (
    AppendResult,
    Bound,
    EraseReport,
    InvalidRequestError,
    MaintainReport,
    MirrorReport,
    PublishReport,
    RetentionReport,
    RewriteReport,
    Topic,
    VacuumReport,
    View,
    split_topic_url,
)
from pylogtable.engine import (
    NOT_GIVEN,
    Compaction,
    Erasure,
    ExpectedLast,
    Merge,
    Publication,
    ReadPart,
    Scan,
    maintain,
    mirror,
    portable_options,
    run_job,
)
from pyspark_pylogtable.columns import default_columns, spark_schema
from pyspark_pylogtable.source import LogTableSource
from pyspark_pylogtable.table.append import append_sealed
from pyspark_pylogtable.table.jobs import copied_where_it_pays, where_it_pays
from pyspark_pylogtable.table.local_rows import df_of_rows
from pyspark_pylogtable.table.native import NativeUnavailable, native_df
from pyspark_pylogtable.table.parts_df import df_of_parts

Version = int | datetime | None
ViewName = Literal["records", "latest"]


class LogTable:
    """One topic. Its DataFrames show it as it was when they were created. If there is little to do,
    its jobs run in the driver, because a Spark job takes longer to start.

    >>> table = LogTable.for_path(spark, "s3://bucket/logs/orders")
    >>> table.to_df(columns=["offset", "amount"]).where("offset < 10").show()
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        topic: Topic,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.topic = topic
        self._spark = spark
        self._path = path
        self._storage_options = dict(storage_options or {})
        self._views: dict[str, Callable[[], None]] = {}

    @classmethod
    def for_path(
        cls,
        spark: SparkSession,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
    ) -> LogTable:
        """The topic at this path or URL. Spark's processes must be able to open it too."""
        _refuse_memory(path)
        topic = pylogtable.open_topic(path, storage_options=storage_options)
        return cls(spark, os.fspath(path), topic, storage_options)

    def __repr__(self) -> str:
        return f"<LogTable {self.topic.name!r} at {self.topic.url}>"

    def _repr_html_(self) -> str:
        return self.topic.describe()._repr_html_()

    def to_df(
        self,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
        version: Version = None,
        partitions: int | Sequence[int] | None = None,
        *,
        view: ViewName = "records",
        keys: Any = None,
    ) -> DataFrame:
        """The records, read by Spark's own Parquet reader, with its column pruning and filters.

        The arguments are those of `Topic.read`, the columns those of `format("pylogtable")`. If
        Spark itself cannot open the store, a warning says why and Python reads the files.

        `view="latest"` has the newest record of each key, tombstones included: what a compaction of
        the whole topic would leave. It takes no range, because the newest record of a key in a
        range may not be its newest. It is read by Python, because filters must not run before the
        newest records are found.

        With `keys`, a list as for `Topic.latest` or a DataFrame with the key columns, only the
        records of these are looked up, now, in the files that may have them: all records of these
        keys in the range, or the newest of each. The driver does that, or tasks of Spark if there
        are many files to look at.
        """
        pinned = self.topic.at(version)
        names = columns if columns is not None else _shown(pinned)
        Scan(pinned).reader(names)
        if view == "latest":
            _refuse_range(start=start, end=end, partitions=partitions)
            if keys is not None:
                found = pinned.latest(_arrow_keys(keys), names)
                return df_of_rows(self._spark, found, spark_schema(found.schema))
            return self._latest_df(pinned, names)
        if view != "records":
            raise InvalidRequestError(f"view must be 'records' or 'latest', not {view!r}")
        ranges = pinned.ranges(partitions, start, end)
        if keys is not None:
            return self._keyed_df(pinned, ranges, names, _arrow_keys(keys))
        try:
            return native_df(self._spark, pinned, Scan(pinned).tasks(ranges), names, url=self._path)
        except NativeUnavailable as error:
            _refuse_if_gone(pinned, ranges, names, str(error))
            warnings.warn(
                f"Spark cannot read the files of {pinned.url} itself, so Python reads them, "
                f"without column pruning and filters: {error}",
                stacklevel=2,
            )
            return self._python_df(pinned, ranges, names)

    def create_view(
        self,
        name: str,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
        version: Version = None,
        partitions: int | Sequence[int] | None = None,
        *,
        view: ViewName = "records",
        keys: Any = None,
    ) -> None:
        """Make `to_df(...)` a temporary view for SQL. The view shows the topic as it is now. Call
        `refresh_view` to see later appends."""

        def create() -> None:
            df = self.to_df(start, end, columns, version, partitions, view=view, keys=keys)
            df.createOrReplaceTempView(name)

        create()
        self._views[name] = create

    def refresh_view(self, name: str) -> None:
        """Let a view that `create_view` of this object made show the topic as it is now. Its range
        and columns stay. DataFrames that were made from it before do not change."""
        if name not in self._views:
            known = ", ".join(map(repr, self._views)) or "none"
            raise InvalidRequestError(
                f"this LogTable has created no view {name!r} (it has created: {known}); use "
                f"create_view({name!r})"
            )
        self._views[name]()

    def append(
        self,
        df: DataFrame,
        *,
        txn: tuple[str, int] | None = None,
        expected_last: ExpectedLast = NOT_GIVEN,
        note: Any = None,
        merge_schema: bool = False,
        keep_offsets: bool = False,
    ) -> AppendResult:
        """Append the rows of a DataFrame in one commit.

        Use it for large appends. Unlike `df.write.format("pylogtable")` it joins what the tasks
        wrote before it commits: few, large, sealed segments, where filters on `offset` reach
        Parquet. Nothing is shuffled, and the order of rows is kept. With a `txn` a repeat appends
        nothing; `expected_last` and `note` are those of `Topic.append`. With `merge_schema`,
        columns that the topic does not have are added to it first.

        With `keep_offsets`, rows bring their `partition` and `offset`, as in `Topic.append`. Inside
        each task they rise in each partition, as those of Spark's Kafka source do, and no two tasks
        have ranges of offsets that overlap. After a shuffle, call
        `df.repartition("partition").sortWithinPartitions("partition", "offset")` first.
        """
        return append_sealed(
            self.topic,
            df,
            txn,
            expected_last,
            note=note,
            merge_schema=merge_schema,
            keep_offsets=keep_offsets,
        )

    def compact(self, *, force: bool = False) -> RewriteReport:
        """`Topic.compact` as a Spark job: one partition is one task."""
        return run_job(self.topic, Compaction(force=force), where_it_pays(self._spark))

    def merge(self) -> RewriteReport:
        """`Topic.merge` as a Spark job: the segments that are joined into one are one task."""
        return run_job(self.topic, Merge(), where_it_pays(self._spark))

    def erase(self, keys: Any = None, where: Any = None, *, dry_run: bool = False) -> EraseReport:
        """`Topic.erase` as a Spark job: some segments to search are one task. `keys` may also be a
        DataFrame with the key columns. `where` is a pyarrow expression, as for `Topic.erase`.

        >>> table.erase(keys=spark.table("forget_me").select("user_id"))
        """
        job = Erasure(_arrow_keys(keys), where, dry_run)
        return run_job(self.topic, job, where_it_pays(self._spark))

    def apply_retention(
        self,
        keep_from: Mapping[int, int] | None = None,
        groups: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
    ) -> RetentionReport:
        """`Topic.apply_retention`. It touches no data, so it starts no Spark job."""
        return self.topic.apply_retention(keep_from, groups, dry_run=dry_run)

    def vacuum(
        self, *, dry_run: bool = True, retention_ms: int | None = None, force: bool = False
    ) -> VacuumReport:
        """`Topic.vacuum`, from the driver."""
        return self.topic.vacuum(dry_run=dry_run, retention_ms=retention_ms, force=force)

    def publish(self, formats: Sequence[str] | None = None) -> PublishReport:
        """`Topic.publish`: other engines see the topic as a Delta or an Iceberg table. Segments
        that have to be sealed first are sealed by a Spark job."""
        return run_job(self.topic, Publication(formats), where_it_pays(self._spark))

    def unpublish(self, formats: Sequence[str] | None = None) -> int:
        """`Topic.unpublish`, from the driver."""
        return self.topic.unpublish(formats)

    def maintain(
        self,
        *,
        vacuum: bool = True,
        protect_groups: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> MaintainReport:
        """`Topic.maintain` with compaction, merge and publication as Spark jobs. Records that one
        of `protect_groups` has not read do not expire. With `dry_run`, nothing is changed, and the
        report says what would be done."""
        run_units = where_it_pays(self._spark)
        return maintain(
            self.topic, run_units, vacuum=vacuum, protect_groups=protect_groups, dry_run=dry_run
        )

    def mirror(
        self,
        to: str | os.PathLike[str],
        *,
        to_storage_options: Mapping[str, Any] | None = None,
        name: str | None = None,
        retention: str | None = None,
        config: Mapping[str, object] | None = None,
        groups: bool = False,
        allow_gaps: bool = False,
    ) -> MirrorReport:
        """`Topic.mirror` to the store at this path or URL, with many files copied by a Spark job.
        Call it again to bring what is new. Spark's processes must be able to open both stores.
        Without `to_storage_options`, the store is opened with those of this topic.

        >>> table.mirror("s3://other-bucket/logs", groups=True)
        """
        _refuse_memory(to)
        options = self._storage_options if to_storage_options is None else to_storage_options
        return mirror(
            self.topic,
            pylogtable.open(to, storage_options=options),
            copied_where_it_pays(self._spark, self.topic),
            name=name,
            retention=retention,
            config=config,
            groups=groups,
            allow_gaps=allow_gaps,
        )

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits, newest first."""
        return self._frame(self.topic.history(limit))

    def segments(self, version: Version = None) -> DataFrame:
        """Every live segment, in partition and offset order."""
        return self._frame(self.topic.segments(version))

    def partitions(self, version: Version = None) -> DataFrame:
        """Each partition with its offsets, and the totals of its segments."""
        return self._frame(self.topic.at(version).partitions())

    def offsets(self, version: Version = None) -> DataFrame:
        """The start offset and the end offset of each partition."""
        table = self.topic.at(version).partitions().select(["partition", "log_start", "end"])
        return self._frame(table.rename_columns(["partition", "start_offset", "end_offset"]))

    def groups(self) -> DataFrame:
        """The consumer groups, with position, lag and owner of each partition."""
        return self._frame(self.topic.describe_groups().to_table())

    def describe(self) -> DataFrame:
        """The topic in one row."""
        return self._frame(self.topic.describe().to_table())

    def _frame(self, table: pa.Table) -> DataFrame:
        return df_of_rows(self._spark, table)

    def _python_df(
        self, view: View, ranges: Mapping[int, tuple[int, int]], columns: Sequence[str]
    ) -> DataFrame:
        store, _ = split_topic_url(self._address(view))
        starts = {str(number): start for number, (start, _) in ranges.items()}
        ends = {str(number): end for number, (_, end) in ranges.items()}
        return (
            self._python_reader(view, columns)
            .option("assign", json.dumps({view.name: sorted(ranges)}))
            .option("startingOffsets", json.dumps({view.name: starts}))
            .option("endingOffsets", json.dumps({view.name: ends}))
            .load(store)
        )

    def _keyed_df(
        self,
        view: View,
        ranges: Mapping[int, tuple[int, int]],
        columns: Sequence[str],
        keys: Any,
    ) -> DataFrame:
        scan = Scan(view, keys)
        parts = scan.parts(ranges)
        few = sum(part.totals.segments for part in parts) <= scan.limits.driver_segments
        return df_of_parts(self._spark, scan, parts, columns, in_driver=few)

    def _latest_df(self, view: View, columns: Sequence[str]) -> DataFrame:
        if not view.describe().key:
            raise InvalidRequestError(
                f"topic {view.name!r} has no key columns, so there is no newest record of a key"
            )
        reader = self._python_reader(view, columns).option("view", "latest")
        return reader.load(self._address(view))

    def _python_reader(self, view: View, columns: Sequence[str]) -> DataFrameReader:
        return (
            self._spark.read.format(LogTableSource.name())
            .option("storageOptions", json.dumps(portable_options(self._storage_options)))
            .option("versionAsOf", view.version)
            .option("columns", json.dumps(list(columns)))
        )

    def _address(self, view: View) -> str:
        """Absolute for a local path, because Spark may have another working directory. Otherwise
        the address that the user gave: only it has the account of an Azure store."""
        return view.url if view.url.startswith("file:") else self._path


def _refuse_memory(path: str | os.PathLike[str]) -> None:
    if not isinstance(path, str | os.PathLike):
        raise InvalidRequestError(f"an address must be a path or a URL, not {path!r}")
    if os.fspath(path).lower().startswith("memory:"):
        raise InvalidRequestError(
            f"{os.fspath(path)} is in the memory of this process, where Spark's processes "
            "cannot see it. Use a local path or an object store"
        )


def _arrow_keys(keys: Any) -> Any:
    return keys.distinct().toArrow() if isinstance(keys, DataFrame) else keys


def _shown(view: View) -> list[str]:
    return default_columns(view.schema, include_headers=False, with_topic=False)


def _refuse_if_gone(
    view: View, ranges: Mapping[int, tuple[int, int]], names: Sequence[str], why: str
) -> None:
    """Raise the library's error if Spark found no file, because a vacuum removed it: then Python
    cannot read it either."""
    scan = Scan(view)
    reader = scan.reader(names)
    for task in scan.tasks(ranges):
        if task.segment.path in why:
            next(iter(reader.read(ReadPart((task,)))), None)


def _refuse_range(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidRequestError(
                f"{name}={value!r} is of no use with view='latest', the newest record of each key "
                "in the whole topic; filter the DataFrame instead"
            )
