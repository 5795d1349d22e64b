"""The samples of a topic. Pure. Ages count to the look, as the rest does: counted to the scrape, a
table or a group that is never late would seem to be."""

from __future__ import annotations

from collections.abc import Iterator

from pylogtable.metrics import catalog as known
from pylogtable.metrics.catalog import Metric
from pylogtable.metrics.sample import Sample
from pylogtable.metrics.topic_figures import (
    GroupFigures,
    SegmentFigures,
    StateFigures,
    TableFigures,
)
from pylogtable.metrics.topic_watch import TopicWatch


def topic_samples(store: str, watch: TopicWatch, *, per_partition: bool) -> Iterator[Sample]:
    """All samples of a topic. One that cannot be read has a single one, which says so."""
    labels = (store, watch.name)
    if watch.error is not None or watch.state is None:
        yield Sample(known.TOPIC_UP, labels, 0)
        return
    yield Sample(known.TOPIC_UP, labels, 1)
    yield from _of_state(labels, watch.state)
    if watch.segments is not None:
        yield from _of_segments(labels, watch.segments)
    for table in watch.tables:
        yield from _of_table((*labels, table.format), table)
    for group in watch.groups:
        yield from _of_group((*labels, group.group), group)
    if per_partition:
        yield from _of_partitions(labels, watch)


def _of_state(labels: tuple[str, ...], state: StateFigures) -> Iterator[Sample]:
    snapshot = state.snapshot
    values: dict[Metric, float | None] = {
        known.TOPIC_PARTITIONS: len(snapshot.partitions),
        known.TOPIC_VERSION: snapshot.version,
        known.TOPIC_OFFSETS: sum(one.end for one in snapshot.partitions),
        known.TOPIC_REMOVED_OFFSETS: sum(one.log_start for one in snapshot.partitions),
        known.TOPIC_RECORDS: state.live.records,
        known.TOPIC_SIZE: state.live.size_bytes,
        known.TOPIC_SEGMENTS: state.live.segments,
        known.TOPIC_INLINE_RECORDS: None if state.inline is None else state.inline.records,
        known.TOPIC_INLINE_SEGMENTS: None if state.inline is None else state.inline.segments,
        known.TOPIC_NEWEST_RECORD: None
        if state.newest_record_us is None
        else state.newest_record_us / 1_000_000,
        known.TOPIC_NEWEST_COMMIT: snapshot.committed_at_ms / 1000,
    }
    for metric, value in values.items():
        if value is not None:
            yield Sample(metric, labels, value)


def _of_segments(labels: tuple[str, ...], segments: SegmentFigures) -> Iterator[Sample]:
    yield Sample(known.TOPIC_SMALL_SEGMENTS, labels, segments.small)
    yield Sample(known.TOPIC_SHIFTED_SEGMENTS, labels, segments.shifted)
    yield Sample(known.TOPIC_MERGEABLE_SEGMENTS, labels, segments.mergeable)
    yield Sample(known.TOPIC_MEASURED, labels, segments.measured_ms / 1000)
    if segments.dirty_ratio is not None:
        yield Sample(known.TOPIC_DIRTY_RATIO, labels, segments.dirty_ratio)


def _of_table(labels: tuple[str, ...], table: TableFigures) -> Iterator[Sample]:
    yield Sample(known.PUBLICATION_UP, labels, int(table.is_up))
    if table.is_up:
        yield Sample(known.PUBLICATION_LAG_RECORDS, labels, table.lag_records)
        yield Sample(known.PUBLICATION_LAG_SECONDS, labels, table.lag_seconds)


def _of_group(labels: tuple[str, ...], group: GroupFigures) -> Iterator[Sample]:
    yield Sample(known.GROUP_UP, labels, int(group.is_up))
    if group.is_up:
        behind = group.behind.values()
        yield Sample(known.GROUP_MEMBERS, labels, group.members)
        yield Sample(known.GROUP_LAG_RECORDS, labels, sum(one.records for one in behind))
        yield Sample(known.GROUP_LAG_SECONDS, labels, group.lag_seconds)


def _of_partitions(labels: tuple[str, ...], watch: TopicWatch) -> Iterator[Sample]:
    assert watch.state is not None
    for number, state in enumerate(watch.state.snapshot.partitions):
        mine = (*labels, str(number))
        yield Sample(known.PARTITION_END, mine, state.end)
        yield Sample(known.PARTITION_LOG_START, mine, state.log_start)
        yield Sample(known.PARTITION_RECORDS, mine, state.live.records)
        yield Sample(known.PARTITION_SIZE, mine, state.live.size_bytes)
        for group in watch.groups:
            if group.is_up:
                unread = group.behind[number].records if number in group.behind else 0
                group_labels = (*labels, group.group, str(number))
                yield Sample(known.GROUP_PARTITION_LAG, group_labels, unread)
