"""Plans the snapshots of an Iceberg table. Pure.

A stream over an Iceberg table reads the files of snapshots that append, skips those that replace,
and stops at others, or is told to skip them. So files with new records never share a snapshot with
a merge of old ones [PUB-4].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pylogtable.format.model import Segment
from pylogtable.publish.plan import TableChange, TableFile

#: The most entries of a manifest. A manifest with less than half as many is small.
MAX_ENTRIES = 2000
#: With more small manifests than this, they are merged: opening the table stays cheap.
MAX_SMALL_MANIFESTS = 100

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


def live_files(manifest: Sized) -> int:
    """How many files of a manifest the table shows."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


_M = TypeVar("_M", bound=Sized)


def to_merge(manifests: Sequence[_M]) -> list[_M]:
    """The manifests to merge: all small ones, if there are too many."""
    small = [manifest for manifest in manifests if live_files(manifest) < MAX_ENTRIES // 2]
    return small if len(small) > MAX_SMALL_MANIFESTS else []


def chunks(entries: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """The entries of one manifest after the other."""
    for start in range(0, len(entries), MAX_ENTRIES):
        yield entries[start : start + MAX_ENTRIES]
