"""`Topic`: the methods that users call. Each delegates to the other folders in a few lines."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from pylogtable.append.appender import Appender
from pylogtable.arguments import check_flags, check_number, check_text, names_in, new_names
from pylogtable.check.comparison import ComparisonReport, compare
from pylogtable.check.report import VerifyReport
from pylogtable.check.verify import verify
from pylogtable.errors import InvalidRequestError, LogTableError, TopicNotFoundError
from pylogtable.format.config import compacts, known_formats
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, CopyOf
from pylogtable.format.paths import commit_path, seen_in
from pylogtable.format.schema import from_arrow, table_schema
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.delete_records_plan import plan_delete_records
from pylogtable.log.topic_log import open_log
from pylogtable.operation import operations
from pylogtable.publish.checks import check_published_tables
from pylogtable.publish.status import published_status
from pylogtable.publish.tables import TopicTables
from pylogtable.read.description import TopicDescription, describe
from pylogtable.read.null_keys import null_keys_text
from pylogtable.read.position import Bound
from pylogtable.read.versions import snapshot_at, version_at
from pylogtable.read.view import View
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.waiting import wait_for_any
from pylogtable.times import Moment
from pylogtable.topic_groups import TopicGroups
from pylogtable.topic_jobs import TopicJobs
from pylogtable.topic_writes import TopicWrites
from pylogtable.topics.column_types import GivenType, column_types, make_fields
from pylogtable.topics.columns_plan import ColumnChanges
from pylogtable.topics.plan import plan_alter, plan_guard


@operations
class Topic(TopicWrites, TopicGroups, TopicJobs):
    """One topic. `Store.topic`, `Store.create_topic` and `pylogtable.open_topic` make one.

    >>> topic.append(pa.table({"key": [b"k"], "value": [b"v"]}))
    >>> topic.read(partition=0, start=0).read_all()

    Each call sees the newest commit. Methods with a `version` argument can see an older one: give
    its number, or a datetime for the newest version at that time. Use `at` for several reads that
    must see the same version.
    """

    def __init__(self, name: str, store: ObjectStore, runtime: Runtime) -> None:
        self.name = name
        self._store = store
        self._log = open_log(name, store, runtime)
        self._appender = Appender(name, self._log)
        self._tables = TopicTables(name, store, runtime)

    def __reduce__(self) -> tuple[Any, tuple[str, ObjectStore, Runtime, str]]:
        return _reopen, (self.name, self._store, self._log.runtime, self._log.known.topic_id)

    def __repr__(self) -> str:
        known = self._log.known
        return f"<Topic {self.name!r} at {self.url}, {len(known.partitions)} partition(s)>"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()

    @property
    def url(self) -> str:
        """Where the topic is, for `pylogtable.open_topic`."""
        return self._store.url

    @property
    def topic_id(self) -> str:
        """The topic's id. A topic that is deleted and created again has a different id."""
        return self._log.known.topic_id

    @property
    def version(self) -> int:
        """The newest version. Every commit adds one."""
        return self._log.latest().version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of `read`: the topic's columns and the log's own."""
        return table_schema(self._log.latest().info.fields)

    def at(self, version: int | datetime | None = None) -> View:
        """The topic at one version, the newest by default. Use it for several reads that must see
        the same data."""
        snapshot = snapshot_at(self.name, self._log, version)
        return View(self.name, self._store, snapshot, self._log.manifest, self._log.runtime.clock)

    def wait_for(self, version: int, timeout: float) -> View:
        """Wait until the topic has this version, at most `timeout` seconds, and return the newest.
        On a local disk it returns as soon as there is a commit; elsewhere the store is asked once,
        after the timeout. For programs that follow a topic without a group; a consumer waits by
        itself."""
        if self._log.known.version < version:
            place = self._store, commit_path(version)
            wait_for_any([place], timeout, self._log.runtime)
        return self.at()

    def read(
        self,
        partition: int | Sequence[int] | None = None,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
        version: int | datetime | None = None,
        keys: Any = None,
    ) -> pa.RecordBatchReader:
        """Stream records in offset order, one partition after the other.

        `start` (included) and `end` (excluded) are each a position, or a dict of positions by
        partition, with "*" for the other partitions. A position is "earliest", "latest", an offset,
        "-5" (the last five offsets), a time (a datetime, "2024-05-01T12:00:00Z" or "@" and
        milliseconds), or how long ago (a timedelta, "12h" or "PT1H30M"). A time means the first
        record at or after it. An offset outside the log raises `OffsetOutOfRangeError`. If
        compaction or erase removed the record at an offset, the read starts at the next record.

        With `keys`, in the forms of `latest`, only the records of these keys are read: all of them
        in the range, tombstones included. A key may have records in several partitions, so all
        are searched unless `partition` names some. What the manifest, statistics or Bloom filters
        exclude is not read.

        >>> topic.read(partition=0, start=100, columns=["offset", "value"]).read_all()
        >>> topic.read(keys=[b"user-1"], start="24h").read_all()
        """
        return self.at(version).read(partition, start, end, columns, keys)

    def latest(
        self,
        keys: Any = None,
        columns: Sequence[str] | None = None,
        version: int | datetime | None = None,
    ) -> pa.Table:
        """The newest record of each key, for all keys or for `keys`. Use it to read a topic as a
        table. Tombstones are returned like other records.

        >>> topic.latest(keys=[b"user-1", b"user-2"])

        Inside a partition, the record with the greatest offset is the newest. A key may have
        records in several partitions if the partition count grew or writers chose partitions. Then
        the latest timestamp decides.
        """
        return self.at(version).latest(keys, columns)

    def start_offsets(self) -> dict[int, int]:
        """The first readable offset of each partition."""
        return self._log.latest().start_offsets

    def end_offsets(self) -> dict[int, int]:
        """The next offset of each partition to be written, one after the last record."""
        return self._log.latest().end_offsets

    def offsets_for_time(
        self, when: Moment, version: int | datetime | None = None
    ) -> dict[int, int | None]:
        """The first offset of each partition whose timestamp is at or after `when`, or None. `when`
        is a datetime with a time zone, or milliseconds since the epoch."""
        return self.at(version).offsets_for_time(when)

    def count(self, version: int | datetime | None = None) -> int:
        """The number of records that can be read. It reads only the manifest, unless
        `delete_records` cut a compacted segment."""
        return self.at(version).count()

    def describe(self) -> TopicDescription:
        """Schema, settings, the size of each partition, how many records are in commits, and how
        far the tables of `publish.formats` are behind."""
        view = self.at()
        published = published_status(self._maintained, view.snapshot)
        return replace(view.describe(), published=published)

    def segments(self, version: int | datetime | None = None) -> pa.Table:
        """All live segments, in partition and offset order. Use it to see which file has which
        offsets."""
        return self.at(version).segments()

    def files(self, version: int | datetime | None = None) -> pa.Table:
        """The files of a version, with what another Parquet reader needs to read them rightly. A
        read of the bare directory is wrong: it takes replaced files for live ones, and does not
        know shifts and log starts.

        For each row, read the file at `path`, add `shift` to its column `offset`, and keep the
        records with offsets in `[start_offset, end_offset)`. `partition` is not a column of the
        file. `records`, `size_bytes` and the timestamps are those of the whole file.
        `View.stored_names` has the names that renamed columns have in files.

        Small appends are in their commits and in no file (`inline.max.bytes`). While there are such
        records, this raises; `merge` writes files for them.

        >>> topic.files().select(["path", "partition", "shift", "start_offset", "end_offset"])
        """
        return self.at(version).files()

    def history(self, limit: int | None = None) -> pa.Table:
        """The commits, newest first, at most `limit`. Use it to see who changed what. A vacuum
        keeps commits that have live records, so the versions of the oldest may not be readable."""
        return self.at().history(limit)

    def find_commit(self, commit_id: str, version: int | None = None) -> int | None:
        """The version of a commit, or None if it is not in the log. Use it after a
        `CommitUnknownError`, with the commit id and the version of the error. Then None means that
        the commit will never be in the log. While that is undecided, the error is raised again."""
        check_text("commit_id", commit_id)
        if seen_in(commit_id) is not None:
            return self._log.manifest.commits.find_offer(commit_id, self._log.latest())
        if version is not None:
            check_number("version", version)
            return self._log.manifest.commits.find_at(commit_id, version, self._log.latest)
        return self._log.manifest.commits.find(commit_id, self._log.latest())

    def version_at(self, when: Moment) -> int:
        """The newest version that was committed at or before `when`, for time travel."""
        return version_at(self.name, self._log, when)

    def verify(self, *, data: bool = False) -> VerifyReport:
        """Check the topic in the store against the specification. The report is true if nothing is
        wrong. If the store fails, the report says what could not be looked at: that is no damage.

        It checks the index, the tiling and totals of partitions, that commits and index agree, and
        that each file exists with its size. With `data=True` it also reads all records, and checks
        their columns, offsets, timestamps and tombstones.
        """
        return verify(self._store, self.topic_id, data=data, more=(check_published_tables,))

    def compare(
        self, other: Topic, *, data: bool = True, version: int | datetime | None = None
    ) -> ComparisonReport:
        """Compare the content of this topic with another one, such as its copy in another store.
        The report is true if both hold the same records at the same offsets, with the same columns.
        It does not matter how they are stored: in which commits, segments and files.

        >>> report = topic.compare(pylogtable.open_topic("s3://backup/logs/orders"))
        >>> report.equal, report.same_so_far, report.lag
        (False, True, 120)

        A copy that lags, or that has another log start, is not equal. `report.same_so_far` says
        whether the offsets that both have hold the same. `report.differences` names each difference
        by partition and offset. With `data=False` only offsets and numbers of records are compared,
        and no data is read. With `version`, it is this version of this topic that is compared, such
        as the `source_version` that a mirror reports: jobs may have removed records since.
        """
        check_flags(data=data)
        if not isinstance(other, Topic):
            raise InvalidRequestError(
                f"{other!r} is not a topic: give one of Store.topic or pylogtable.open_topic"
            )
        # The copy's version first: what it got meanwhile must not look as if it were ahead.
        copy = other.at()
        return compare(self.at(version), copy, self._log.runtime.monotonic, data=data)

    def alter(
        self,
        partitions: int | None = None,
        config: Mapping[str, object | None] | None = None,
        add_columns: pa.Schema | Mapping[str, GivenType] | None = None,
        widen_columns: Mapping[str, GivenType] | None = None,
        rename_columns: Mapping[str, str] | None = None,
        drop_columns: Sequence[str] | None = None,
    ) -> TopicDescription:
        """Change the topic: add partitions, change settings (None restores the default), add
        nullable columns, widen types, rename columns `{"old": "new"}`, or drop columns.

        >>> topic.alter(config={"retention.ms": 86_400_000}, add_columns={"country": "string"})

        A type is an Arrow type, or a name as in Spark SQL: "bigint", "decimal(10,2)",
        "array<string>", "struct<a:int,b:double>".

        Columns are dropped, renamed and widened by the names they have before the call. Then
        columns are added, so a call may drop a column and add a new one with its name. No file is
        rewritten, and older versions of the topic keep their columns. Only value columns can be
        renamed and dropped: not key columns, not `headers`. A column of a compacted topic can be
        dropped only if another value column is not nullable, because records would become
        tombstones. Versions of pylogtable that cannot rename refuse the topic afterwards.

        Records stay in their partitions when partitions are added, so newer records of a key may go
        to another partition than its older ones.
        """
        return self._alter_as(
            None,
            partitions=partitions,
            config=config,
            add_columns=add_columns,
            widen_columns=widen_columns,
            rename_columns=rename_columns,
            drop_columns=drop_columns,
        )

    def _alter_as(
        self,
        app_id: str | None,
        *,
        partitions: int | None = None,
        config: Mapping[str, object | None] | None = None,
        add_columns: pa.Schema | Mapping[str, GivenType] | None = None,
        widen_columns: Mapping[str, GivenType] | None = None,
        rename_columns: Mapping[str, str] | None = None,
        drop_columns: Sequence[str] | None = None,
    ) -> TopicDescription:
        """`alter`, also as the import with this app id, which brings partitions and columns of the
        source of a guarded copy [GUARD-2]."""
        given = column_types("widen_columns", {} if widen_columns is None else widen_columns)
        columns = ColumnChanges(
            drop=() if drop_columns is None else names_in("drop_columns", drop_columns),
            rename={} if rename_columns is None else new_names("rename_columns", rename_columns),
            widen={name: from_arrow(arrow) for name, arrow in given.items()},
            add=() if add_columns is None else make_fields(add_columns),
        )

        def plan(snapshot: Snapshot) -> Change:
            settings = {} if config is None else config
            return plan_alter(
                snapshot, partitions=partitions, config=settings, columns=columns, app_id=app_id
            )

        before = self._log.latest()
        self._warn_of_null_keys(before, plan(before))
        self._warn_of_type_widening(before, columns.widen)
        altered, _ = self._log.change(lambda state: plan(state.snapshot), refresh=False)
        return describe(self.name, self.url, altered)

    def _guard(self, source: CopyOf, *, partitions: int | None = None) -> None:
        """Make the topic a guarded copy of this source, as `source.app_id`, and add partitions."""
        self._log.change(
            lambda state: plan_guard(state.snapshot, source, partitions=partitions), refresh=False
        )

    def _warn_of_null_keys(self, snapshot: Snapshot, change: Change) -> None:
        """Warn if the topic becomes compacted and has records that a compaction removes for that
        [CLEAN-3]. This comes before the commit, so that an error made of it changes nothing."""
        assert change.topic is not None
        if compacts(snapshot.info.config) or not compacts(change.topic.config):
            return
        many = None
        with suppress(LogTableError):  # a file that cannot be read does not forbid the change
            many = null_keys_text(self._store, self._log.manifest.state(snapshot))
        if many is not None:
            warnings.warn(
                f"topic {self.name!r} has {many} record(s) without a key. It becomes compacted, "
                "and the next compaction removes them. To keep them, set cleanup.policy back to "
                "'delete', and copy them to another topic first",
                stacklevel=5,
            )

    def _warn_of_type_widening(self, snapshot: Snapshot, widened: Collection[str]) -> None:
        """Warn if the topic has a Delta table, because fewer engines read one whose columns were
        widened. This comes before the commit too."""
        if not widened:
            return
        shown = self._maintained.tables.showing_before(snapshot.topic_id, snapshot.version + 1)
        if "delta" in {*known_formats(snapshot.info.config), *shown}:
            warnings.warn(
                f"topic {self.name!r} is published as a Delta table, and {', '.join(widened)} "
                "becomes wider. From the next publication on, the table needs Delta's type "
                "widening: Spark with Delta 4 reads it, but delta-rs 1.6 and Polars 2.1 refuse it. "
                "If such engines read it, add a column of the wider type instead",
                stacklevel=5,
            )

    def delete_records(self, offsets: Mapping[int, int | None]) -> dict[int, int]:
        """Remove all records below these offsets. None means the end: all records. Returns the new
        start offset of each of these partitions. `vacuum` frees the space later.

        >>> topic.delete_records({0: 100, 1: None})
        """

        def plan(state: LogState) -> Change | None:
            change = plan_delete_records(state, offsets)
            return change if change.log_starts else None

        snapshot, _ = self._log.change(plan)
        return {number: snapshot.partitions[number].log_start for number in sorted(offsets)}


def _reopen(name: str, store: ObjectStore, runtime: Runtime, topic_id: str) -> Topic:
    """The topic that was pickled. One that was created in its place is another topic [META-5]."""
    topic = Topic(name, store, runtime)
    if topic._log.known.topic_id != topic_id:
        raise TopicNotFoundError(
            f"the topic at {store.url} has been deleted, and another one was created in its place; "
            "open the topic again"
        )
    return topic
