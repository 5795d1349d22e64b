"""What maintenance jobs return. `print` shows a report in one line."""

from __future__ import annotations

from dataclasses import dataclass

from pylogtable.results.publication import PublishReport
from pylogtable.results.text import bytes_text, count_text


@dataclass(frozen=True)
class RewriteReport:
    """What a compaction or a merge did. `units` counts the committed units of work, `skipped` those
    that were not committed because another job had changed their input. `segments_in` and
    `bytes_in` describe the replaced segments; `segments_out`, `bytes_out` and `tombstones` the new
    ones. `records_in` counts all records that were read. `partitions` are those that were changed.
    `shifted_in` counts the replaced segments that were shifted: plain Parquet readers see wrong
    offsets in such a file.

    A dry run of `Topic.maintain` reports the units that are due, with all of their segments: a
    compaction may leave some of them as they are. What is known only after the work is None."""

    operation: str
    version: int
    units: int
    skipped: int
    partitions: tuple[int, ...]
    segments_in: int
    segments_out: int | None
    bytes_in: int
    bytes_out: int | None
    records_in: int
    records_removed: int | None
    tombstones: int | None
    seconds: float
    shifted_in: int = 0
    dry_run: bool = False

    @property
    def megabytes_per_second(self) -> float:
        """Replaced megabytes per second, to compare runs."""
        return self.bytes_in / 1e6 / max(self.seconds, 1e-9)

    def __str__(self) -> str:
        parts = [self.would_do if self.dry_run else self._did()]
        if self.records_removed:
            parts.append(f"{self.records_removed:,} of {self.records_in:,} records removed")
        if self.skipped:
            skipped = count_text(self.skipped, "unit")
            parts.append(f"{skipped} skipped, because another job was faster")
        return f"{', '.join(parts)}; {self.seconds:.1f} s"

    @property
    def would_do(self) -> str:
        """What a dry run found to do."""
        partitions = count_text(len(self.partitions), "partition")
        return f"would {self.operation} {self._segments()} in {partitions}"

    def _did(self) -> str:
        if not self.segments_in:
            return f"nothing to {self.operation}"
        verb = f"{self.operation.removesuffix('e')}ed"
        return f"{verb} {self._segments()} into {self.segments_out:,}"

    def _segments(self) -> str:
        shifted = f" ({self.shifted_in:,} shifted)" if self.shifted_in else ""
        return f"{count_text(self.segments_in, 'segment')}{shifted}"


@dataclass(frozen=True)
class RetentionReport:
    """What retention removed, or would remove in a dry run. `log_starts` has the new start offset
    of each changed partition. `records_removed` does not count records that `delete_records` had
    removed before."""

    version: int
    log_starts: dict[int, int]
    segments_removed: int
    records_removed: int
    bytes_removed: int
    seconds: float
    dry_run: bool = False

    def __str__(self) -> str:
        verb, moves = ("would remove", "would be") if self.dry_run else ("removed", "is now")
        records = count_text(self.records_removed, "record")
        text = f"{verb} {records} in {count_text(self.segments_removed, 'segment')}"
        if self.log_starts:
            starts = " ".join(f"{number}:{at}" for number, at in sorted(self.log_starts.items()))
            text += f", log start {moves} {starts}"
        return f"{text}; {self.seconds:.1f} s"


@dataclass(frozen=True)
class VacuumReport:
    """What a vacuum removed, or would remove in a dry run. `table_files` counts the objects of
    published tables. `strangers` are Parquet files in the folders of partitions that are not the
    topic's. They stay: only you know what they are."""

    version: int
    dry_run: bool
    files: tuple[str, ...]
    size_bytes: int
    data_files: int
    manifest_files: int
    seconds: float
    table_files: int = 0
    strangers: tuple[str, ...] = ()

    def __str__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        text = f"{verb} {count_text(len(self.files), 'file')}, {bytes_text(self.size_bytes)}"
        if self.strangers:
            text += f", and kept {count_text(len(self.strangers), 'file')} of others"
        return f"{text}; {self.seconds:.1f} s"


@dataclass(frozen=True)
class MaintainReport:
    """What all jobs of a topic did, in the order they ran. A report is None if the topic's settings
    do not ask for that job. `error` says why the run ended early.

    After a dry run it says what the jobs would do, and nothing was changed. Compaction and merge
    are planned on what retention would leave. What compaction would leave is not known, so merge is
    planned without it. Vacuum lists the files that are not needed now."""

    topic: str
    retention: RetentionReport | None = None
    compaction: RewriteReport | None = None
    merge: RewriteReport | None = None
    publication: PublishReport | None = None
    vacuum: VacuumReport | None = None
    seconds: float = 0.0
    error: str | None = None
    dry_run: bool = False

    @property
    def did_something(self) -> bool:
        """True if at least one job finished."""
        return any((self.retention, self.compaction, self.merge, self.publication, self.vacuum))

    def __str__(self) -> str:
        parts = self._would_do() if self.dry_run else self._did()
        if self.error is not None:
            parts.append(f"FAILED: {self.error}")
            return f"{self.topic}: {', '.join(parts)}"
        return f"{self.topic}: {', '.join(parts)}; {self.seconds:.1f} s"

    def _did(self) -> list[str]:
        parts = []
        if self.retention is not None:
            parts.append(f"retention removed {self.retention.records_removed:,} records")
        if self.compaction is not None:
            parts.append(f"compaction removed {self.compaction.records_removed:,} records")
        if self.merge is not None:
            shifted = f" ({self.merge.shifted_in:,} shifted)" if self.merge.shifted_in else ""
            merged = f"merged {self.merge.segments_in:,}{shifted} into {self.merge.segments_out:,}"
            parts.append(merged)
        if self.publication is not None:
            parts += [f"published {table}" for table in self.publication.tables]
        if self.vacuum is not None:
            parts.append(f"vacuum removed {count_text(len(self.vacuum.files), 'file')}")
        return parts

    def _would_do(self) -> list[str]:
        parts = ["nothing was changed"]
        if self.retention is not None:
            parts.append(f"retention would remove {self.retention.records_removed:,} records")
        parts += [job.would_do for job in (self.compaction, self.merge) if job is not None]
        if self.publication is not None:
            parts += [f"would publish {table}" for table in self.publication.due]
        if self.vacuum is not None:
            parts.append(f"vacuum would remove {count_text(len(self.vacuum.files), 'file')}")
        return parts
