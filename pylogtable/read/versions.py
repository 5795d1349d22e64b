"""Finds a version of a topic: the newest, by number, or by time."""

from __future__ import annotations

from datetime import datetime

from pylogtable.errors import InvalidRequestError
from pylogtable.format.snapshot import Snapshot
from pylogtable.format.times import Moment, to_us
from pylogtable.log.head import Head


def version_at(name: str, head: Head, when: Moment) -> int:
    """The newest version of topic `name` that was committed at or before `when`."""
    found = head.manifest.commits.version_at(to_us(when) // 1000, head.latest())
    if found is None:
        raise InvalidRequestError(
            f"topic {name!r} has no version as old as {when}; history() lists versions"
        )
    return found


def snapshot_at(name: str, head: Head, version: int | datetime | None) -> Snapshot:
    """The state of topic `name` at a version: a number, a time, or None for the newest."""
    newest = head.latest()
    if isinstance(version, datetime):
        version = version_at(name, head, version)
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        raise InvalidRequestError(f"{version!r} is not a version: give a number or a datetime")
    if version is None or version == newest.version:
        return newest
    if not 0 <= version < newest.version:
        raise InvalidRequestError(
            f"topic {name!r} has no version {version}; the newest is {newest.version}"
        )
    snapshot = head.manifest.load_at(version)
    if snapshot is None or snapshot.topic_id != newest.topic_id:  # [READ-5]
        raise InvalidRequestError(
            f"version {version} of topic {name!r} is no longer kept; history() lists versions"
        )
    return snapshot
