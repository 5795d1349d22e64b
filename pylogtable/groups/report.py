"""What operations on consumer groups return: lag, descriptions, resets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from pylogtable.format.group_model import GroupState
from pylogtable.groups.positions_plan import Move
from pylogtable.presentation import (
    ABSENT,
    bytes_text,
    count_text,
    number_text,
    table_html,
    time_text,
    titled_html,
)
from pylogtable.times import from_us, to_us


@dataclass(frozen=True)
class Lag:
    """How far a group is behind in one partition.

    `records` is exact: offsets that compaction or retention removed do not count. `seconds` is the
    age of the first unread record. If the group has no `position`, that is None, and everything
    counts that can be read.
    """

    position: int | None
    end_offset: int
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class GroupLag(Mapping[int, Lag]):
    """The lag of a group in a topic, from `Group.lag`: a mapping from partition to `Lag`, with
    totals. A partition without a position counts from the log start.

    >>> group.lag().records, group.lag()[0].seconds
    """

    group: str
    topic: str
    partitions: Mapping[int, Lag]

    def __getitem__(self, partition: int) -> Lag:
        return self.partitions[partition]

    def __iter__(self) -> Iterator[int]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def records(self) -> int:
        """The unread records of all partitions."""
        return sum(lag.records for lag in self.values())

    @property
    def bytes(self) -> int:
        """The unread bytes of all partitions, estimated."""
        return sum(lag.bytes for lag in self.values())

    @property
    def seconds(self) -> float:
        """The age of the oldest unread record of all partitions."""
        return max((lag.seconds for lag in self.values()), default=0.0)

    @property
    def without_position(self) -> tuple[int, ...]:
        """The partitions in which the group has no committed position."""
        return tuple(number for number, lag in self.items() if lag.position is None)

    def to_table(self) -> pa.Table:
        """A row for each partition."""
        rows = [{"partition": number, **asdict(lag)} for number, lag in self.items()]
        return pa.Table.from_pylist(rows, schema=LAG_SCHEMA)

    def _repr_html_(self) -> str:
        rows = [
            (
                str(number),
                number_text(lag.position),
                number_text(lag.end_offset),
                *_lag_cells(lag.records, lag.bytes, lag.seconds),
            )
            for number, lag in self.items()
        ]
        head = ("partition", "position", "end", "lag", "bytes", "seconds")
        title = f"group {self.group} in {self.topic}: {self.records:,} records behind"
        note = no_position_text(len(self.without_position))
        return titled_html(f"{title}; {note}" if note else title, table_html(rows, head))


class GroupRow(NamedTuple):
    """One partition of a group, from `GroupDescription`: the columns of Kafka's
    `kafka-consumer-groups --describe`, and some more. Without a position, `current_offset` is None,
    and `lag` counts from the log start."""

    group: str
    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int
    lag: int
    lag_bytes: int
    lag_seconds: float
    committed_at: datetime | None
    metadata: str | None
    member: str | None


@dataclass(frozen=True)
class GroupDescription:
    """A `GroupRow` for each partition of one or more groups, from `describe` of a group or
    `Topic.describe_groups`. Iterate over it, or use `to_table`."""

    rows: tuple[GroupRow, ...]

    def __iter__(self) -> Iterator[GroupRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_table(self) -> pa.Table:
        """The rows as an Arrow table with `GROUPS_SCHEMA`."""
        return pa.Table.from_pylist([row._asdict() for row in self.rows], schema=GROUPS_SCHEMA)

    def _repr_html_(self) -> str:
        head = [name.replace("_", " ") for name in GroupRow._fields]
        rows = [
            (
                row.group,
                row.topic,
                str(row.partition),
                number_text(row.current_offset),
                number_text(row.log_end_offset),
                *_lag_cells(row.lag, row.lag_bytes, row.lag_seconds),
                time_text(None if row.committed_at is None else to_us(row.committed_at) // 1000),
                row.metadata or ABSENT,
                row.member or ABSENT,
            )
            for row in self.rows
        ]
        names = ", ".join(sorted({row.group for row in self.rows})) or "none"
        note = no_position_text(sum(row.current_offset is None for row in self.rows))
        title = f"consumer groups: {names}"
        return titled_html(f"{title}; {note}" if note else title, table_html(rows, head))


@dataclass(frozen=True)
class ResetReport:
    """The old and new position of each partition, from `Group.reset`. In a dry run nothing was
    changed. A row has a `note` if the new position is not the requested one."""

    group: str
    topic: str
    dry_run: bool
    rows: tuple[Move, ...]

    def __iter__(self) -> Iterator[Move]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_table(self) -> pa.Table:
        """A row for each partition."""
        return pa.Table.from_pylist([row._asdict() for row in self.rows], schema=RESET_SCHEMA)

    def _repr_html_(self) -> str:
        rows = [
            (str(r.partition), number_text(r.old), number_text(r.new), r.note) for r in self.rows
        ]
        title = f"{'dry run: ' if self.dry_run else ''}reset of {self.group} in {self.topic}"
        return titled_html(title, table_html(rows, ("partition", "old", "new", "note")))


def group_rows(
    group: str, topic: str, state: GroupState, lags: Mapping[int, Lag], live: Sequence[str]
) -> Iterable[GroupRow]:
    """The rows of a group in a topic. `live` are the members whose lease has not run out."""
    owners = {number: name for name in live for number in state.members[name].owned}
    for number, lag in lags.items():
        entry = state.positions.get(number)
        yield GroupRow(
            group=group,
            topic=topic,
            partition=number,
            current_offset=lag.position,
            log_end_offset=lag.end_offset,
            lag=lag.records,
            lag_bytes=lag.bytes,
            lag_seconds=lag.seconds,
            committed_at=from_us(entry.committed_at_ms * 1000) if entry else None,
            metadata=entry.metadata if entry else None,
            member=owners.get(number),
        )


def no_position_text(partitions: int) -> str:
    """What the lag means if so many partitions have no position. Empty if all have one."""
    if not partitions:
        return ""
    has = f"{count_text(partitions, 'partition')} {'has' if partitions == 1 else 'have'}"
    return f"{has} no committed position, and the lag there counts from the log start"


def _lag_cells(records: int, size_bytes: int, seconds: float) -> tuple[str, str, str]:
    return number_text(records), bytes_text(size_bytes), f"{seconds:,.1f}"


LAG_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("position", pa.int64()),
        pa.field("end_offset", pa.int64(), nullable=False),
        pa.field("records", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("seconds", pa.float64()),
    ]
)
GROUPS_SCHEMA = pa.schema(
    [
        pa.field("group", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("current_offset", pa.int64()),
        pa.field("log_end_offset", pa.int64(), nullable=False),
        pa.field("lag", pa.int64()),
        pa.field("lag_bytes", pa.int64()),
        pa.field("lag_seconds", pa.float64()),
        pa.field("committed_at", pa.timestamp("ms", tz="UTC")),
        pa.field("metadata", pa.string()),
        pa.field("member", pa.string()),
    ]
)
RESET_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("old", pa.int64()),
        pa.field("new", pa.int64(), nullable=False),
        pa.field("note", pa.string(), nullable=False),
    ]
)
