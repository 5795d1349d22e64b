"""A topic as it is in the store, loaded once for all checks of `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from pylogtable.check.report import Problem, Unchecked, VerifyReport
from pylogtable.errors import CorruptTopicError, LogTableError, SegmentGoneError, StorageError
from pylogtable.format.leaf import segments_of
from pylogtable.format.model import Segment
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.manifest import Manifest
from pylogtable.log.topic_log import same_topic
from pylogtable.storage.base import ObjectMissingError, ObjectStore

#: A store that fails this often in a row is not asked any more: each time may take minutes.
GIVE_UP_AFTER = 5

#: The store has answered: there is no such object.
MISSING = (ObjectMissingError, SegmentGoneError)


class GaveUpError(Exception):
    """The store fails again and again, so nothing more is looked at."""


class Looking:
    """Notes in a report what could not be looked at."""

    def __init__(self, report: VerifyReport) -> None:
        self._report = report
        self._failed_in_a_row = 0

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Look at this object, or at objects in this folder. A failure of the store ends the block
        and is noted."""
        try:
            yield
        except MISSING:
            raise
        except StorageError as error:
            self._note(Unchecked(path, str(error)))
            self._failed_in_a_row += 1
            if self._failed_in_a_row == GIVE_UP_AFTER:
                detail = f"the store failed {GIVE_UP_AFTER} times in a row, so it was asked no more"
                self._note(Unchecked("all other objects", detail))
                raise GaveUpError(detail) from error
        else:
            self._failed_in_a_row = 0

    def _note(self, unchecked: Unchecked) -> None:
        if unchecked not in self._report.unchecked:
            self._report.unchecked.append(unchecked)


@dataclass(frozen=True)
class Subject:
    """What the checks look at. `entries` and `segments` have all live segments in partition and
    offset order. `sizes` has the size of every object below the topic, and `written_ms` is the
    store's time when the last of them was written. A check may count in `report` what it looked at.
    It looks at an object inside `looking.at(path)`, if it can go on without that object."""

    store: ObjectStore
    manifest: Manifest
    snapshot: Snapshot
    entries: pa.Table
    segments: list[Segment]
    segments_by_partition: dict[int, list[Segment]]
    sizes: dict[str, int]
    written_ms: int
    report: VerifyReport
    looking: Looking


def load_subject(
    store: ObjectStore, topic_id: str, report: VerifyReport, looking: Looking
) -> Subject:
    """Load the topic with this id. Raises `CorruptTopicError` if the state or the index are
    damaged, and `StorageError` if the store fails."""
    manifest = Manifest(store)
    snapshot = same_topic(manifest.load(), topic_id, store.url)
    report.leaves = len(snapshot.leaves)
    entries = manifest.state(snapshot).entries()
    segments = segments_of(entries)
    report.segments = len(segments)
    listed = list(store.list())
    return Subject(
        store=store,
        manifest=manifest,
        snapshot=snapshot,
        entries=entries,
        segments=segments,
        segments_by_partition={
            number: list(mine) for number, mine in groupby(segments, lambda s: s.partition)
        },
        sizes={entry.key: entry.size_bytes for entry in listed},
        written_ms=max((entry.modified_ms for entry in listed), default=0),
        report=report,
        looking=looking,
    )


def problem_of(error: LogTableError, path: str) -> Problem:
    """The problem that an error describes. `path` is used if the error names no path. The error is
    not a failure of the store, which proves nothing; see `Looking`."""
    if isinstance(error, CorruptTopicError):
        return Problem(error.rule, error.path, error.detail)
    if isinstance(error, SegmentGoneError):
        return Problem("SEG-1", error.path, f"it is missing: {error.detail}")
    return Problem("SEG-2", path, str(error))
