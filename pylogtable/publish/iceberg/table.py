"""A topic's Iceberg table (format version 2). It shows one version of the topic after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from pylogtable.errors import CommitConflictError, CorruptTopicError, InvalidRequestError
from pylogtable.format.config import DAY_MS, MANIFEST_RETENTION_MS
from pylogtable.format.model import MAX_OFFSET, Segment, TopicInfo
from pylogtable.format.published_state import PublishedState
from pylogtable.publish.hidden_rows import HiddenRows
from pylogtable.publish.iceberg.bounds import metrics_of
from pylogtable.publish.iceberg.log import IcebergLog, is_avro, is_delete_file, metadata_path
from pylogtable.publish.iceberg.manifests import (
    METADATA_DIR,
    Entry,
    Manifest,
    ManifestFiles,
    added_entry,
    is_deletes,
    need_pyiceberg,
)
from pylogtable.publish.iceberg.metadata import (
    PROMPT,
    PUBLISH_ID,
    STATE,
    VERSION,
    IcebergSnapshot,
    Metadata,
    new_table,
    replacing,
    snapshot_id_of,
    taken_back,
    with_columns,
    with_snapshots,
)
from pylogtable.publish.iceberg.position_deletes import DeleteFiles, DeletePlanner
from pylogtable.publish.iceberg.schema import check_file, types_by_stored_name
from pylogtable.publish.iceberg.snapshots import (
    SnapshotLineage,
    SnapshotMaker,
    Step,
    one_step,
    steps_of,
)
from pylogtable.publish.plan import Shown, TableChange, TableFile
from pylogtable.publish.roaring import Numbers
from pylogtable.publish.table import Published, view_of
from pylogtable.runtime import Runtime
from pylogtable.segments.column_bounds import FileFacts, facts_of
from pylogtable.storage.base import ObjectInfo, ObjectStore
from pylogtable.storage.threads import map_parallel

_HOUR_MS = 3_600_000
#: A vacuum removes manifests that nobody refers to after a day and an hour.
_LONGEST_MS = DAY_MS // 2


class IcebergTable:
    """The Iceberg table of the topic at the root of `store`."""

    format: ClassVar[str] = "iceberg"
    folder: ClassVar[str] = METADATA_DIR
    folders: ClassVar[tuple[str, ...]] = (METADATA_DIR,)

    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._log = IcebergLog(store)
        self._manifests = ManifestFiles(store, store.url)

    def newest(self) -> Published | None:
        """What the table shows now; None if there is no table."""
        return self._log.newest()

    def newest_location(self) -> str | None:
        """The address of the newest metadata file; None if there is no table."""
        newest = self._log.newest()
        return None if newest is None else self._manifests.place(metadata_path(newest.number))

    def topic_id(self) -> str | None:
        """The id of the topic that the table is of; None if that cannot be told."""
        return self._log.topic_id()

    def files(self, published: Published) -> dict[str, TableFile]:
        """The files that the table shows, by path."""
        need_pyiceberg()
        current = self._log.metadata(published.number).current
        listed = [] if current is None else self._manifests.listed(current.manifest_list)
        found = (entry.data_file for entry in self._manifests.live_entries(_of_data(listed)))
        paths = ((self._manifests.key(file.file_path), file) for file in found)
        return {p: TableFile(p, file.partition[0], file.file_size_in_bytes) for p, file in paths}

    def hidden_rows(self, published: Published, paths: Sequence[str]) -> dict[str, Numbers]:
        """The rows that the table hides in these files of it; a file without any is left out."""
        places = {self._manifests.place(path): path for path in paths}
        deletes = DeleteFiles(self._store, self._manifests)
        found = deletes.rows(self._delete_files(published), places)
        return {places[place]: rows for place, rows in found.items()}

    def hiding_objects(self, published: Published) -> set[str]:
        """The delete files of the table."""
        entries = self._delete_files(published)
        return {self._manifests.key(entry.data_file.file_path) for entry in entries}

    def _delete_files(self, published: Published) -> list[Entry]:
        need_pyiceberg()
        current = self._log.metadata(published.number).current
        listed = [] if current is None else self._manifests.listed(current.manifest_list)
        return DeleteFiles(self._store, self._manifests).live(listed)

    def show(
        self,
        name: str,
        before: Published | None,
        shown: TopicInfo | None,
        wanted: Shown,
        change: TableChange,
        hidden: HiddenRows | None = None,
    ) -> Published | None:
        """Show a version of the topic, after the metadata file of `before`, whose columns are
        those of `shown`. None if another publication was faster."""
        need_pyiceberg()
        began_ms = self._runtime.clock()
        self._check_address()
        info, topic_id = wanted.snapshot.info, wanted.snapshot.topic_id
        if before is None or before.state.topic_id != topic_id:
            # What another topic of this name had is dropped with its snapshots.
            old = new_table(self._store.url, topic_id, info)
            change = TableChange(change.added, ())
        else:
            old = taken_back(self._log.metadata(before.number), topic_id, info)
        facts = facts_of(self._store, [new.file for new in change.added], info)
        for path, of in facts.items():
            check_file(info, path, of.schema)
        table = with_columns(old, info, [of.schema for of in facts.values()])
        publish_id, state = self._runtime.new_id(), _state(wanted, hidden)
        since = None if before is None else before.state.version
        properties = _SummaryProperties(publish_id, since, state, change.is_prompt)
        deletes = None
        if hidden is not None:
            files = DeleteFiles(self._store, self._manifests)
            deletes = DeletePlanner(files, hidden, wanted, change, publish_id)
        self._manifests.forget_waiting()
        made = _Files(types_by_stored_name(info), facts, self._manifests)
        snapshots = self._make(table, properties, change, made, deletes)
        self._manifests.flush()
        number = 1 if before is None else before.number + 1
        previous = None if before is None else self._manifests.place(metadata_path(before.number))
        since_ms = snapshots[-1].timestamp_ms - MANIFEST_RETENTION_MS
        keep_newest = self._store.limits.snapshots_kept
        landed = with_snapshots(table, snapshots, previous, since_ms, keep_newest)
        if self._runtime.clock() - began_ms > _LONGEST_MS:
            raise CommitConflictError(
                "writing the manifests took so long that a vacuum may have removed them; publish "
                "again"
            )
        if not self._log.commit(number, landed, publish_id, self._runtime):
            return None
        if number == 1 and not self._is_whole():
            self._log.take_back(number)
            return None
        self._log.write_hint(number)
        self._log.remove_old_block(number)
        return Published(number, state)

    def _is_whole(self) -> bool:
        """False if the table was removed before its first metadata file came, and with it what the
        file needs. Later ones look at the one before [PUB-1]."""
        try:
            needed = IcebergTable(self._store, self._runtime)._needed_avro()
        except CorruptTopicError:
            return False
        return needed <= {info.key for info in self._store.list(METADATA_DIR)}

    def mend(self, published: Published) -> None:
        """Write the hint again if it does not lead to the newest metadata file."""
        self._log.mend_hint(published.number)

    def remove(self) -> int:
        """Remove the table. The topic stays as it is. Returns how many objects were removed."""
        return self._log.remove()

    def needed_files(self, since_ms: int) -> set[str]:
        """The files that versions of the table from this time on show [PUB-7]: those of the current
        snapshot, and those that snapshots since then have removed."""
        found = self._log.table()
        if found is None:
            return set()
        need_pyiceberg()
        _, metadata = found
        manifests = self._manifests_for(metadata)
        current = metadata.current
        if current is None:
            return set()
        entries = manifests.live_entries(_of_data(manifests.listed(current.manifest_list)))
        for snapshot in metadata.snapshots:
            if snapshot.timestamp_ms >= since_ms and snapshot.count("deleted-data-files"):
                entries += manifests.deleted_entries(snapshot.manifest_list, snapshot.snapshot_id)
        return {manifests.key(entry.data_file.file_path) for entry in entries}

    def old_objects(self, listing: Iterable[ObjectInfo], before_ms: int) -> list[ObjectInfo]:
        """The objects of the table that only versions before this time need, or snapshots that
        were dropped [PUB-7]. A metadata file of the last day has a snapshot of its last hour that
        was not dropped, so manifests stay an hour longer than metadata files."""
        mine = [info for info in listing if info.key.startswith(METADATA_DIR)]
        day_ms = before_ms + MANIFEST_RETENTION_MS - DAY_MS
        old = [
            info
            for info in mine
            if (is_avro(info.key) or is_delete_file(info.key))
            and info.modified_ms < day_ms - _HOUR_MS
        ]
        needed = self._needed_avro() if old else set()
        return [
            *self._log.old_files(mine, before_ms, day_ms),
            *(info for info in old if info.key not in needed),
        ]

    def _needed_avro(self) -> set[str]:
        """The manifest lists of all snapshots, their manifests and delete files. A manifest is in
        the current list, or in the last one before a snapshot that replaced it."""
        found = self._log.table()
        if found is None:
            return set()
        need_pyiceberg()
        _, metadata = found
        manifests = self._manifests_for(metadata)
        read = {*replacing(metadata.snapshots), metadata.body.get("current-snapshot-id")}
        needed = {manifests.key(snapshot.manifest_list) for snapshot in metadata.snapshots}
        lists = [one.manifest_list for one in metadata.snapshots if one.snapshot_id in read]
        hiding: dict[str, Manifest] = {}
        for found_in in map_parallel(self._store, manifests.listed, lists):
            needed.update(manifests.key(manifest.manifest_path) for manifest in found_in)
            hiding |= {one.manifest_path: one for one in found_in if is_deletes(one)}
        deletes = DeleteFiles(self._store, manifests).live(hiding.values())
        return needed | {manifests.key(entry.data_file.file_path) for entry in deletes}

    def _make(
        self,
        table: Metadata,
        properties: _SummaryProperties,
        change: TableChange,
        files: _Files,
        deletes: DeletePlanner | None,
    ) -> list[IcebergSnapshot]:
        """Write the snapshots of a change."""
        maker = SnapshotMaker(self._manifests, properties.publish_id, table.schema)
        now_ms = max(self._runtime.clock(), table.body["last-updated-ms"] + 1)
        sequence_number = table.body["last-sequence-number"]
        made: list[IcebergSnapshot] = []
        parent = table.current
        hides = deletes is not None and deletes.hidden.changes
        for serial, step in enumerate(one_step(change) if hides else steps_of(change)):
            snapshot_id = snapshot_id_of(properties.publish_id, serial)
            lineage = SnapshotLineage(
                snapshot_id, parent, sequence_number + serial + 1, now_ms + serial
            )
            added = [files.entry(file, snapshot_id) for file in step.added]
            last = deletes if step.is_last else None
            parent = maker.make(lineage, step, added, properties.summary(step), last)
            made.append(parent)
        return made

    def _manifests_for(self, metadata: Metadata) -> ManifestFiles:
        """Those of a table that may have been published under another address."""
        return ManifestFiles(self._store, metadata.location)

    def _check_address(self) -> None:
        wrong = sorted(set(self._store.url) & set("#?"))
        if wrong and not self._store.url.startswith("memory:"):
            raise InvalidRequestError(
                f"the topic cannot be published as an Iceberg table: its address {self._store.url} "
                f"has {' and '.join(map(repr, wrong))}, which engines take for a part of a URL"
            )


def _of_data(listed: Iterable[Manifest]) -> list[Manifest]:
    return [manifest for manifest in listed if not is_deletes(manifest)]


def _state(wanted: Shown, hidden: HiddenRows | None) -> PublishedState:
    snapshot = wanted.snapshot
    return PublishedState(
        topic_id=snapshot.topic_id,
        version=snapshot.version,
        commit_id=snapshot.commit_id,
        committed_at_ms=snapshot.committed_at_ms,
        offsets=min(sum(state.end for state in snapshot.partitions), MAX_OFFSET),
        copies=dict(wanted.copies),
        **view_of(wanted, hidden),
    )


@dataclass(frozen=True)
class _SummaryProperties:
    """What the snapshots of a publication say about the topic. `since` is the version that the
    table showed before."""

    publish_id: str
    since: int | None
    state: PublishedState
    is_prompt: bool

    def summary(self, step: Step) -> dict[str, str]:
        version = self.state.version if step.is_last or self.since is None else self.since
        found = {VERSION: str(version), PUBLISH_ID: self.publish_id}
        if step.removed and self.is_prompt:
            found[PROMPT] = "true"
        if step.is_last:
            found[STATE] = msgspec.json.encode(self.state).decode()
        return found


@dataclass(frozen=True)
class _Files:
    """Makes the entries of new files. `types` has the id and the type of each column by stored
    name."""

    types: Mapping[str, tuple[int, Any]]
    facts: Mapping[str, FileFacts]
    manifests: ManifestFiles

    def entry(self, file: Segment, snapshot_id: int) -> Entry:
        metrics = metrics_of(file, self.facts[file.path].bounds, self.types)
        return added_entry(self.manifests.place(file.path), file, metrics, snapshot_id)
