"""The charts of a topic: which numbers they show, and their labels. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import log2
from typing import NamedTuple

from pylogtable.groups.report import no_position_text
from pylogtable.presentation import (
    bytes_text,
    count_text,
    duration_text,
    percent_text,
    short_count,
    time_text,
)
from pylogtable.report.health import Bin, TopicHealth
from pylogtable.report.page.charts import Block, Mark, Marker, Plot, bars, columns, line, strips

BARS_SHOWN = 24
_SHADES = ("≥ ½ of segment.bytes", "≥ 1/10", "≥ 1/100", "≥ 1/1000", "less")
_DAY_MS = 86_400_000


def offset_chart(topic: TopicHealth) -> str:
    """The segments of each partition over its offsets. Small segments stand out."""
    drawn = [topic.partitions[number] for number in topic.bins_by_offset]
    low = min(part.log_start for part in drawn)
    high = max(max(part.end for part in drawn), low + 1)
    limit = topic.config.segment_bytes

    def block(number: int, bin_: Bin) -> Block:
        start = max(bin_.start, low)
        tip = (
            f"partition {number}, offsets {bin_.start:,} to {bin_.end:,}: {_segments(bin_)}, "
            f"{count_text(bin_.records, 'record')}, {bytes_text(bin_.size_bytes)}"
        )
        shade = _shade(bin_.size_bytes / max(1, bin_.segments), limit)
        return Block((start - low) / (high - low), (bin_.end - low) / (high - low), shade, tip)

    rows = []
    for part in drawn:
        tick = None
        if topic.config.is_compacted and part.clean_end > part.log_start:
            at = (part.clean_end - low) / (high - low)
            tick = Marker(at, f"clean up to offset {part.clean_end:,}")
        blocks = [block(part.partition, bin_) for bin_ in topic.bins_by_offset[part.partition]]
        rows.append((str(part.partition), blocks, tick))
    aside = len(topic.partitions) - len(drawn)
    first = f"the first {len(drawn)} partitions" if aside else "each partition"
    ticks = "; a tick marks the end of the clean part" if any(tick for _, _, tick in rows) else ""
    return strips(
        f"Segments of {first} by offset; the smaller a segment, the stronger its colour{ticks}",
        rows,
        x_labels=(f"offset {low:,}", f"{high:,}"),
        legend=_SHADES,
    )


def time_chart(topic: TopicHealth) -> str:
    """Segments by the time of their newest record, and where retention ends."""
    bins = topic.bins_by_time
    if not bins:
        return ""
    marker = None
    if topic.config.deletes and topic.config.retention_ms is not None:
        edge = topic.now_ms - topic.config.retention_ms
        if bins[0].start < edge < bins[-1].end:
            at = (edge - bins[0].start) / (bins[-1].end - bins[0].start)
            marker = Marker(at, "retention.ms")
    plot = Plot(
        title="Segments over time",
        note=f"by their newest record, per {_width(bins)}",
        description=f"{sum(bin_.segments for bin_ in bins):,} segments by the time of their newest "
        f"record, from {time_text(bins[0].start)} to {time_text(bins[-1].end)}",
        x_labels=_time_axis(bins),
        y_label=_whole,
        marker=marker,
    )
    return columns(plot, [Mark(bin_.segments, _time_tip(bin_, _segments(bin_))) for bin_ in bins])


def size_chart(topic: TopicHealth) -> str:
    """Segments by size."""
    bins = topic.bins_by_size
    if not bins:
        return ""
    # Each bin is twice as wide as the one before, so a size is at the place of its logarithm.
    half = log2(topic.config.segment_bytes / 2)
    at = (half - log2(bins[0].start)) / len(bins)
    plot = Plot(
        title="Segment sizes",
        note="each column covers sizes twice as large as the one before",
        description=f"segments by size, from {bytes_text(bins[0].start)} to "
        f"{bytes_text(bins[-1].end)}; "
        f"{topic.total('small_segments'):,} of {topic.total('segments'):,} are at most half of "
        "segment.bytes",
        x_labels=(bytes_text(bins[0].start), bytes_text(bins[-1].end)),
        y_label=_whole,
        marker=Marker(at, "½ segment.bytes") if 0 <= at <= 1 else None,
    )
    return columns(
        plot,
        [
            Mark(
                bin_.segments,
                f"{bytes_text(bin_.start)} to {bytes_text(bin_.end)}: {_segments(bin_)}, "
                f"{bytes_text(bin_.size_bytes)} together"
                if bin_.segments
                else "",
            )
            for bin_ in bins
        ],
    )


def growth_charts(topic: TopicHealth) -> str:
    """Appended records and bytes by commit time: for each bin, and as a running total."""
    bins = topic.growth.appended
    if not bins:
        return ""
    records = _Quantity("Records", lambda count: count_text(count, "record"), _whole, 1000)
    size = _Quantity("Bytes", bytes_text, _short_bytes, 1024)
    return _growth_pair(bins, [bin_.records for bin_ in bins], records) + _growth_pair(
        bins, [bin_.size_bytes for bin_ in bins], size
    )


class _Quantity(NamedTuple):
    """What a growth chart shows, and how its numbers are written."""

    name: str
    text: Callable[[int], str]
    y_label: Callable[[float], str]
    unit: int


def _growth_pair(bins: Sequence[Bin], values: Sequence[int], quantity: _Quantity) -> str:
    name, text, y_label, unit = quantity
    sums = list(accumulate(values))
    span = f"from {time_text(bins[0].start)} to {time_text(bins[-1].end)}"
    each = Plot(
        title=f"{name} appended",
        note=f"per {_width(bins)}",
        description=f"{text(sums[-1])} appended {span}",
        x_labels=_time_axis(bins),
        y_label=y_label,
        unit=unit,
    )
    summed = Plot(
        title=f"{name} appended, running total",
        note=f"{text(sums[-1])} in total",
        description=f"{name.lower()} appended {span}, running total up to {text(sums[-1])}",
        x_labels=_time_axis(bins),
        y_label=y_label,
        unit=unit,
    )
    return columns(
        each,
        [
            Mark(value, _time_tip(bin_, text(value)) if value else "")
            for bin_, value in zip(bins, values, strict=True)
        ],
    ) + line(
        summed,
        [
            Mark(total, f"until {time_text(bin_.end)}: {text(total)}")
            for bin_, total in zip(bins, sums, strict=True)
        ],
    )


def dirty_chart(topic: TopicHealth) -> str:
    """The dirty ratio of each partition, and the limit above which compaction runs."""
    limit = topic.config.min_cleanable_dirty_ratio
    rows = [
        (
            f"partition {part.partition}",
            part.dirty_ratio or 0,
            percent_text(part.dirty_ratio),
            f"partition {part.partition}: clean up to {part.clean_end:,} of {part.end:,}",
        )
        for part in topic.partitions[:BARS_SHOWN]
    ]
    return bars(
        "Dirty ratio",
        f"dirty ratio by partition; the greatest is {percent_text(topic.dirty_ratio)}",
        rows,
        marker=Marker(limit, f"compaction above {percent_text(limit)}"),
    )


def lag_chart(topic: TopicHealth) -> str:
    """The lag of each group in records, the greatest first."""
    known = [group.lag for group in topic.groups if group.lag is not None]
    ranked = sorted(known, key=lambda lag: -lag.records)[:BARS_SHOWN]
    most = max((lag.records for lag in ranked), default=0) or 1
    rows = []
    for lag in ranked:
        late = f", {duration_text(lag.seconds * 1000)}" if lag.records else ""
        nowhere = no_position_text(len(lag.without_position))
        tip = f"{lag.group}: {lag.records:,} records, {bytes_text(lag.bytes)}{late}"
        tip += f"; {nowhere}" if nowhere else ""
        rows.append((lag.group, lag.records / most, f"{lag.records:,}{late}", tip))
    note = f", the {BARS_SHOWN} greatest" if len(known) > BARS_SHOWN else ""
    return bars(f"Lag in records{note}", f"lag of {len(known)} groups in records", rows)


def _shade(size: float, limit: int) -> int:
    steps = (limit / 2, limit / 10, limit / 100, limit / 1000)
    return next((shade for shade, least in enumerate(steps) if size >= least), len(steps))


def _segments(bin_: Bin) -> str:
    return count_text(bin_.segments, "segment")


def _width(bins: Sequence[Bin]) -> str:
    return duration_text(bins[0].end - bins[0].start)


def _time_tip(bin_: Bin, what: str) -> str:
    if not bin_.segments:
        return ""
    return f"{time_text(bin_.start)}, {duration_text(bin_.end - bin_.start)}: {what}"


def _time_axis(bins: Sequence[Bin]) -> tuple[str, str]:
    """Labels for both ends, as precise as the time between them needs."""
    start, end = bins[0].start, bins[-1].end
    length = end - start
    unit = "day" if length > 60 * _DAY_MS else "minutes" if length > 600_000 else "seconds"
    if length < 5_000:
        unit = "milliseconds"
    first, last = time_text(start, unit), time_text(end, unit)
    same_day = unit != "day" and first[:10] == last[:10]
    return first, last[11:] if same_day else last


def _whole(count: float) -> str:
    """A label for a count. Fractions such as 0.5 get no label."""
    return short_count(count) if count >= 1000 or count == int(count) else ""


def _short_bytes(size: float) -> str:
    return bytes_text(int(size)).replace(".0 ", " ")
