"""Decides which jobs of a topic are due, and when to look at it again. Pure.

A job is due when there is news for it: the topic has a version that the job has not seen, or time
has passed that its settings count. How much news is enough depends on the job. A process that has
just started knows nothing of earlier runs, so everything but vacuum is due at once: a job that
finds nothing to do is cheap.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pylogtable.format.snapshot import Snapshot

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

#: Kafka's `log.retention.check.interval.ms`, `log.cleaner.backoff.ms` and
#: `offsets.retention.check.interval.ms`.
RETENTION_MS = 5 * MINUTE_MS
COMPACTION_MS = 15_000
GROUP_EXPIRY_MS = 10 * MINUTE_MS
#: A topic that has not changed may still have tombstones to remove, or records that are overdue.
QUIET_COMPACTION_MS = HOUR_MS
#: A merge is worth a look when there are so many new segments, or after this time.
MERGE_SEGMENTS = 10
MERGE_MS = 5 * MINUTE_MS
#: A vacuum lists all files. It only removes what is a week old, so it is never urgent.
FIRST_VACUUM_MS = 15 * MINUTE_MS
VACUUM_MS = 6 * HOUR_MS
QUIET_VACUUM_MS = 24 * HOUR_MS

#: Somebody may have removed a published table or a copy of a topic that does not change.
CHECK_MS = 6 * HOUR_MS
#: Commits of groups make no version of the topic, so a mirror that copies them looks this often.
GROUPS_MS = 10_000

#: A job that finds nothing to do takes at most this part of the time: a large topic must not be
#: planned all the time. One that has found work, or has failed, may have more.
REST = 20
REST_AFTER_WORK = 2
#: After a failure a job waits a second, and twice as long after each further one, up to this.
LONGEST_WAIT_MS = 5 * MINUTE_MS

#: A topic that does not change is looked at less often, unless it is published.
QUIET_AFTER_MS = MINUTE_MS
QUIET_LOOK_MS = 30_000
#: A small `publish.max.lag.ms` makes no looks that come sooner than these; `--every` may.
LEAST_LOOK_MS = 100


@dataclass(frozen=True)
class Failing:
    """Something that fails: how often in a row, and when last."""

    failures: int
    ended_ms: int

    def waits(self, now_ms: int) -> bool:
        """Whether it is too soon to try it again."""
        return now_ms - self.ended_ms < min(LONGEST_WAIT_MS, 1000 << min(self.failures, 20))


@dataclass(frozen=True)
class LastRun:
    """The last run of a job on a topic. `version` is the newest version that it has seen, and
    `segments` counts those that were live then. `found_work` is true if it changed something.
    `failures` counts failures in a row. `failing` has the formats that a publication left behind.
    """

    version: int
    ended_ms: int
    took_ms: int
    segments: int = 0
    found_work: bool = False
    failures: int = 0
    failing: Mapping[str, Failing] = field(default_factory=dict)

    def waiting(self, now_ms: int) -> set[str]:
        """The formats that are not published now: one that fails must not make the others late."""
        return {name for name, format in self.failing.items() if format.waits(now_ms)}


@dataclass(frozen=True)
class Seen:
    """What the loop knows about a topic: its state, when it was opened and when it changed last,
    and since when there may be something that the published tables do not show."""

    snapshot: Snapshot
    opened_ms: int
    changed_ms: int
    unpublished_ms: int


def due_jobs(
    seen: Seen,
    last: Mapping[str, LastRun],
    wanted: Collection[str],
    look_ms: int,
    now_ms: int,
    *,
    copies_groups: bool = False,
) -> list[str]:
    """The wanted jobs that are due now, in their order. `look_ms` is the time between looks. A
    mirror may have to copy positions of groups."""
    mirror_ms = GROUPS_MS if copies_groups else CHECK_MS
    return [job for job in wanted if _is_due(job, seen, last.get(job), look_ms, now_ms, mirror_ms)]


def _is_due(
    job: str, seen: Seen, last: LastRun | None, look_ms: int, now_ms: int, mirror_ms: int
) -> bool:
    if last is None:
        return job != "vacuum" or now_ms - seen.opened_ms >= FIRST_VACUUM_MS
    waited_ms = now_ms - last.ended_ms
    if last.failures:
        has_rested = waited_ms >= REST_AFTER_WORK * last.took_ms
        return has_rested and not Failing(last.failures, last.ended_ms).waits(now_ms)
    has_news = seen.snapshot.version > last.version
    if job == "publication":
        formats = {*seen.snapshot.config.publish_formats} - last.waiting(now_ms)
        if formats.intersection(last.failing) or (formats and waited_ms >= CHECK_MS):
            return True
        has_news = has_news and bool(formats)
        unpublished_ms = now_ms - seen.unpublished_ms
        return has_news and not _may_wait(seen.snapshot, unpublished_ms + look_ms + last.took_ms)
    if job == "mirror":
        return has_news or waited_ms >= mirror_ms
    if waited_ms < (REST_AFTER_WORK if last.found_work else REST) * last.took_ms:
        return False
    if job == "merge":
        grown = live_segments(seen.snapshot) - last.segments
        is_worth = has_news and (last.found_work or grown >= MERGE_SEGMENTS)
        return is_worth or (waited_ms >= MERGE_MS and (has_news or _has_left(seen.snapshot)))
    if job == "compaction":
        return waited_ms >= (COMPACTION_MS if has_news else QUIET_COMPACTION_MS)
    if job == "vacuum":
        return waited_ms >= (VACUUM_MS if has_news else QUIET_VACUUM_MS)
    return waited_ms >= (RETENTION_MS if job == "retention" else GROUP_EXPIRY_MS)


def _has_left(snapshot: Snapshot) -> bool:
    """Whether publications may have left work to a merge [PUB-2], though nothing is new."""
    inline = snapshot.inline if snapshot.config.publish_formats else None
    return inline is not None and inline.segments > 0


def _may_wait(snapshot: Snapshot, lag_ms: int) -> bool:
    """Whether a publication may come with the next look, and the tables be so late then. More
    records go into one publication so. A part of `publish.max.lag.ms` stays for the engine that
    reads, and for a busy machine."""
    return lag_ms <= snapshot.config.publish_max_lag_ms * 6 // 10


def look_after_ms(seen: Seen, wanted: Collection[str], every_ms: int, now_ms: int) -> int:
    """After how long to look at the topic again."""
    quiet_ms = now_ms - seen.changed_ms
    config = seen.snapshot.config
    if "publication" in wanted and config.publish_formats:
        part = 4 if quiet_ms < QUIET_AFTER_MS else 2
        return min(every_ms, max(LEAST_LOOK_MS, config.publish_max_lag_ms // part))
    if quiet_ms < QUIET_AFTER_MS or "mirror" in wanted:
        return every_ms
    return max(every_ms, min(QUIET_LOOK_MS, quiet_ms // 4))


def live_segments(snapshot: Snapshot) -> int:
    """How many segments the topic has."""
    return sum(state.live.segments for state in snapshot.partitions)
