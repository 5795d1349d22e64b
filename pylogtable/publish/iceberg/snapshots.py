"""Makes the snapshots of an Iceberg table: their manifests, manifest list and summary.

The cost is in proportion to what changes. New files get a new manifest. Only manifests with removed
files are written anew, and small ones when there are many.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pylogtable.errors import CorruptTopicError
from pylogtable.format.model import Segment
from pylogtable.format.paths import floor_of
from pylogtable.limits import Limits
from pylogtable.publish.iceberg.log import floors_in, manifest_list_name, manifest_name
from pylogtable.publish.iceberg.manifests import (
    Entry,
    Manifest,
    ManifestFiles,
    deleted_entry,
    is_deletes,
    is_live,
    kept_entry,
    partitions_in,
)
from pylogtable.publish.iceberg.metadata import IcebergSnapshot
from pylogtable.publish.iceberg.position_deletes import DeletePlanner, DeleteStep
from pylogtable.publish.iceberg.schema import Json
from pylogtable.publish.plan import TableChange, TableFile


@dataclass(frozen=True)
class SnapshotLineage:
    """Where a new snapshot goes: after which, and when."""

    snapshot_id: int
    parent: IcebergSnapshot | None
    sequence_number: int
    timestamp_ms: int

    @property
    def parent_id(self) -> int | None:
        return None if self.parent is None else self.parent.snapshot_id


class SnapshotMaker:
    """Makes the snapshots of one publication."""

    def __init__(self, manifests: ManifestFiles, publish_id: str, schema: Json) -> None:
        self._manifests = manifests
        self._publish_id = publish_id
        self._schema = schema
        self._serial = itertools.count()

    def make(
        self,
        lineage: SnapshotLineage,
        step: Step,
        added: Sequence[Entry],
        properties: Mapping[str, str],
        deletes: DeletePlanner | None = None,
    ) -> IcebergSnapshot:
        """Write the manifests of a snapshot that adds these entries and removes the files of the
        step. `properties` are what its summary has besides. `deletes` plans what is hidden."""
        parent = lineage.parent
        before = [] if parent is None else self._manifests.listed(parent.manifest_list)
        there = [manifest for manifest in before if live_files(manifest)]
        live = [manifest for manifest in there if not is_deletes(manifest)]
        hiding = [manifest for manifest in there if is_deletes(manifest)]
        rewritten, deleted = self._without(lineage, live, step)
        untouched = [m for m in live if m.manifest_path not in rewritten]
        small = to_merge(untouched, self._manifests.limits)
        merged_paths = {manifest.manifest_path for manifest in small}
        kept = [m for m in untouched if m.manifest_path not in merged_paths]
        hidden = DeleteStep()
        if deletes is not None:
            hidden = deletes.step(hiding, lineage.snapshot_id)
        merged = self._merged(lineage, small)
        new = [*self._write(lineage, added), *rewritten.values(), *merged]
        if hidden.entries:
            new += self._write(lineage, hidden.entries, of_deletes=True)
        else:
            kept += hiding
        name = manifest_list_name(lineage.snapshot_id, self._publish_id)
        ids = (lineage.snapshot_id, lineage.parent_id, lineage.sequence_number)
        counts = {
            "manifests-created": len(new),
            "manifests-kept": len(kept),
            "manifests-replaced": len(before) - len(kept),
        }
        summary = {"operation": step.operation, **_counted(parent, added, deleted, hidden)}
        summary |= {key: str(count) for key, count in counts.items()} | dict(properties)
        return IcebergSnapshot(
            snapshot_id=lineage.snapshot_id,
            parent_snapshot_id=lineage.parent_id,
            sequence_number=lineage.sequence_number,
            timestamp_ms=lineage.timestamp_ms,
            manifest_list=self._manifests.write_list(name, *ids, [*new, *kept]),
            summary=summary,
            schema_id=self._schema["schema-id"],
        )

    def _without(
        self, lineage: SnapshotLineage, live: Sequence[Manifest], step: Step
    ) -> tuple[dict[str, Manifest], list[Entry]]:
        """The manifests that hold removed files, written anew, by their old paths; and the entries
        of the removed files. New and old manifests are looked into first: merges take new files,
        and retention old ones."""
        missing = {self._manifests.place(file.path) for file in step.removed}
        wanted: dict[int, list[int]] = {}
        for partition, floor in sorted((f.partition, floor_of(f.path)) for f in step.removed):
            wanted.setdefault(partition, []).append(floor)
        rewritten: dict[str, Manifest] = {}
        deleted: list[Entry] = []
        candidates = [manifest for manifest in live if _may_hold(manifest, wanted)]
        candidates.sort(key=lambda manifest: manifest.sequence_number)
        for manifest, entries in self._manifests.each(_from_both_ends(candidates)):
            held = [entry for entry in entries if is_live(entry)]
            gone = {e.data_file.file_path for e in held} & missing
            if gone:
                marked = [
                    deleted_entry(entry, lineage.snapshot_id)
                    if entry.data_file.file_path in gone
                    else kept_entry(entry)
                    for entry in held
                ]
                (rewritten[manifest.manifest_path],) = self._write(lineage, marked)
                deleted += [entry for entry in marked if not is_live(entry)]
                missing -= gone
            if not missing:
                break
        if missing:
            detail = "a file that the table no longer shows is in no manifest of it; unpublish the "
            raise CorruptTopicError(min(missing), "PUB-1", f"{detail}topic and publish it again")
        return rewritten, deleted

    def _merged(self, lineage: SnapshotLineage, small: Sequence[Manifest]) -> list[Manifest]:
        entries = [kept_entry(entry) for entry in self._manifests.live_entries(small)]
        return self._write(lineage, entries)

    def _write(
        self, lineage: SnapshotLineage, entries: Sequence[Entry], *, of_deletes: bool = False
    ) -> list[Manifest]:
        """Write entries to as many manifests as they need. Delete files have no floor offsets."""
        made = []
        for chunk in chunks(entries, self._manifests.limits.manifest_entries):
            floors = [0]
            if not of_deletes:
                floors = [floor_of(self._manifests.key(e.data_file.file_path)) for e in chunk]
            serial = next(self._serial)
            name = manifest_name(self._publish_id, serial, min(floors), max(floors))
            ids = (name, lineage.snapshot_id, self._schema)
            made.append(self._manifests.write(*ids, chunk, of_deletes=of_deletes))
        return made


def _may_hold(manifest: Manifest, wanted: Mapping[int, Sequence[int]]) -> bool:
    """False if a manifest has certainly no file of these partitions with one of these floor
    offsets, which are sorted."""
    partitions, floors = partitions_in(manifest), floors_in(manifest.manifest_path)
    for partition, sought in wanted.items():
        if partitions is not None and partition not in partitions:
            continue
        if floors is None:
            return True
        first = bisect_left(sought, floors[0])
        if first < len(sought) and sought[first] <= floors[1]:
            return True
    return False


def _from_both_ends(manifests: Sequence[Manifest]) -> list[Manifest]:
    """The last one, the first one, the last but one, and so on."""
    middle = len(manifests) // 2
    pairs = itertools.zip_longest(reversed(manifests[middle:]), manifests[:middle])
    return [manifest for pair in pairs for manifest in pair if manifest is not None]


def _counted(
    parent: IcebergSnapshot | None,
    added: Sequence[Entry],
    deleted: Sequence[Entry],
    hidden: DeleteStep,
) -> dict[str, str]:
    """What the summary says about files, records and bytes. The totals go on from the parent's."""
    new = [entry.data_file for entry in added]
    gone = [entry.data_file for entry in deleted]
    more = [entry.data_file for entry in hidden.added]
    less = [entry.data_file for entry in hidden.removed]
    changed = {
        "data-files": (len(new), len(gone)),
        "records": (sum(f.record_count for f in new), sum(f.record_count for f in gone)),
        "files-size": (
            sum(f.file_size_in_bytes for f in (*new, *more)),
            sum(f.file_size_in_bytes for f in (*gone, *less)),
        ),
        "delete-files": (len(more), len(less)),
        "position-deletes": (sum(f.record_count for f in more), sum(f.record_count for f in less)),
    }
    touched = {f.partition[0] for f in (*new, *gone, *more, *less)}
    counts = {"changed-partition-count": len(touched)}
    for name, (plus, minus) in changed.items():
        counts[f"added-{name}"] = plus
        is_of_data = name in ("data-files", "records")
        counts[f"deleted-{name}" if is_of_data else f"removed-{name}"] = minus
    counts["added-position-delete-files"] = len(more)
    counts["removed-position-delete-files"] = len(less)
    counts = {name: count for name, count in counts.items() if count}
    for name, (plus, minus) in changed.items():
        known = 0 if parent is None else parent.count(f"total-{name}")
        counts[f"total-{name}"] = known + plus - minus
    counts["total-equality-deletes"] = 0
    return {name: str(count) for name, count in counts.items()}


APPEND, REPLACE, OVERWRITE, DELETE = "append", "replace", "overwrite", "delete"

_T = TypeVar("_T")


@dataclass(frozen=True)
class Step:
    """A snapshot to make. If `is_last` is false, it shows the same records as the one before."""

    operation: str
    added: tuple[Segment, ...]
    removed: tuple[TableFile, ...]
    is_last: bool


class Sized(Protocol):
    """What a manifest list says about a manifest."""

    @property
    def added_files_count(self) -> int | None: ...

    @property
    def existing_files_count(self) -> int | None: ...


def steps_of(change: TableChange) -> list[Step]:
    """The snapshots that make a change. Files that only replace others come first [PUB-3]."""
    merged = Step(
        REPLACE,
        tuple(new.file for new in change.added if not new.is_data),
        tuple(gone.file for gone in change.removed if not gone.is_data),
        is_last=False,
    )
    added = tuple(new.file for new in change.added if new.is_data)
    removed = tuple(gone.file for gone in change.removed if gone.is_data)
    has_merged = bool(merged.added or merged.removed)
    if has_merged and not added and not removed:
        return [Step(REPLACE, merged.added, merged.removed, is_last=True)]
    operation = APPEND if not removed else OVERWRITE if added else DELETE
    last = Step(operation, added, removed, is_last=True)
    return [merged, last] if has_merged else [last]


def one_step(change: TableChange) -> list[Step]:
    """The snapshot that makes a change in which rows are hidden, or shown again [PUB-9]."""
    added = tuple(new.file for new in change.added)
    removed = tuple(gone.file for gone in change.removed)
    return [Step(OVERWRITE, added, removed, is_last=True)]


def live_files(manifest: Sized) -> int:
    """How many files of a manifest the table shows."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


_M = TypeVar("_M", bound=Sized)


def to_merge(manifests: Sequence[_M], limits: Limits) -> list[_M]:
    """The manifests to merge: all small ones, if there are too many."""
    half = limits.manifest_entries // 2
    small = [manifest for manifest in manifests if live_files(manifest) < half]
    return small if len(small) > limits.small_manifests else []


def chunks(entries: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """The entries of one manifest after the other."""
    for start in range(0, len(entries), size):
        yield entries[start : start + size]
