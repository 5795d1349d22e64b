"""What to run on a topic, and why. Pure: the same numbers give the same advice."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from pylogtable.report.health import FailedTopic, GroupHealth, TopicHealth
from pylogtable.results.text import bytes_text, duration_text, percent_text

#: From how many segments on that could be joined a merge is worth its while.
MANY_SMALL = 32
#: From how many replaced files on a vacuum is.
MANY_REPLACED = 32
#: A partition is too large if it has this many times its share, or so much of all there is, once
#: the topic has so many records.
SKEW = 4
MOST = 0.75
ENOUGH_RECORDS = 10_000
#: A group is late if so little of `retention.ms` is left to it.
TIME_LEFT = 0.2

URGENCIES = ("now", "soon", "look")
_NAMED = 8


@dataclass(frozen=True)
class Advice:
    """A command and why to run it: `now` before data is lost, `soon` to keep the topic in shape, or
    to `look` at what may be meant so."""

    command: str
    why: str
    urgency: str = "soon"


def advise(topic: TopicHealth, store_url: str) -> list[Advice]:
    """All that there is to do, the most urgent first."""
    found = [
        *_groups(topic, store_url),
        *_retain(topic, store_url),
        *_compact(topic, store_url),
        *_merge(topic, store_url),
        *_vacuum(topic, store_url),
        *_spread(topic, store_url),
    ]
    return sorted(found, key=lambda advice: URGENCIES.index(advice.urgency))


def advise_failed(topic: FailedTopic, store_url: str) -> list[Advice]:
    """What to do about a topic that cannot be read."""
    why = f"it cannot be read: {topic.error}"
    return [Advice(_command("verify", topic.name, store_url), why, "now")]


def _groups(topic: TopicHealth, url: str) -> Iterator[Advice]:
    for group in topic.groups:
        describe = _command("groups describe", group.group, url, topic=topic.name)
        if group.error is not None:
            which = f"group {group.group}" if group.group else "its groups"
            why = f"{which} cannot be read: {group.error}"
            yield Advice(_command("verify", topic.name, url), why, "look")
        if group.lost:
            yield Advice(
                describe,
                f"group {group.group} stands {group.lost:,} offset(s) before the log start: what "
                "was there is gone, and it goes on where its reset policy says",
                "now",
            )
        if group.expiring:
            yield Advice(
                describe,
                f"the next retention removes {group.expiring:,} record(s) that group "
                f"{group.group} has not read; let it catch up, or raise retention.ms",
                "now",
            )
        elif (late := _late(topic, group)) is not None:
            yield Advice(
                describe,
                f"group {group.group} has {duration_text(late)} left until retention removes "
                "records that it has not read",
                "now",
            )


def _late(topic: TopicHealth, group: GroupHealth) -> int | None:
    keep = topic.config.retention_ms
    if keep is None or group.left_ms is None or not 0 <= group.left_ms < TIME_LEFT * keep:
        return None
    return group.left_ms


def _retain(topic: TopicHealth, url: str) -> Iterator[Advice]:
    segments = topic.total("expired_segments")
    behind = [group.group for group in topic.groups if group.expiring]
    wait = f"; what {' and '.join(behind)} has not read is spared" if behind else ""
    if segments:
        yield Advice(
            _command("retain", topic.name, url, protect_group=behind),
            f"{segments:,} segment(s) with {topic.total('expired_records'):,} record(s), "
            f"{bytes_text(topic.total('expired_bytes'))}, are past retention{wait}",
        )


def _compact(topic: TopicHealth, url: str) -> Iterator[Advice]:
    cleanable = [part for part in topic.partitions if part.cleanable]
    if not cleanable:
        return
    limit = topic.config.min_cleanable_dirty_ratio
    dirty = [part for part in cleanable if (part.dirty_ratio or 0) > limit]
    if dirty:
        worst = max(part.dirty_ratio or 0 for part in dirty)
        why = (
            f"{_partitions([part.partition for part in dirty])}: up to {worst:.0%} dirty, more "
            f"than min.cleanable.dirty.ratio {limit:.0%}"
        )
    else:
        why = (
            f"{_partitions([part.partition for part in cleanable])}: records are dirty for longer "
            "than max.compaction.lag.ms, or tombstones may go"
        )
    yield Advice(_command("compact", topic.name, url), why)


def _merge(topic: TopicHealth, url: str) -> Iterator[Advice]:
    joinable = topic.total("joinable")
    if joinable < MANY_SMALL:
        return
    left = sum(
        max(1, -(-part.joinable_bytes // topic.config.segment_bytes))
        for part in topic.partitions
        if part.joinable
    )
    shifted = topic.total("shifted")
    kinds = f"{shifted:,} of them shifted" if shifted else "all sealed"
    yield Advice(
        _command("merge", topic.name, url),
        f"{joinable:,} segments are small or shifted ({kinds}) and would become about {left:,}",
    )


def _vacuum(topic: TopicHealth, url: str) -> Iterator[Advice]:
    if topic.growth.removable >= MANY_REPLACED:
        yield Advice(
            _command("vacuum", topic.name, url),
            f"about {topic.growth.removable:,} replaced file(s) are needed by no version that is "
            "kept; this shows them, and --yes removes them",
        )


def _spread(topic: TopicHealth, url: str) -> Iterator[Advice]:
    parts = topic.partitions
    records = topic.total("records")
    if len(parts) < 2 or records < ENOUGH_RECORDS:
        return
    largest = max(parts, key=lambda part: part.records)
    share = records / len(parts)
    if largest.records > min(SKEW * share, MOST * records):
        yield Advice(
            _command("offsets", topic.name, url),
            f"partition {largest.partition} has {percent_text(largest.records / records)} of all "
            "records; look for a key that many records share",
            "look",
        )
    empty = [part.partition for part in parts if part.end == 0]
    if empty:
        yield Advice(
            _command("offsets", topic.name, url),
            f"{_partitions(empty)} never had a record: there are fewer keys than partitions, or "
            "writers name the partitions",
            "look",
        )


def _partitions(numbers: list[int]) -> str:
    named = ", ".join(map(str, numbers[:_NAMED]))
    more = f" and {len(numbers) - _NAMED:,} more" if len(numbers) > _NAMED else ""
    return f"partition{'s' if len(numbers) > 1 else ''} {named}{more}"


def _command(verb: str, name: str, url: str, **options: str | list[str]) -> str:
    """As it is typed; an option that is a list is repeated."""
    words = ["pylogtable", *verb.split(), name]
    for option, values in {**options, "store": url}.items():
        for value in [values] if isinstance(values, str) else values:
            words += [f"--{option.replace('_', '-')}", value]
    return shlex.join(words)
