"""The section about one topic: charts, tables and short explanations. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from pylogtable.format.config import FOREVER
from pylogtable.groups.report import no_position_text
from pylogtable.presentation import (
    bytes_text,
    count_text,
    duration_text,
    number_text,
    percent_text,
)
from pylogtable.read.description import PublishedStatus
from pylogtable.report.advice import Advice
from pylogtable.report.health import PartitionHealth, TopicHealth, UnreadableTopic
from pylogtable.report.page.parts import ROWS_SHOWN, advice_list, ago, tiles, wide_table
from pylogtable.report.page.topic_charts import (
    dirty_chart,
    growth_charts,
    lag_chart,
    offset_chart,
    size_chart,
    time_chart,
)

Column = tuple[str, Callable[[PartitionHealth], str]]

#: The columns of the table of partitions: heading and cell.
COLUMNS: tuple[Column, ...] = (
    ("partition", lambda part: str(part.partition)),
    ("log start", lambda part: number_text(part.log_start)),
    ("end", lambda part: number_text(part.end)),
    ("records", lambda part: number_text(part.records)),
    ("size", lambda part: bytes_text(part.size_bytes)),
    ("segments", lambda part: number_text(part.segments)),
    ("small", lambda part: number_text(part.small_segments)),
    ("shifted", lambda part: number_text(part.shifted_segments)),
    ("in commits", lambda part: number_text(part.inline_segments)),
)
COMPACTED_COLUMNS: tuple[Column, ...] = (
    ("clean to", lambda part: number_text(part.clean_end)),
    ("dirty", lambda part: percent_text(part.dirty_ratio)),
)


def topic_section(
    topic: TopicHealth, advice: Sequence[Advice], anchor: str, *, is_open: bool
) -> str:
    """A topic that could be read."""
    parts = [
        tiles(
            ("records", f"{topic.total('records'):,}"),
            ("in segments", bytes_text(topic.total("size_bytes"))),
            ("segments", f"{topic.total('segments'):,}"),
            ("partitions", f"{len(topic.partitions):,}"),
            ("newest commit", ago(topic)),
            ("version", f"{topic.version:,}"),
            *((f"{table.format} table", _behind(table)) for table in topic.published),
        )
    ]
    if advice:
        parts.append(advice_list(((given, topic.name) for given in advice), with_topic=False))
    parts += [_partitions(topic), _segments(topic), _sizes(topic), _growth(topic), _lag(topic)]
    parts.append(_settings(topic))
    key = f"keyed by {', '.join(topic.key)}" if topic.key else "no key"
    return (
        f'<details id="{anchor}"{" open" if is_open else ""}><summary><b>{escape(topic.name)}</b>'
        f'<span class="quiet">{escape(topic.settings["cleanup.policy"])} · {escape(key)}'
        f"{f' · {len(advice)} to do' if advice else ''}</span></summary>{''.join(parts)}</details>"
    )


def _behind(table: PublishedStatus) -> str:
    """How far a published table is behind, in few words."""
    if not table.lag_records and table.lag_ms < 1000:
        return "up to date"
    return f"{number_text(table.lag_records)} records, {duration_text(table.lag_ms)} behind"


def unreadable_section(topic: UnreadableTopic, anchor: str) -> str:
    """A topic that could not be read, and why."""
    return (
        f'<details id="{anchor}" open><summary><b>{escape(topic.name)}</b>'
        f'<span class="quiet">cannot be read</span></summary><p>{escape(topic.error)}</p></details>'
    )


def _partitions(topic: TopicHealth) -> str:
    shown = topic.partitions[:ROWS_SHOWN]
    columns = (*COLUMNS, *COMPACTED_COLUMNS) if topic.config.is_compacted else COLUMNS
    head = [name for name, _ in columns]
    rows = [[cell(part) for _, cell in columns] for part in shown]
    more = len(topic.partitions) - len(shown)
    note = f"<p><small>{more:,} more partitions are not listed.</small></p>" if more else ""
    dirty = dirty_chart(topic) if topic.config.is_compacted else ""
    return f"<h3>Partitions</h3>{wide_table(head, rows)}{note}" + (
        f'<div class="charts">{dirty}</div>' if dirty else ""
    )


def _segments(topic: TopicHealth) -> str:
    if not topic.total("segments"):
        return "<h3>Segments</h3><p>The log is empty.</p>"
    return f"<h3>Segments</h3>{offset_chart(topic)}"


def _sizes(topic: TopicHealth) -> str:
    segments, small = topic.total("segments"), topic.total("small_segments")
    if not segments:
        return ""
    limit = topic.config.segment_bytes
    shifted = topic.total("shifted_segments")
    text = (
        f"{small:,} of {segments:,} segments ({percent_text(small / segments)}) are small: at most "
        f"half of segment.bytes, which is {bytes_text(limit)}. {shifted:,} are shifted: plain "
        "Parquet readers see wrong offsets in them. A merge would rewrite "
        f"{topic.total('mergeable_segments'):,}."
    )
    inline = topic.total("inline_segments")
    if inline:
        text += (
            f" {inline:,} with {count_text(topic.total('inline_records'), 'record')} are in "
            "commits and have no files: small appends."
        )
    return f'<div class="charts">{time_chart(topic)}{size_chart(topic)}</div><p>{escape(text)}</p>'


def _growth(topic: TopicHealth) -> str:
    growth = topic.growth
    which = "all" if growth.is_complete else "the newest"
    head = ["operation", "commits", "segments added", "records added", "bytes added"]
    rows = [
        [
            operation.operation,
            f"{operation.commits:,}",
            f"{operation.segments_added:,}",
            f"{operation.records_added:,}",
            bytes_text(operation.bytes_added),
            f"{operation.segments_removed:,}",
        ]
        for operation in growth.operations
    ]
    files = ""
    if growth.removable_files or growth.waiting_files:
        files = (
            "<p>Files that these commits replaced or dropped: a vacuum can remove about "
            f"{growth.removable_files:,} now; versions that are kept still need "
            f"{growth.waiting_files:,}.</p>"
        )
    charts = growth_charts(topic)
    return (
        f"<h3>Growth <small>{which} {count_text(growth.commits, 'commit')}</small></h3>"
        + (f'<div class="charts">{charts}</div>' if charts else "")
        + wide_table([*head, "segments removed"], rows)
        + files
    )


def _lag(topic: TopicHealth) -> str:
    if not topic.groups:
        return ""
    head = ["group", "partition", "position", "end", "lag", "lag bytes", "lag time"]
    rows = [
        [
            group.group,
            str(partition),
            number_text(lag.position),
            number_text(lag.end_offset),
            number_text(lag.records),
            bytes_text(lag.bytes),
            duration_text(lag.seconds * 1000),
        ]
        for group in topic.groups
        if group.lag is not None
        for partition, lag in group.lag.items()
    ]
    more = len(rows) - ROWS_SHOWN
    note = f"<p><small>{more:,} more rows are not listed.</small></p>" if more > 0 else ""
    nowhere = "".join(
        f'<p class="bad">{escape(group.group)}: {no_position_text(len(without))}</p>'
        for group in topic.groups
        if group.lag is not None and (without := group.lag.without_position)
    )
    failed = "".join(
        f'<p class="bad">{escape(group.group or "all groups")}: {escape(group.error)}</p>'
        for group in topic.groups
        if group.error
    )
    return (
        f'<h3>Consumer groups</h3><div class="charts">{lag_chart(topic)}</div>'
        f"{wide_table(head, rows[:ROWS_SHOWN]) if rows else ''}{note}{nowhere}{failed}"
    )


def _settings(topic: TopicHealth) -> str:
    entries = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{_setting(key, value)}</dd></div>"
        for key, value in topic.settings.items()
    )
    return f'<h3>Settings</h3><dl class="settings">{entries}</dl>'


def _setting(key: str, value: str) -> str:
    """A value as it is set, and in words if that helps."""
    words = ""
    if value == str(FOREVER):
        return "no limit"
    if value == "-1":
        words = "no limit"
    elif key.endswith(".ms") and int(value) >= 1000:
        words = duration_text(int(value))
    elif key.endswith(".bytes") and int(value) >= 1024:
        words = bytes_text(int(value))
    return f"{escape(value)} <small>{words}</small>" if words else escape(value)
