"""One topic in the report: pictures, the tables beside them, and what they mean. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pylogtable.format.config import FOREVER
from pylogtable.report.advise import Advice
from pylogtable.report.health import FailedTopic, TopicHealth
from pylogtable.report.page.parts import (
    ROWS_SHOWN,
    advice_list,
    ago,
    table_of,
    tiles,
)
from pylogtable.report.page.pictures import (
    dirty_picture,
    growth_pictures,
    lag_picture,
    offset_picture,
    size_picture,
    time_picture,
)
from pylogtable.results.text import bytes_text, duration_text, percent_text


def topic_section(
    topic: TopicHealth, advice: Sequence[Advice], anchor: str, *, is_open: bool
) -> str:
    parts = [
        tiles(
            ("records", f"{topic.total('records'):,}"),
            ("in segments", bytes_text(topic.total("size_bytes"))),
            ("segments", f"{topic.total('segments'):,}"),
            ("partitions", f"{len(topic.partitions):,}"),
            ("newest commit", ago(topic)),
            ("version", f"{topic.version:,}"),
        )
    ]
    if advice:
        parts.append(advice_list(((given, topic.name) for given in advice), with_topic=False))
    parts += [_partitions(topic), _segments(topic), _pressure(topic), _growth(topic), _lag(topic)]
    parts.append(_settings(topic))
    key = f"keyed by {', '.join(topic.key)}" if topic.key else "no key"
    return (
        f'<details id="{anchor}"{" open" if is_open else ""}><summary><b>{escape(topic.name)}</b>'
        f'<span class="quiet">{escape(topic.settings["cleanup.policy"])} · {escape(key)}'
        f"{f' · {len(advice)} to do' if advice else ''}</span></summary>{''.join(parts)}</details>"
    )


def failed_section(topic: FailedTopic, anchor: str) -> str:
    return (
        f'<details id="{anchor}" open><summary><b>{escape(topic.name)}</b>'
        f'<span class="quiet">cannot be read</span></summary><p>{escape(topic.error)}</p></details>'
    )


def _partitions(topic: TopicHealth) -> str:
    shown = topic.partitions[:ROWS_SHOWN]
    head = ["partition", "log start", "end", "records", "size", "segments", "small", "shifted"]
    if topic.config.is_compacted:
        head += ["clean to", "dirty"]
    rows = []
    for part in shown:
        row = [
            f"{part.partition}",
            f"{part.log_start:,}",
            f"{part.end:,}",
            f"{part.records:,}",
            bytes_text(part.size_bytes),
            f"{part.segments:,}",
            f"{part.small:,}",
            f"{part.shifted:,}",
        ]
        if topic.config.is_compacted:
            row += [f"{part.clean_end:,}", percent_text(part.dirty_ratio or 0)]
        rows.append(row)
    more = len(topic.partitions) - len(shown)
    note = f"<p><small>{more:,} more partitions are not listed.</small></p>" if more else ""
    dirty = dirty_picture(topic) if topic.config.is_compacted else ""
    return f"<h3>Partitions</h3>{table_of(head, rows)}{note}" + (
        f'<div class="charts">{dirty}</div>' if dirty else ""
    )


def _segments(topic: TopicHealth) -> str:
    if not topic.total("segments"):
        return "<h3>Segments</h3><p>There are none: the log is empty.</p>"
    return f"<h3>Segments</h3>{offset_picture(topic)}"


def _pressure(topic: TopicHealth) -> str:
    segments, small = topic.total("segments"), topic.total("small")
    if not segments:
        return ""
    limit = topic.config.segment_bytes
    shifted = topic.total("shifted")
    text = (
        f"{small:,} of {segments:,} segments ({percent_text(small / segments)}) are at most half "
        f"of segment.bytes, which is {bytes_text(limit)}; {shifted:,} are shifted (other Parquet "
        f"readers do not see their offsets); a merge would take {topic.total('joinable'):,}."
    )
    return (
        f'<div class="charts">{time_picture(topic)}{size_picture(topic)}</div><p>{escape(text)}</p>'
    )


def _growth(topic: TopicHealth) -> str:
    growth = topic.growth
    which = "all" if growth.complete else "the newest"
    plural = "s" if growth.commits != 1 else ""
    head = ["operation", "commits", "segments added", "records added", "bytes added"]
    rows = [
        [
            operation.name,
            f"{operation.commits:,}",
            f"{operation.segments_added:,}",
            f"{operation.records_added:,}",
            bytes_text(operation.bytes_added),
            f"{operation.segments_removed:,}",
        ]
        for operation in growth.operations
    ]
    files = ""
    if growth.removable or growth.waiting:
        files = (
            f"<p>Replaced or let go by them: about {growth.removable:,} file(s) that a vacuum can "
            f"remove, and {growth.waiting:,} that versions still kept need.</p>"
        )
    pictures = growth_pictures(topic)
    return (
        f"<h3>Growth <small>{which} {growth.commits:,} commit{plural}</small></h3>"
        + (f'<div class="charts">{pictures}</div>' if pictures else "")
        + table_of([*head, "segments removed"], rows)
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
            f"{lag.position:,}",
            f"{lag.end_offset:,}",
            f"{lag.records or 0:,}",
            bytes_text(lag.bytes or 0),
            duration_text((lag.seconds or 0) * 1000),
        ]
        for group in topic.groups
        if group.lag is not None
        for partition, lag in group.lag.items()
        if lag.position is not None
    ]
    more = len(rows) - ROWS_SHOWN
    note = f"<p><small>{more:,} more rows are not listed.</small></p>" if more > 0 else ""
    failed = "".join(
        f'<p class="bad">{escape(group.group or "all groups")}: {escape(group.error)}</p>'
        for group in topic.groups
        if group.error
    )
    return (
        f'<h3>Consumer groups</h3><div class="charts">{lag_picture(topic)}</div>'
        f"{table_of(head, rows[:ROWS_SHOWN]) if rows else ''}{note}{failed}"
    )


def _settings(topic: TopicHealth) -> str:
    entries = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{_setting(key, value)}</dd></div>"
        for key, value in topic.settings.items()
    )
    return f'<h3>Settings</h3><dl class="settings">{entries}</dl>'


def _setting(key: str, value: str) -> str:
    """A value as it is set, and in words where these say more."""
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
