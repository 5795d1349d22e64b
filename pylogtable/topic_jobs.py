"""`TopicJobs`: the methods of a topic that run its maintenance jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pylogtable.arguments import check_flags, check_number
from pylogtable.jobs.compaction import Compaction
from pylogtable.jobs.erase import EraseReport, Erasure
from pylogtable.jobs.job import Job, MaintainedTopic, MaintainOptions, run_job
from pylogtable.jobs.merge import Merge
from pylogtable.jobs.retention import Retention, RetentionReport
from pylogtable.jobs.rewrite_job import RewriteReport
from pylogtable.jobs.vacuum import Vacuum, VacuumReport
from pylogtable.jobs.work import in_threads
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.log.topic_log import TopicLog
from pylogtable.maintain import MaintainReport, maintain
from pylogtable.mirror.options import MirrorOptions
from pylogtable.mirror.plan import is_mirrored, plan_promotion
from pylogtable.mirror.report import MirrorProgress, MirrorReport
from pylogtable.mirror.start import MirrorTarget, mirror
from pylogtable.operation import operations
from pylogtable.publish.iceberg.catalog import register
from pylogtable.publish.iceberg.table import IcebergTable
from pylogtable.publish.publication import Publication, unpublish
from pylogtable.publish.report import PublishReport
from pylogtable.publish.tables import TopicTables
from pylogtable.storage.base import ObjectStore

Report = TypeVar("Report")


@operations
class TopicJobs:
    """The jobs of one topic. Users call them on a `Topic`.

    >>> topic.compact(force=True)
    """

    name: str
    _store: ObjectStore
    _log: TopicLog
    _tables: TopicTables

    def compact(
        self,
        *,
        force: bool = False,
        threads: int = 2,
        budget_bytes: int = DEFAULT_LIMITS.key_budget_bytes,
    ) -> RewriteReport:
        """Keep the newest record of each key, at its offset, and remove older ones.

        Only partitions that are dirty enough, or have been dirty for too long, are compacted; the
        topic's settings define both. With `force`, every partition with dirty records is compacted.
        `budget_bytes` limits the memory for the keys of a partition. `threads` is the number of
        partitions compacted at a time.
        """
        check_number("budget_bytes", budget_bytes, least=1)
        return self._run(Compaction(force=force, budget_bytes=budget_bytes), threads)

    def merge(self, *, threads: int = 2) -> RewriteReport:
        """Join small segments into larger ones, seal shifted ones, and drop records below the log
        start. Offsets do not change."""
        return self._run(Merge(), threads)

    def apply_retention(
        self,
        keep_from: Mapping[int, int] | None = None,
        groups: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
    ) -> RetentionReport:
        """Remove whole segments from the beginning of each partition, as `retention.ms` and
        `retention.bytes` say, if `cleanup.policy` contains `delete`.

        Records at or after the offsets of `keep_from` are kept, and so are records that one of
        these consumer groups has not read. A group without a position in a partition has read
        nothing of it. With `dry_run`, nothing is removed: the report says what would be.
        """
        check_flags(dry_run=dry_run)
        job = Retention(keep_from, groups)
        return job.preview(self._maintained)[0] if dry_run else self._run(job)

    def erase(
        self, keys: Any = None, where: Any = None, *, dry_run: bool = False, threads: int = 2
    ) -> EraseReport:
        """Remove all records with one of `keys`, or all records for which `where` is true. Other
        records keep their offsets. When it returns, the newest version has no such record that was
        appended before the call. Records that are appended meanwhile may stay.

        >>> topic.erase(keys=["user-7"])
        >>> topic.erase(where=(pc.field("customer") == 7) & (pc.field("country") == "DE"))

        `keys` is a list, an Arrow array or a table, as for `latest`. Bloom filters tell which files
        have to be read. `where` is a pyarrow expression over the columns of `read`, `partition`,
        `offset` and `timestamp` included. It removes what it selects and nothing else: an older
        record of the same key may then be the newest.

        Older versions still have the records, until a vacuum removes their files; the report says
        which. With `dry_run=True` nothing is changed. If it fails, call it again.
        """
        return self._run(Erasure(keys, where, dry_run), threads)

    def vacuum(
        self, *, dry_run: bool = True, retention_ms: int | None = None, force: bool = False
    ) -> VacuumReport:
        """Remove files that no kept version needs: data files of failed appends, of replaced
        segments and of expired segments, and the commits and index files of versions that are not
        kept.

        Versions of the last 7 days are kept, or of the last `retention_ms`. With less than 7 days,
        replaced files are removed earlier, and reads that still need them fail, so that is refused
        without `force`. A dry run, the default, removes nothing.
        """
        return self._run(Vacuum(dry_run=dry_run, retention_ms=retention_ms, force=force))

    def publish(self, formats: Sequence[str] | None = None, *, threads: int = 2) -> PublishReport:
        """Let other engines read the topic as a Delta or an Iceberg table, over its own files. It
        shows the newest version of the topic, complete. Without `formats`, those of the setting
        `publish.formats` are published, or Delta. With that setting, `maintain` publishes too.
        Segments that a plain Parquet reader would read wrongly are sealed first. If one format
        fails, the others are published before the error is raised.

        The table shows every record. If the topic is compacted, a key may have several rows until
        the next compaction: this warns, once in a process, and the report counts such records.

        >>> topic.publish(["delta", "iceberg"])
        >>> polars.scan_delta("logs/orders").filter(polars.col("offset") >= 1000).collect()
        """
        return self._run(Publication(formats), threads)

    def register_iceberg(self, catalog: Any, identifier: str | Sequence[str]) -> str:
        """Let an entry of a pyiceberg catalog, such as `shop.orders`, show what the Iceberg table
        shows now. Use it after `publish`. Returns the address of the metadata file."""
        self._log.latest()  # raises if the topic was deleted
        return register(IcebergTable(self._store, self._log.runtime), catalog, identifier)

    def unpublish(self, formats: Sequence[str] | None = None) -> int:
        """Remove published tables, all by default. The topic and its files stay as they are.
        Returns how many objects were removed."""
        return unpublish(self._maintained, formats)

    def mirror(
        self,
        to_store: MirrorTarget,
        *,
        name: str | None = None,
        retention: str | None = None,
        config: Mapping[str, object] | None = None,
        groups: bool = False,
        follow: bool = False,
        allow_gaps: bool = False,
        poll_seconds: float = 1.0,
        on_progress: Callable[[MirrorProgress], object] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> MirrorReport:
        """Copy this topic to another store, under the same partitions and offsets. The first call
        creates the copy; later ones bring what is new. A mirror that was killed goes on with the
        next call.

        >>> topic.mirror(pylogtable.open("s3://other-bucket/logs"), groups=True)

        With `retention="source"`, the default for a new copy, it has exactly the records and the
        settings of its source: what retention, compaction and erase remove there is removed here.
        With "own" it keeps all records that it got, and its own jobs remove them by its own
        settings, which `config` gives. Then records that the source removed before they were
        copied are an error, unless `allow_gaps`.

        `groups` also copies the positions of consumer groups, until somebody uses a group in the
        copy. With `follow` it goes on until `stop()` is true, and looks every `poll_seconds`.
        `on_progress` gets a `MirrorProgress` from time to time.

        Anybody may append to a copy that is not in the middle of a mirror, after a failover for
        instance. That ends the mirroring: further calls raise `CommitConflictError`, and write
        nothing.
        """
        options = MirrorOptions(
            name, retention, config, groups, follow, allow_gaps, poll_seconds, on_progress, stop
        )
        return mirror(self, to_store, options)

    def promote(self, *, force: bool = False) -> None:
        """End what makes a topic a copy: it becomes one like any other, for good. A repeat does
        nothing.

        - A copy that `mirror` keeps gets its own retention, and can no longer be brought up to
          date. Call it after a failover. The first append that does not come from the mirror does
          the same.
        - A copy of Kafka's topic takes appends, and no further import. Call it at the cut-over,
          after the last import.

        The mirror of a copy of Kafka's topic is both. The first call ends the mirroring, and an
        import may then go on with it. The second one ends the rest.

        A copy in the middle of a mirror that takes several commits is refused without `force`: it
        has records without their txns, which a writer that repeats an append would append twice."""
        check_flags(force=force)
        # What this call ends is decided once: of two calls at a time, none does both.
        ends_mirror = is_mirrored(self._log.latest())
        self._log.change(
            lambda state: plan_promotion(state.snapshot, ends_mirror=ends_mirror, force=force),
            refresh=False,
        )

    def maintain(
        self,
        *,
        vacuum: bool = True,
        threads: int = 2,
        protect_groups: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> MaintainReport:
        """Run all jobs that the topic's settings ask for: retention, compaction, merge,
        publication, vacuum. It is safe to run at any time, repeatedly, and from two places at once.
        Records that one of `protect_groups` has not read do not expire.

        With `dry_run`, nothing is changed. The report says what each job would do to the topic as
        it is now, as far as that is known without reading data. Use it before the first run on a
        topic with old records.

        >>> topic.maintain(dry_run=True).retention.records_removed
        """
        options = MaintainOptions(vacuum, protect_groups, dry_run)
        return maintain(self._maintained, in_threads(threads), options)

    @property
    def _maintained(self) -> MaintainedTopic:
        return MaintainedTopic(self.name, self._log, self._tables)

    def _run(self, job: Job[Report], threads: int = 1) -> Report:
        return run_job(job, self._maintained, in_threads(threads))
