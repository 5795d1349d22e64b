"""A topic's Iceberg table (format version 2). It shows one version of the topic after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from pylogtable.errors import InvalidRequestError
from pylogtable.format.config import MANIFEST_RETENTION_MS
from pylogtable.format.model import MAX_OFFSET, Segment, TopicInfo
from pylogtable.format.published_state import PublishedState
from pylogtable.publish.iceberg.bounds import metrics_of
from pylogtable.publish.iceberg.log import IcebergLog, is_avro, metadata_path
from pylogtable.publish.iceberg.manifests import (
    METADATA_DIR,
    Entry,
    ManifestFiles,
    added_entry,
    need_pyiceberg,
)
from pylogtable.publish.iceberg.metadata import (
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
from pylogtable.publish.iceberg.schema import check_file, types_by_stored_name
from pylogtable.publish.iceberg.snapshots import SnapshotLineage, SnapshotMaker, Step, steps_of
from pylogtable.publish.plan import Shown, TableChange, TableFile
from pylogtable.publish.table import Published
from pylogtable.runtime import Runtime
from pylogtable.segments.column_bounds import FileFacts, facts_of
from pylogtable.storage.base import ObjectInfo, ObjectStore


class IcebergTable:
    """The Iceberg table of the topic at the root of `store`."""

    format: ClassVar[str] = "iceberg"
    folder: ClassVar[str] = METADATA_DIR

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
        found = (entry.data_file for entry in self._manifests.live_entries(listed))
        paths = ((self._manifests.key(file.file_path), file) for file in found)
        return {p: TableFile(p, file.partition[0], file.file_size_in_bytes) for p, file in paths}

    def show(
        self,
        name: str,
        before: Published | None,
        shown: TopicInfo | None,
        wanted: Shown,
        change: TableChange,
    ) -> Published | None:
        """Show a version of the topic, after the metadata file of `before`, whose columns are
        those of `shown`. None if another publication was faster."""
        need_pyiceberg()
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
        publish_id, state = self._runtime.new_id(), _state(wanted)
        since = None if before is None else before.state.version
        properties = _SummaryProperties(publish_id, since, state)
        snapshots = self._make(
            table, properties, change, _Files(types_by_stored_name(info), facts, self._manifests)
        )
        number = 1 if before is None else before.number + 1
        previous = None if before is None else self._manifests.place(metadata_path(before.number))
        since_ms = snapshots[-1].timestamp_ms - MANIFEST_RETENTION_MS
        landed = with_snapshots(table, snapshots, previous, since_ms)
        if not self._log.commit(number, landed, publish_id, self._runtime):
            return None
        self._log.write_hint(number)
        return Published(number, state)

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
        entries = manifests.live_entries(manifests.listed(current.manifest_list))
        for snapshot in metadata.snapshots:
            if snapshot.timestamp_ms >= since_ms and snapshot.count("deleted-data-files"):
                entries += manifests.deleted_entries(snapshot.manifest_list, snapshot.snapshot_id)
        return {manifests.key(entry.data_file.file_path) for entry in entries}

    def old_objects(self, listing: Iterable[ObjectInfo], before_ms: int) -> list[ObjectInfo]:
        """The objects of the table that only versions before this time need [PUB-7]."""
        mine = [info for info in listing if info.key.startswith(METADATA_DIR)]
        old = [info for info in mine if is_avro(info.key) and info.modified_ms < before_ms]
        needed = self._needed_avro() if old else set()
        return [
            *self._log.old_files(mine, before_ms),
            *(info for info in old if info.key not in needed),
        ]

    def _needed_avro(self) -> set[str]:
        """The manifest lists of all snapshots, and their manifests. A manifest is in the current
        list, or in the last one before a snapshot that replaced it."""
        found = self._log.table()
        if found is None:
            return set()
        need_pyiceberg()
        _, metadata = found
        manifests = self._manifests_for(metadata)
        read = {*replacing(metadata.snapshots), metadata.body.get("current-snapshot-id")}
        needed = {manifests.key(snapshot.manifest_list) for snapshot in metadata.snapshots}
        for snapshot in metadata.snapshots:
            if snapshot.snapshot_id in read:
                for manifest in manifests.listed(snapshot.manifest_list):
                    needed.add(manifests.key(manifest.manifest_path))
        return needed

    def _make(
        self, table: Metadata, properties: _SummaryProperties, change: TableChange, files: _Files
    ) -> list[IcebergSnapshot]:
        """Write the snapshots of a change."""
        maker = SnapshotMaker(self._manifests, properties.publish_id, table.schema)
        now_ms = max(self._runtime.clock(), table.body["last-updated-ms"] + 1)
        sequence_number = table.body["last-sequence-number"]
        made: list[IcebergSnapshot] = []
        parent = table.current
        for serial, step in enumerate(steps_of(change)):
            snapshot_id = snapshot_id_of(properties.publish_id, serial)
            lineage = SnapshotLineage(
                snapshot_id, parent, sequence_number + serial + 1, now_ms + serial
            )
            added = [files.entry(file, snapshot_id) for file in step.added]
            parent = maker.make(lineage, step, added, properties.summary(step))
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


def _state(wanted: Shown) -> PublishedState:
    snapshot = wanted.snapshot
    return PublishedState(
        topic_id=snapshot.topic_id,
        version=snapshot.version,
        commit_id=snapshot.commit_id,
        committed_at_ms=snapshot.committed_at_ms,
        offsets=min(sum(state.end for state in snapshot.partitions), MAX_OFFSET),
        copies=dict(wanted.copies),
    )


@dataclass(frozen=True)
class _SummaryProperties:
    """What the snapshots of a publication say about the topic. `since` is the version that the
    table showed before."""

    publish_id: str
    since: int | None
    state: PublishedState

    def summary(self, step: Step) -> dict[str, str]:
        version = self.state.version if step.is_last or self.since is None else self.since
        found = {VERSION: str(version), PUBLISH_ID: self.publish_id}
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
