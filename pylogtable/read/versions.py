"""Finds a version of a topic: the newest, by number, or by time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from pylogtable.errors import InvalidRequestError, LogTableError, SegmentGoneError
from pylogtable.format.paths import object_of
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.manifest import Manifest
from pylogtable.log.topic_log import TopicLog
from pylogtable.times import Moment, to_us


def version_at(name: str, log: TopicLog, when: Moment) -> int:
    """The newest version of topic `name` that was committed at or before `when`."""
    newest = log.latest()
    found = log.manifest.commits.version_at(to_us(when) // 1000, newest)
    if found is None:
        raise InvalidRequestError(
            f"topic {name!r} has no version as old as {when}: it was created later, or a vacuum "
            f"has removed that version. {_oldest_text(log.manifest, newest)}"
        )
    return found


def snapshot_at(name: str, log: TopicLog, version: int | datetime | None) -> Snapshot:
    """The state of topic `name` at a version: a number, a time, or None for the newest."""
    newest = log.latest()
    if isinstance(version, datetime):
        version = version_at(name, log, version)
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        raise InvalidRequestError(f"{version!r} is not a version: give a number or a datetime")
    if version is None or version == newest.version:
        return newest
    if not 0 <= version < newest.version:
        raise InvalidRequestError(
            f"topic {name!r} has no version {version}; the newest is {newest.version}"
        )
    snapshot = log.manifest.load_at(version)
    if snapshot is None or snapshot.topic_id != newest.topic_id:  # [READ-5]
        raise InvalidRequestError(
            f"version {version} of topic {name!r} is no longer kept: a vacuum has removed it, or "
            f"it is of an earlier topic. {_oldest_text(log.manifest, newest)}"
        )
    return snapshot


def oldest_readable(manifest: Manifest, newest: Snapshot, gone: int = -1) -> int | None:
    """The oldest version after `gone` whose data files, and commits with records, are all there.
    None if some of the newest one are missing: then no vacuum has removed them. It lists the topic,
    so it is for errors only."""
    there = {entry.key for entry in manifest.store.list()}

    def is_readable(version: int) -> bool:
        snapshot = newest if version == newest.version else manifest.load_at(version)
        if snapshot is None or snapshot.topic_id != newest.topic_id:
            return False
        paths = manifest.state(snapshot).entries()["path"].to_pylist()
        return there.issuperset(map(object_of, paths))

    if not is_readable(newest.version):
        return None
    # A vacuum keeps all that a version and the later ones need. So one can be bisected. Versions
    # before may be there as well: commits with live records stay.
    low, high = max(gone + 1, manifest.oldest_version(newest)), newest.version
    while low < high:
        middle = (low + high) // 2
        if is_readable(middle):
            high = middle
        else:
            low = middle + 1
    return high


@contextmanager
def explain_gone_files(manifest: Manifest, version: int = -1) -> Iterator[None]:
    """Let an error about a file that is gone say which version is the oldest that can be read after
    this one, or that the topic was deleted."""
    try:
        yield
    except SegmentGoneError as error:
        oldest, is_deleted = None, False
        with suppress(LogTableError):
            newest = manifest.load()
            is_deleted = newest is not None and newest.topic is None
            if newest is not None and not is_deleted:
                oldest = oldest_readable(manifest, newest, version)
        raise SegmentGoneError(error.path, error.detail, oldest, is_deleted) from error


def _oldest_text(manifest: Manifest, newest: Snapshot) -> str:
    with suppress(LogTableError):
        oldest = oldest_readable(manifest, newest)
        if oldest is not None:
            return f"The oldest version that can be read is {oldest}, the newest {newest.version}"
    return f"The newest is {newest.version}; history() lists versions"
