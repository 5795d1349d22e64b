"""A topic as its users see it. Every method is a few lines over the rooms below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pyarrow as pa

from pylogtable.arguments import check_number, check_text
from pylogtable.check.verify import verify
from pylogtable.errors import TopicNotFoundError
from pylogtable.format.model import Change
from pylogtable.format.schema import column_types, from_arrow, make_fields, table_schema
from pylogtable.format.snapshot import Snapshot
from pylogtable.format.times import Moment
from pylogtable.groups.consumer import Consumer, ConsumerOptions, open_consumer
from pylogtable.groups.group import Group, describe_groups, expire_groups
from pylogtable.log.group_objects import load_groups
from pylogtable.log.head import Head
from pylogtable.log.manifest import Manifest
from pylogtable.maintenance.compaction import Compaction
from pylogtable.maintenance.job import Job, MaintainedTopic, MaintainOptions
from pylogtable.maintenance.maintain import maintain
from pylogtable.maintenance.merge import Merge
from pylogtable.maintenance.retention import Retention
from pylogtable.maintenance.units import in_threads
from pylogtable.maintenance.vacuum import Vacuum
from pylogtable.plan.topics import plan_alter, plan_delete_records
from pylogtable.read.versions import snapshot_at, version_at
from pylogtable.read.view import Bound, View
from pylogtable.results.groups import GroupDescription
from pylogtable.results.operations import (
    AppendResult,
    MaintainReport,
    RetentionReport,
    RewriteReport,
    TopicDescription,
    VacuumReport,
    VerifyReport,
    describe,
)
from pylogtable.runtime import Runtime
from pylogtable.segments.newest import BUDGET_BYTES
from pylogtable.storage.base import ObjectStore
from pylogtable.write.append import Appender
from pylogtable.write.producer import Producer

Report = TypeVar("Report")


class Topic:
    """One topic. Each call sees the newest commit, unless it is given a `version`: a number, or a
    time, which means the newest version of then."""

    def __init__(self, name: str, store: ObjectStore, runtime: Runtime) -> None:
        self.name = name
        self._store = store
        self._manifest = Manifest(store)
        snapshot = self._manifest.load()
        if snapshot is None or snapshot.topic is None:
            raise TopicNotFoundError(
                f"there is no topic at {store.url}; create it with "
                f"pylogtable.open(<store>).create_topic({name!r}, partitions=...)"
            )
        self._head = Head(self._manifest, runtime, snapshot, store.url)
        self._appender = Appender(store, self._head)

    def __reduce__(self) -> tuple[type[Topic], tuple[str, ObjectStore, Runtime]]:
        return Topic, (self.name, self._store, self._head.runtime)

    def __repr__(self) -> str:
        known = self._head.known
        return f"<Topic {self.name!r} at {self.url}, {len(known.partitions)} partition(s)>"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def topic_id(self) -> str:
        return self._head.known.topic_id

    @property
    def version(self) -> int:
        """The newest version."""
        return self._head.latest().version

    @property
    def schema(self) -> pa.Schema:
        """The columns of a read."""
        return table_schema(self._head.latest().info.fields)

    def at(self, version: int | datetime | None = None) -> View:
        """The topic pinned to a version, the newest by default: what it answers never changes."""
        snapshot = snapshot_at(self.name, self._head, version)
        return View(self.name, self._store, snapshot, self._manifest)

    def append(self, data: Any, *, txn: tuple[str, int] | None = None) -> AppendResult:
        """Append rows: an Arrow table, batch or reader, an iterable of batches, or anything that
        exports an Arrow stream. All of it becomes visible in one commit, or nothing does.

        With `txn=(app_id, version)` a repeat appends nothing and returns the offsets that were
        given the first time.
        """
        return self._appender.append(data, txn)

    def last_txn(self, app_id: str) -> int | None:
        """The version of the last txn of this app id, or None if there was none."""
        mark = self._head.latest().txns.get(app_id)
        return None if mark is None else mark.txn_version

    def producer(
        self, *, linger_ms: float = 50, batch_bytes: int = 16 << 20, app_id: str | None = None
    ) -> Producer:
        """For records that come one by one, from any number of threads: what is sent within
        `linger_ms`, or `batch_bytes` of it, is one append. With an `app_id` the producer knows
        after a restart how many of its records are in the log."""
        return Producer(self.name, self._appender, self._head, linger_ms, batch_bytes, app_id)

    def read(
        self,
        partition: int | Sequence[int] | None = None,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
        version: int | datetime | None = None,
    ) -> pa.RecordBatchReader:
        """Stream records in offset order, one partition after the other.

        `start` (included) and `end` (excluded) are an offset, a dict of offsets by partition, a
        time (the first record at or after it), "earliest" or "latest". An offset outside of the
        log is an `OffsetOutOfRangeError`; one that compaction removed means the next there is.
        """
        return self.at(version).read(partition, start, end, columns)

    def latest(
        self,
        keys: Any = None,
        columns: Sequence[str] | None = None,
        version: int | datetime | None = None,
    ) -> pa.Table:
        """The newest record of each key, of all keys or of those given; a tombstone is a record.

        Inside a partition the greatest offset is the newest. Where a key has records in several
        (the partition count grew, or partitions were given explicitly) the latest timestamp is.
        """
        return self.at(version).latest(keys, columns)

    def start_offsets(self) -> dict[int, int]:
        """The first offset of each partition that can be read."""
        return self._head.latest().start_offsets

    def end_offsets(self) -> dict[int, int]:
        """The next offset of each partition to be written."""
        return self._head.latest().end_offsets

    def offsets_for_time(
        self, when: Moment, version: int | datetime | None = None
    ) -> dict[int, int | None]:
        """For each partition the first offset whose timestamp is at or after `when` (an aware
        datetime, or milliseconds since the epoch); None where there is none."""
        return self.at(version).offsets_for_time(when)

    def count(self, version: int | datetime | None = None) -> int:
        """How many records can be read; from the manifest alone, unless a log start cuts a
        segment with holes."""
        return self.at(version).count()

    def describe(self) -> TopicDescription:
        return self.at().describe()

    def segments(self, version: int | datetime | None = None) -> pa.Table:
        """Every live segment, in partition and offset order."""
        return self.at(version).segments()

    def history(self, limit: int | None = None) -> pa.Table:
        """The commits, newest first."""
        return self.at().history(limit)

    def find_commit(self, commit_id: str, version: int | None = None) -> int | None:
        """The version of a commit, or None if it is not in the log. Given the version that a
        `CommitUnknownError` names, None means that it never will be, and the error is raised again
        while it may."""
        check_text("commit_id", commit_id)
        if version is not None:
            check_number("version", version)
            return self._manifest.find_commit_at(commit_id, version)
        return self._manifest.find_commit(commit_id, self._head.latest())

    def version_at(self, when: Moment) -> int:
        """The newest version that was committed at or before `when`."""
        return version_at(self.name, self._head, when)

    def verify(self, *, data: bool = False) -> VerifyReport:
        """Check the topic as it lies in the store against the specification: names, the index,
        tiling and totals, that the commits give the same state, that each file is there with its
        size; with `data` also columns, offsets, times and tombstones of every record."""
        return verify(self._store, data=data)

    def alter(
        self,
        partitions: int | None = None,
        config: Mapping[str, object | None] | None = None,
        add_columns: pa.Schema | Mapping[str, pa.DataType] | None = None,
        widen_columns: Mapping[str, pa.DataType] | None = None,
    ) -> TopicDescription:
        """More partitions (old records stay where they are, so keys may change theirs), other
        settings (None goes back to the default), new nullable columns, wider types."""
        added = make_fields(add_columns) if add_columns is not None else ()
        given = column_types("widen_columns", {} if widen_columns is None else widen_columns)
        wider = {name: from_arrow(arrow) for name, arrow in given.items()}
        altered, _ = self._head.change(
            lambda snapshot: plan_alter(
                snapshot,
                partitions=partitions,
                config={} if config is None else config,
                add_fields=added,
                widen=wider,
            )
        )
        return describe(self.name, self.url, altered)

    def delete_records(self, offsets: Mapping[int, int | None]) -> dict[int, int]:
        """Make everything below these offsets unreadable, None meaning the end; gives the new
        start offset of each partition named. The space is freed by vacuum."""

        def plan(snapshot: Snapshot) -> Change | None:
            change = plan_delete_records(snapshot, self._manifest.leaf, offsets)
            return change if change.log_starts else None

        snapshot, _ = self._head.change(plan)
        return {number: snapshot.partitions[number].log_start for number in sorted(offsets)}

    def compact(
        self, *, force: bool = False, threads: int = 2, budget_bytes: int = BUDGET_BYTES
    ) -> RewriteReport:
        """Keep the newest record of each key, at its offset, and remove older ones.

        Only partitions that are dirty enough, or dirty for too long, are compacted, as the topic's
        settings say. With `force`, all partitions with something dirty are. `budget_bytes` bounds
        the memory for the keys of a partition; `threads` partitions are compacted at a time.
        """
        check_number("budget_bytes", budget_bytes, least=1)
        return self._run(Compaction(force=force, budget_bytes=budget_bytes), threads)

    def merge(self, *, threads: int = 2) -> RewriteReport:
        """Join small segments into larger ones, seal shifted ones, and drop records below the log
        start from files that it cuts. Offsets stay as they are."""
        return self._run(Merge(), threads)

    def apply_retention(
        self, keep_from: Mapping[int, int] | None = None, groups: Sequence[str] | None = None
    ) -> RetentionReport:
        """Remove whole segments from the beginning of each partition, as `retention.ms` and
        `retention.bytes` say, if `cleanup.policy` contains `delete`.

        Nothing goes at or after the offsets of `keep_from`, and nothing that one of these consumer
        groups has not read. A group without a position in a partition has read nothing of it.
        """
        return self._run(Retention(keep_from, groups))

    def vacuum(self, *, dry_run: bool = True, retention_ms: int | None = None) -> VacuumReport:
        """Remove files that no kept version needs: those of failed appends, of segments that were
        replaced or expired, and the commits and index of versions that are not kept.

        Versions of the last 7 days are kept, or of the last `retention_ms`. With less than 7 days,
        replaced files go earlier, and reads that still need them fail. A dry run, the default,
        removes nothing.
        """
        return self._run(Vacuum(dry_run=dry_run, retention_ms=retention_ms))

    def maintain(
        self,
        *,
        vacuum: bool = True,
        threads: int = 2,
        protect_groups: Sequence[str] | None = None,
    ) -> MaintainReport:
        """Run all jobs that the topic's settings ask for: retention, compaction, merge, vacuum. It
        is safe at any time, also twice, and from two places at once. Nothing expires that one of
        `protect_groups` has not read."""
        return maintain(
            self._maintained, in_threads(threads), MaintainOptions(vacuum, protect_groups)
        )

    def group(self, name: str) -> Group:
        """A consumer group of this topic. Opening it writes nothing."""
        return Group(name, self.name, self._store, self._head)

    def consumer(
        self,
        group: str,
        member: tuple[int, int] | str | None = None,
        *,
        auto_offset_reset: str = "earliest",
        columns: Sequence[str] | None = None,
        max_records: int = 500,
        lease_ms: int = 30_000,
        follow: bool = False,
    ) -> Consumer:
        """Read as a consumer group: alone, as static `member=(i, n)` with every n-th partition, or
        as a dynamic member by name, which shares the partitions with the others that there are,
        under a lease that it renews by polling.

        `auto_offset_reset` says where to begin without a position, or with one that is not in the
        log any more: earliest, latest, none (an error), or by_duration:PT1H.
        """
        options = ConsumerOptions(
            group=group,
            member=member,
            auto_offset_reset=auto_offset_reset,
            columns=columns,
            max_records=max_records,
            lease_ms=lease_ms,
            follow=follow,
        )
        return open_consumer(self.name, self._store, self._head, self.at, options)

    def groups(self) -> list[str]:
        """The names of its consumer groups, sorted."""
        return sorted(load_groups(self._store, self._head.latest().topic_id))

    def describe_groups(self) -> GroupDescription:
        """All of its consumer groups, partition by partition."""
        states = load_groups(self._store, self._head.latest().topic_id)
        return describe_groups(self._store, self.at(), states, self._head)

    def expire_groups(self, older_than: timedelta | int, *, dry_run: bool = False) -> list[str]:
        """Delete the groups that have had no member and no commit for this long, a timedelta or
        milliseconds; gives their names."""
        return expire_groups(self._store, self._head, older_than, dry_run=dry_run)

    @property
    def _maintained(self) -> MaintainedTopic:
        return MaintainedTopic(self.name, self._store, self._head)

    def _run(self, job: Job[Report], threads: int = 1) -> Report:
        return job.run(self._maintained, in_threads(threads))
