"""Which commands to run on a topic, and why. Pure: the same numbers give the same advice."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pylogtable.format.config import DAY_MS, LATEST
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.presentation import bytes_text, count_text, duration_text, percent_text
from pylogtable.report.health import GroupHealth, TopicHealth, UnreadableTopic

#: A merge is worth running from this many mergeable segments on.
MANY_MERGEABLE = 32
#: So is a merge if this share of all segments is shifted.
SHIFTED_SHARE = 0.5
#: A vacuum is worth running from this many removable files on.
MANY_REMOVABLE = 32
#: A partition is too large if it has this many times its even share of the records,
SKEW_FACTOR = 4
#: or this share of all records,
SKEW_SHARE = 0.75
#: once the topic has this many records.
SKEW_MIN_RECORDS = 10_000
#: A group is late if less than this part of `retention.ms` is left before it loses records.
LATE_SHARE = 0.2
#: A published table is late from here on. After a week, streams over it may have to begin again.
LATE_TABLE_MS = DAY_MS

URGENCIES = ("now", "soon", "look")
_PARTITIONS_NAMED = 8


@dataclass(frozen=True)
class Advice:
    """A command and the reason to run it. Urgency "now": records are being lost or the topic cannot
    be read. "soon": maintenance is due. "look": something looks unusual but may be intended."""

    command: str
    why: str
    urgency: str = "soon"


def advise(topic: TopicHealth, store_url: str) -> list[Advice]:
    """All advice about a topic, the most urgent first."""
    found = [advice for source in _SOURCES for advice in source(topic, store_url)]
    return sorted(found, key=lambda advice: URGENCIES.index(advice.urgency))


def advise_unreadable(topic: UnreadableTopic, store_url: str) -> list[Advice]:
    """Advice about a topic that cannot be read."""
    why = f"the topic cannot be read: {topic.error}"
    return [Advice(_command("verify", topic.name, store_url), why, "now")]


def _groups(topic: TopicHealth, url: str) -> Iterator[Advice]:
    for group in topic.groups:
        describe = _command("groups describe", group.group, url, topic=topic.name)
        if group.error is not None:
            which = f"group {group.group}" if group.group else "the topic's groups"
            why = f"{which} cannot be read: {group.error}"
            yield Advice(_command("verify", topic.name, url), why, "look")
        unread = _without_position(group)
        if unread:
            yield Advice(
                describe,
                f"group {group.group} has no committed position in "
                f"{count_text(len(unread), 'partition')}, and the "
                f"{count_text(sum(unread), 'record')} there count as unread",
                "look",
            )
        if group.lost_offsets:
            yield Advice(
                describe,
                f"group {group.group} is {count_text(group.lost_offsets, 'offset')} behind the log "
                "start: those records are gone, and its reset policy decides where it continues",
                "now",
            )
        if group.expiring_records:
            yield Advice(
                describe,
                f"the next retention removes {count_text(group.expiring_records, 'record')} that "
                f"group {group.group} has not read; let the group catch up, or raise retention.ms",
                "now",
            )
        elif (left_ms := _ms_left_if_late(topic, group)) is not None:
            yield Advice(
                describe,
                f"in {duration_text(left_ms)} retention may remove records that group "
                f"{group.group} has not read",
                "now",
            )


def _without_position(group: GroupHealth) -> list[int]:
    """The records of each partition that has some, and no position of the group."""
    lags = () if group.lag is None else group.lag.values()
    return [lag.records for lag in lags if lag.position is None and lag.records]


def _ms_left_if_late(topic: TopicHealth, group: GroupHealth) -> int | None:
    retention_ms, left_ms = topic.config.retention_ms, group.ms_until_loss
    if retention_ms is None or left_ms is None:
        return None
    return left_ms if 0 <= left_ms < LATE_SHARE * retention_ms else None


def _retention(topic: TopicHealth, url: str) -> Iterator[Advice]:
    segments = topic.total("expired_segments")
    behind = [group.group for group in topic.groups if group.expiring_records]
    kept = f"; records that {' and '.join(behind)} has not read are kept" if behind else ""
    if segments:
        yield Advice(
            _command("retain", topic.name, url, protect_group=behind),
            f"{count_text(segments, 'segment')} with "
            f"{count_text(topic.total('expired_records'), 'record')} "
            f"({bytes_text(topic.total('expired_bytes'))}) are past retention{kept}",
        )


def _compaction(topic: TopicHealth, url: str) -> Iterator[Advice]:
    cleanable = [part for part in topic.partitions if part.cleanable]
    if not cleanable:
        return
    limit = topic.config.min_cleanable_dirty_ratio
    dirty = [part for part in cleanable if (part.dirty_ratio or 0) > limit]
    if dirty:
        worst = max(part.dirty_ratio or 0 for part in dirty)
        why = (
            f"{_partitions([part.partition for part in dirty])}: up to {percent_text(worst)} "
            f"dirty, above min.cleanable.dirty.ratio ({percent_text(limit)})"
        )
    else:
        why = (
            f"{_partitions([part.partition for part in cleanable])}: records have been dirty for "
            "longer than max.compaction.lag.ms, or tombstones can be removed"
        )
    yield Advice(_command("compact", topic.name, url), why)


def _merge(topic: TopicHealth, url: str) -> Iterator[Advice]:
    inline = topic.total("inline_segments")
    mergeable = topic.total("mergeable_segments") - inline
    is_worth_files = inline >= DEFAULT_LIMITS.worth_segments or any(
        part.inline_bytes >= DEFAULT_LIMITS.worth_bytes for part in topic.partitions
    )
    if is_worth_files:
        yield Advice(
            _command("merge", topic.name, url),
            f"{count_text(topic.total('inline_records'), 'record')} in "
            f"{count_text(inline, 'segment')} are in commits, and are worth files by now",
        )
        return
    shifted, segments = topic.total("shifted_segments"), topic.total("segments")
    is_mostly_shifted = shifted > 1 and shifted >= SHIFTED_SHARE * segments
    if mergeable < MANY_MERGEABLE:
        if is_mostly_shifted:
            yield Advice(
                _command("merge", topic.name, url),
                f"{shifted:,} of {count_text(segments, 'segment')} are shifted, as appends of "
                "several tasks or writers leave them. A merge seals them. Until then, filters on "
                "offset do not reach these files in Spark, and other Parquet readers see wrong "
                "offsets",
            )
        return
    after = sum(
        max(1, -(-part.mergeable_bytes // topic.config.segment_bytes))
        for part in topic.partitions
        if part.mergeable_segments
    )
    kinds = f" ({shifted:,} of them shifted)" if shifted else ""
    yield Advice(
        _command("merge", topic.name, url),
        f"{count_text(mergeable, 'small or shifted segment')}{kinds} would become about {after:,}",
    )


def _vacuum(topic: TopicHealth, url: str) -> Iterator[Advice]:
    removable = topic.growth.removable_files
    if removable >= MANY_REMOVABLE:
        yield Advice(
            _command("vacuum", topic.name, url),
            f"about {count_text(removable, 'replaced file')} can be removed; this command lists "
            "them, and --yes removes them",
        )


def _skew(topic: TopicHealth, url: str) -> Iterator[Advice]:
    parts = topic.partitions
    records = topic.total("records")
    if len(parts) < 2 or records < SKEW_MIN_RECORDS:
        return
    largest = max(parts, key=lambda part: part.records)
    even_share = records / len(parts)
    if largest.records > min(SKEW_FACTOR * even_share, SKEW_SHARE * records):
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
            "writers choose partitions themselves",
            "look",
        )


def _publication(topic: TopicHealth, url: str) -> Iterator[Advice]:
    shown = {table.format: table for table in topic.published}
    for name in sorted(topic.config.publish_formats):
        table = shown.get(name)
        if table is None:
            why = f"publish.formats asks for a {name} table, and there is none"
            yield Advice(_command("publish", topic.name, url), why)
        elif table.lag_ms > LATE_TABLE_MS:
            why = f"the {name} table is {duration_text(table.lag_ms)} behind"
            yield Advice(_command("publish", topic.name, url), why)


def _compacted_table(topic: TopicHealth, url: str) -> Iterator[Advice]:
    """What `maintain` would compact now is other advice."""
    limit = topic.config.min_cleanable_dirty_ratio
    left = [part for part in topic.partitions if not part.cleanable]
    records = sum(part.records_not_compacted for part in left)
    shows_records = any(table.view != LATEST for table in topic.published)
    if not records or not shows_records or not limit:
        return
    yield Advice(
        _command("topics alter", topic.name, url, config="min.cleanable.dirty.ratio=0"),
        f"published tables show {count_text(records, 'record')} above the last compaction, so a "
        "key may have several rows, and sums over a table may be too large. `maintain` compacts a "
        f"partition that is more than {percent_text(limit)} dirty; with 0 it compacts before each "
        "publication. It is not needed if queries take the newest record of each key",
        "look",
    )


#: To give new advice, add a function here.
_SOURCES: tuple[Callable[[TopicHealth, str], Iterator[Advice]], ...] = (
    _groups,
    _retention,
    _compaction,
    _merge,
    _publication,
    _compacted_table,
    _vacuum,
    _skew,
)


def _partitions(numbers: list[int]) -> str:
    named = ", ".join(map(str, numbers[:_PARTITIONS_NAMED]))
    left = len(numbers) - _PARTITIONS_NAMED
    more = f" and {left:,} more" if left > 0 else ""
    return f"partition{'s' if len(numbers) > 1 else ''} {named}{more}"


def _command(verb: str, name: str, url: str, **options: str | list[str]) -> str:
    """The command line to type. An option with a list of values is repeated."""
    words = ["pylogtable", *verb.split(), name]
    for option, values in {**options, "store": url}.items():
        for value in [values] if isinstance(values, str) else values:
            words += [f"--{option.replace('_', '-')}", value]
    return shlex.join(words)
