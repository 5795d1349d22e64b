"""The pictures of a topic: which numbers become which marks, and what they say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import log2

from pylogtable.report.health import Cell, TopicHealth
from pylogtable.report.page.charts import Mark, Piece, Plot, Rule, bars, columns, line, strips
from pylogtable.results.text import bytes_text, duration_text, short_count, time_text

BARS_SHOWN = 24
_SHADES = ("≥ ½ of segment.bytes", "≥ 1/10", "≥ 1/100", "≥ 1/1000", "less")
_DAY_MS = 86_400_000


def offset_picture(topic: TopicHealth) -> str:
    """The segments of each partition over its offsets, darker where they are small."""
    drawn = [topic.partitions[number] for number in topic.strips]
    low = min(part.log_start for part in drawn)
    high = max(max(part.end for part in drawn), low + 1)
    limit = topic.config.segment_bytes

    def piece(number: int, cell: Cell) -> Piece:
        start = max(cell.start, low)
        tip = (
            f"partition {number}, offsets {cell.start:,} to {cell.end:,}: {_segments(cell)}, "
            f"{cell.records:,} records, {bytes_text(cell.size_bytes)}"
        )
        shade = _shade(cell.size_bytes / max(1, cell.segments), limit)
        return Piece((start - low) / (high - low), (cell.end - low) / (high - low), shade, tip)

    rows = []
    for part in drawn:
        tick = None
        if topic.config.is_compacted and part.clean_end > part.log_start:
            at = (part.clean_end - low) / (high - low)
            tick = Rule(at, f"clean up to offset {part.clean_end:,}")
        pieces = [piece(part.partition, cell) for cell in topic.strips[part.partition]]
        rows.append((str(part.partition), pieces, tick))
    aside = len(topic.partitions) - len(drawn)
    first = f"the first {len(drawn)} partitions" if aside else "each partition"
    ticks = "; a mark ends what is clean" if any(tick for _, _, tick in rows) else ""
    return strips(
        f"Segments of {first} over offset; the smaller they are, the more they stand out{ticks}",
        rows,
        below=(f"offset {low:,}", f"{high:,}"),
        legend=_SHADES,
    )


def time_picture(topic: TopicHealth) -> str:
    """How many segments have their newest record when, and from where on they are kept."""
    cells = topic.times
    if not cells:
        return ""
    rule = None
    if topic.config.deletes and topic.config.retention_ms is not None:
        edge = topic.now_ms - topic.config.retention_ms
        if cells[0].start < edge < cells[-1].end:
            at = (edge - cells[0].start) / (cells[-1].end - cells[0].start)
            rule = Rule(at, "retention.ms")
    plot = Plot(
        title="Segments over time",
        note=f"by their newest record, per {_width(cells)}",
        says=f"{sum(cell.segments for cell in cells):,} segments by the time of their newest "
        f"record, from {time_text(cells[0].start)} to {time_text(cells[-1].end)}",
        below=_time_axis(cells),
        number=_whole,
        rule=rule,
    )
    return columns(plot, [Mark(cell.segments, _time_tip(cell, _segments(cell))) for cell in cells])


def size_picture(topic: TopicHealth) -> str:
    """How many segments are how large, up to the size that is wanted."""
    cells = topic.sizes
    if not cells:
        return ""
    # Each cell is a doubling, so that the place of a size is its logarithm.
    half = log2(topic.config.segment_bytes / 2)
    at = (half - log2(cells[0].start)) / len(cells)
    plot = Plot(
        title="Segment sizes",
        note="each column twice as large as the one before",
        says=f"segments by size, from {bytes_text(cells[0].start)} to {bytes_text(cells[-1].end)}; "
        f"{topic.total('small'):,} of {topic.total('segments'):,} are at most half of "
        "segment.bytes",
        below=(bytes_text(cells[0].start), bytes_text(cells[-1].end)),
        number=_whole,
        rule=Rule(at, "½ segment.bytes") if 0 <= at <= 1 else None,
    )
    return columns(
        plot,
        [
            Mark(
                cell.segments,
                f"{bytes_text(cell.start)} to {bytes_text(cell.end)}: {_segments(cell)}, "
                f"{bytes_text(cell.size_bytes)} together"
                if cell.segments
                else "",
            )
            for cell in cells
        ],
    )


def growth_pictures(topic: TopicHealth) -> str:
    """What appends brought, by the time of their commit, and summed up."""
    cells = topic.growth.appended
    if not cells:
        return ""
    records = [cell.records for cell in cells]
    sizes = [cell.size_bytes for cell in cells]
    return "".join(
        _pair(cells, values, name, number)
        for values, name, number in (
            (records, "Records", _whole),
            (sizes, "Bytes", _short_bytes),
        )
    )


def _pair(
    cells: Sequence[Cell], values: Sequence[int], name: str, number: Callable[[float], str]
) -> str:
    sums = list(accumulate(values))
    unit = 1024 if name == "Bytes" else 1000
    what = "" if name == "Bytes" else " records"

    def written(value: int) -> str:
        return f"{value:,}{what}" if what else bytes_text(value)

    span = f"from {time_text(cells[0].start)} to {time_text(cells[-1].end)}"
    each = Plot(
        title=f"{name} appended",
        note=f"per {_width(cells)}",
        says=f"{written(sums[-1])} appended {span}",
        below=_time_axis(cells),
        number=number,
        unit=unit,
    )
    summed = Plot(
        title=f"{name} appended, summed up",
        note=f"{written(sums[-1])} in all",
        says=f"{name.lower()} appended {span}, summed up to {written(sums[-1])}",
        below=_time_axis(cells),
        number=number,
        unit=unit,
    )
    return columns(
        each,
        [
            Mark(value, _time_tip(cell, written(value)) if value else "")
            for cell, value in zip(cells, values, strict=True)
        ],
    ) + line(
        summed,
        [
            Mark(total, f"until {time_text(cell.end)}: {written(total)}")
            for cell, total in zip(cells, sums, strict=True)
        ],
    )


def dirty_picture(topic: TopicHealth) -> str:
    """How dirty each partition is, against what asks for compaction."""
    limit = topic.config.min_cleanable_dirty_ratio
    rows = [
        (
            f"partition {part.partition}",
            part.dirty_ratio or 0,
            f"{part.dirty_ratio or 0:.0%}",
            f"partition {part.partition}: clean up to {part.clean_end:,} of {part.end:,}",
        )
        for part in topic.partitions[:BARS_SHOWN]
    ]
    worst = topic.dirty_ratio or 0
    return bars(
        "Dirty ratio",
        f"dirty ratio by partition; the greatest is {worst:.0%}",
        rows,
        rule=Rule(limit, f"compaction above {limit:.0%}"),
    )


def lag_picture(topic: TopicHealth) -> str:
    """How many records each group is behind, the greatest first."""
    known = [group.lag for group in topic.groups if group.lag is not None]
    ranked = sorted(known, key=lambda lag: -lag.records)[:BARS_SHOWN]
    most = max((lag.records for lag in ranked), default=0) or 1
    rows = []
    for lag in ranked:
        late = f", {duration_text(lag.seconds * 1000)}" if lag.records else ""
        tip = f"{lag.group}: {lag.records:,} records, {bytes_text(lag.bytes)}{late}"
        rows.append((lag.group, lag.records / most, f"{lag.records:,}{late}", tip))
    note = f", the {BARS_SHOWN} greatest" if len(known) > BARS_SHOWN else ""
    return bars(f"Lag in records{note}", f"lag of {len(known)} groups in records", rows)


def _shade(size: float, limit: int) -> int:
    steps = (limit / 2, limit / 10, limit / 100, limit / 1000)
    return next((shade for shade, least in enumerate(steps) if size >= least), len(steps))


def _segments(cell: Cell) -> str:
    return f"{cell.segments:,} segment{'s' if cell.segments != 1 else ''}"


def _width(cells: Sequence[Cell]) -> str:
    return duration_text(cells[0].end - cells[0].start)


def _time_tip(cell: Cell, what: str) -> str:
    if not cell.segments:
        return ""
    return f"{time_text(cell.start)}, {duration_text(cell.end - cell.start)}: {what}"


def _time_axis(cells: Sequence[Cell]) -> tuple[str, str]:
    """Both ends, as exact as the length between them asks for."""
    start, end = cells[0].start, cells[-1].end
    length = end - start
    unit = "day" if length > 60 * _DAY_MS else "minutes" if length > 600_000 else "seconds"
    if length < 5_000:
        unit = "milliseconds"
    first, last = time_text(start, unit), time_text(end, unit)
    same_day = unit != "day" and first[:10] == last[:10]
    return first, last[11:] if same_day else last


def _whole(count: float) -> str:
    """Of things that are counted there is no half."""
    return short_count(count) if count >= 1000 or count == int(count) else ""


def _short_bytes(size: float) -> str:
    return bytes_text(int(size)).replace(".0 ", " ")
