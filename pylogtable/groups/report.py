"""What operations on consumer groups return: lag, descriptions, resets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Annotated, ClassVar, NamedTuple

import pyarrow as pa

from pylogtable.format.group_model import GroupState
from pylogtable.groups.positions_plan import Move
from pylogtable.presentation import (
    Column,
    Partition,
    RowsReport,
    arrow_table,
    bytes_text,
    count_text,
    rows_html,
    schema_of,
    titled_html,
)
from pylogtable.times import from_us


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
        return arrow_table(_LagRow, self._rows())

    def _repr_html_(self) -> str:
        title = f"group {self.group} in {self.topic}: {self.records:,} records behind"
        note = no_position_text(len(self.without_position))
        shown = rows_html(_LagRow, self._rows())
        return titled_html(f"{title}; {note}" if note else title, shown)

    def _rows(self) -> list[_LagRow]:
        return [_LagRow(number, *astuple(lag)) for number, lag in self.items()]


class _LagRow(NamedTuple):
    partition: Partition
    position: int | None
    end_offset: int
    records: Annotated[int, Column("lag", is_nullable=True)]
    bytes: Annotated[int, Column(shown=bytes_text, is_nullable=True)]
    seconds: Annotated[float, Column(is_nullable=True)]


class GroupRow(NamedTuple):
    """One partition of a group, from `GroupDescription`: the columns of Kafka's
    `kafka-consumer-groups --describe`, and some more. Without a position, `current_offset` is None,
    and `lag` counts from the log start."""

    group: str
    topic: str
    partition: Partition
    current_offset: int | None
    log_end_offset: int
    lag: Annotated[int, Column(is_nullable=True)]
    lag_bytes: Annotated[int, Column("lag size", bytes_text, is_nullable=True)]
    lag_seconds: Annotated[float, Column(is_nullable=True)]
    committed_at: datetime | None
    metadata: str | None
    member: str | None


@dataclass(frozen=True)
class GroupDescription(RowsReport[GroupRow]):
    """A `GroupRow` for each partition of one or more groups, from `describe` of a group or
    `Topic.describe_groups`. Iterate over it, or use `to_table`, with `GROUPS_SCHEMA`."""

    rows: tuple[GroupRow, ...]

    row_type: ClassVar = GroupRow

    def _repr_html_(self) -> str:
        names = ", ".join(sorted({row.group for row in self.rows})) or "none"
        note = no_position_text(sum(row.current_offset is None for row in self.rows))
        title = f"consumer groups: {names}"
        shown = rows_html(GroupRow, self.rows)
        return titled_html(f"{title}; {note}" if note else title, shown)


@dataclass(frozen=True)
class ResetReport(RowsReport[Move]):
    """The old and new position of each partition, from `Group.reset`. In a dry run nothing was
    changed. A row has a `note` if the new position is not the requested one."""

    group: str
    topic: str
    dry_run: bool
    rows: tuple[Move, ...]

    row_type: ClassVar = Move

    def _repr_html_(self) -> str:
        title = f"{'dry run: ' if self.dry_run else ''}reset of {self.group} in {self.topic}"
        return titled_html(title, rows_html(Move, self.rows))


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


GROUPS_SCHEMA = schema_of(GroupRow)
