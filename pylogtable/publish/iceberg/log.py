"""Reads and writes `metadata/`, the numbered metadata files of a topic's published Iceberg table.

A metadata file is put if it is absent, as a commit is: of two publications one is first, and the
other plans again. The hint only saves readers work; if it cannot be written, that is only logged
[PUB-6].
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from pylogtable.errors import CorruptTopicError, InvalidRequestError
from pylogtable.publish.iceberg.manifests import METADATA_DIR
from pylogtable.publish.iceberg.metadata import (
    MAX_METADATA_LOG,
    PUBLISH_ID,
    TOPIC_ID,
    Metadata,
    decode,
    encode,
)
from pylogtable.publish.table import ChangedByOthersError, Published, damaged, put_entry
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectInfo, ObjectStore
from pylogtable.storage.numbered import NumberedObjects

_logger = logging.getLogger(__name__)

HINT_PATH = f"{METADATA_DIR}version-hint.text"
_METADATA = re.compile(r"metadata/v([1-9][0-9]{0,17})\.metadata\.json")
_FLOORS = re.compile(r"-m[0-9]+-([0-9]+)-([0-9]+)\.avro$")
#: Hadoop writes checksums beside local files, and refuses files that do not fit to one.
_CHECKSUM = re.compile(r"metadata/\.(v[0-9]+\.metadata\.json|version-hint\.text)\.crc")
_DELETES = re.compile(r"metadata/pylogtable-[0-9a-z-]+-d[0-9]+\.parquet")
_AVRO = re.compile(r"metadata/(snap-[0-9]+-1-)?pylogtable-[0-9a-z-]+\.avro")


def metadata_path(number: int) -> str:
    return f"{METADATA_DIR}v{number}.metadata.json"


def manifest_list_name(snapshot_id: int, publish_id: str) -> str:
    return f"snap-{snapshot_id}-1-pylogtable-{publish_id}.avro"


def manifest_name(publish_id: str, serial: int, low: int, high: int) -> str:
    """The name of a manifest. It has the least and the greatest floor offset of its files, so that
    a file is found without reading all manifests."""
    return f"pylogtable-{publish_id}-m{serial}-{low}-{high}.avro"


def delete_file_name(publish_id: str, serial: int) -> str:
    return f"pylogtable-{publish_id}-d{serial}.parquet"


def is_delete_file(key: str) -> bool:
    """True if this is a file of position deletes that we wrote."""
    return _DELETES.fullmatch(key) is not None


def floors_in(name: str) -> tuple[int, int] | None:
    """The least and the greatest floor offset that the name of a manifest says."""
    match = _FLOORS.search(name)
    return (int(match[1]), int(match[2])) if match else None


def is_avro(key: str) -> bool:
    """True if this is a manifest or a manifest list that we wrote."""
    return _AVRO.fullmatch(key) is not None


class IcebergLog:
    """The metadata files of the Iceberg table of the topic at the root of `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._files = NumberedObjects(store, metadata_path)
        self._known: dict[int, Metadata] = {}
        self._has_hint = False

    def newest(self) -> Published | None:
        """The newest metadata file; None if the topic has no Iceberg table. Raises if somebody else
        wrote it, or if it is for another address."""
        found = self.table()
        if found is None:
            return None
        published, metadata = found
        if metadata.location != self._store.url:
            raise InvalidRequestError(
                f"the topic's Iceberg table was published for {metadata.location}, but the topic "
                f"is at {self._store.url} now, and the table names all files by their old "
                "addresses. Unpublish it and publish again: topic.unpublish(['iceberg'])"
            )
        return published

    def table(self) -> tuple[Published, Metadata] | None:
        """The newest metadata file; None if there is none. Raises if somebody else wrote it."""
        found = self._find_newest()
        if found is None:
            return None
        number, metadata = found
        state = metadata.state(metadata_path(number))
        if state is None:
            raise ChangedByOthersError(
                f"another writer has changed the topic's Iceberg table ({metadata_path(number)}): "
                "it no longer shows what the topic has. Unpublish it and publish again: "
                "topic.unpublish(['iceberg'])"
            )
        return Published(number, state), metadata

    def metadata(self, number: int) -> Metadata:
        """A metadata file. Raises if it is gone."""
        if number not in self._known:
            data = self._files.read(number)
            found = None if data is None else decode(data, metadata_path(number))
            if found is None:
                raise damaged(metadata_path(number), "it is missing")
            self._known = {number: found}
        return self._known[number]

    def _find_newest(self) -> tuple[int, Metadata] | None:
        """The newest metadata file, with its number. Raises if the table was never ours. Without a
        hint, a listing tells which is the newest: a missing number need not be the end."""
        hinted = self._hinted()
        newest = None if hinted is None else self._newest_from(hinted)
        self._has_hint = newest is not None and newest[0] == hinted
        if newest is None:
            keys = [info.key for info in self._store.list(METADATA_DIR)]
            numbers = [number for key in keys if (number := _number(key)) is not None]
            if not numbers:
                _refuse_strangers(keys)
                return None
            newest = self._newest_from(max(numbers))
        if newest is None:
            return None
        number, data = newest
        metadata = decode(data, metadata_path(number))
        if metadata is None:
            raise _stranger(metadata_path(number))
        self._known = {number: metadata}
        return number, metadata

    def commit(self, number: int, metadata: Metadata, publish_id: str, runtime: Runtime) -> bool:
        """Put a metadata file; False if another publication was faster."""
        data = encode(metadata)
        is_ours = put_entry(
            lambda: self._files.create(number, data),
            lambda: self._publish_id(number),
            (metadata_path(number), number),
            publish_id,
            runtime,
        )
        if not is_ours:
            return False
        if number > 1 and not self._still_there(number - 1):
            # The table was removed meanwhile, and its manifests are gone or will be.
            self._store.delete(metadata_path(number))
            return False
        self._known = {number: metadata}
        return True

    def take_back(self, number: int) -> None:
        """Remove a metadata file that this has put a moment ago."""
        self._store.delete(metadata_path(number))
        self._known = {}

    def _still_there(self, number: int) -> bool:
        """True if a metadata file that was read before is as it was."""
        data, known = self._files.read(number), self._known.get(number)
        try:
            found = None if data is None else decode(data, metadata_path(number))
        except CorruptTopicError:
            return False  # the next look says what is wrong with it
        return found is not None and known is not None and found.body == known.body

    def mend_hint(self, number: int) -> None:
        """Write the hint again if it does not lead to the newest metadata file."""
        if not self._has_hint:
            self.write_hint(number)

    def topic_id(self) -> str | None:
        """The id of the topic that the table is of; None if that cannot be told."""
        try:
            found = self._find_newest()
        except CorruptTopicError:
            return None
        return None if found is None else found[1].body["properties"].get(TOPIC_ID)

    def write_hint(self, number: int) -> None:
        """Tell readers where to begin."""
        try:
            self._store.write(HINT_PATH, str(number).encode())
            self._has_hint = True
        except Exception as error:  # any error: the metadata file has already landed
            self._has_hint = False
            _logger.warning("no hint to %s of %s: %s", number, self._store.url, error)

    def remove_old_block(self, number: int) -> None:
        """Remove metadata files that are not among the newest ones, at every so many and so many at
        once, if the hint leads to one that stays [PUB-7]."""
        limits = self._store.limits
        first, size = number - limits.metadata_files_kept, limits.metadata_files_removed
        if number % size or first <= 0 or not self._has_hint:
            return
        gone = range(max(1, first - size), first)
        try:
            self._store.delete_many([metadata_path(at) for at in gone])
        except Exception as error:  # any error: the metadata file has already landed
            _logger.warning("old metadata of %s was not removed: %s", self._store.url, error)

    def remove(self) -> int:
        """Remove the table; the topic's files stay. The newest metadata file goes first, so that a
        publication after it notices, and then the others: until the last is gone, readers see an
        older version of the topic. What a publication puts meanwhile is removed, too."""
        files, others = self._mine()
        if not files and not others:
            return 0
        try:
            self._find_newest()  # raises if the table is somebody else's
        except CorruptTopicError:
            if not any(is_avro(key) for key in others):
                raise  # nothing says that it was ours
        self._store.delete(HINT_PATH)
        self._known = {}
        removed = 0
        while files or others:
            for some in (files[:1], files[1:], others):
                self._store.delete_many(some)
            removed += len(files) + len(others)
            files, others = self._mine()
        self._store.delete(HINT_PATH)  # a publication may have written it meanwhile
        self._store.remove_empty_folders(METADATA_DIR)
        return removed

    def _mine(self) -> tuple[list[str], list[str]]:
        """What to remove: metadata files, the newest first, and what they refer to."""
        keys = [info.key for info in self._store.list(METADATA_DIR)]
        files = sorted((key for key in keys if _number(key)), key=_by_number, reverse=True)
        avro = [key for key in keys if is_avro(key) or is_delete_file(key)]
        checksums = [key for key in keys if _CHECKSUM.fullmatch(key)]
        return files, [*avro, *checksums] if files or avro else []

    def old_files(
        self, listing: Iterable[ObjectInfo], before_ms: int, day_ms: int
    ) -> list[ObjectInfo]:
        """The metadata files that were replaced before this time, and all but the last ones that
        were replaced before `day_ms`. Those from the hint on stay: readers begin there [PUB-7]."""
        numbered = [(n, info) for info in listing if (n := _number(info.key)) is not None]
        newest = max((n for n, _ in numbered), default=0)
        last = min(self._hinted() or 1, newest)

        def replaced(when_ms: int, below: int) -> set[int]:
            late = [n - 1 for n, info in numbered if info.modified_ms >= when_ms]
            first = min([below, *late])
            return {n for n, info in numbered if n < first and info.modified_ms < when_ms}

        old = replaced(before_ms, last) | replaced(day_ms, min(last, newest + 1 - MAX_METADATA_LOG))
        return [info for n, info in numbered if n in old]

    def _publish_id(self, number: int) -> str | None:
        data = self._files.read(number)
        if data is None:
            return None
        found = decode(data, metadata_path(number))
        current = None if found is None else found.current
        return "" if current is None else current.summary.get(PUBLISH_ID, "")

    def _hinted(self) -> int | None:
        """The number in the hint; None if it cannot be read."""
        data = self._store.read(HINT_PATH) or b""
        return int(data) if re.fullmatch(rb"[1-9][0-9]{0,17}", data) else None

    def _newest_from(self, number: int) -> tuple[int, bytes] | None:
        newest = None
        for newest in self._files.read_forward(number):  # noqa: B007 (the last one counts)
            pass
        return newest


def _number(key: str) -> int | None:
    match = _METADATA.fullmatch(key)
    return int(match[1]) if match else None


def _by_number(key: str) -> int:
    return _number(key) or 0


def _refuse_strangers(keys: Iterable[str]) -> None:
    """Raise if the folder has the metadata of a table that is not ours."""
    for key in keys:
        name = key.rpartition("/")[2]
        if ".metadata.json" in name and not name.startswith("."):
            raise _stranger(key)


def _stranger(key: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{METADATA_DIR} in the folder of the topic belongs to an Iceberg table that pylogtable "
        f"has not published ({key}). Nothing was changed; move it away to publish the topic"
    )
