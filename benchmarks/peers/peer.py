"""What a peer has to be able to do. The benchmark does the same with all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

#: First and end offset of each partition.
Offsets = tuple[dict[int, int], dict[int, int]]


class Peer(Protocol):
    """A table format or log, with tables that have names."""

    name: str

    def create(self, table: str) -> None:
        """Make an empty table."""

    def drop(self, table: str) -> None:
        """Free the space of a table."""

    def append(self, table: str, rows: DataFrame) -> None:
        """Append all `rows`, and return when they are committed."""

    def read(self, table: str) -> DataFrame:
        """The six columns of all rows."""

    def bounds(self, table: str, rows: int) -> Any:
        """The bounds of the 1 % in the middle, for `part`. This is not measured."""

    def part(self, table: str, bounds: Any) -> DataFrame:
        """The six columns of the rows inside the bounds."""

    def stream(self, table: str) -> DataFrame:
        """The six columns of all rows, now and in future, as a stream."""

    def start(self, stream: DataFrame, table: str, checkpoint: str) -> StreamingQuery:
        """Start a query that appends a stream to a table."""


def middle(rows: int) -> tuple[int, int]:
    """The half-open range of the 1 % in the middle of so many rows, and at least one row."""
    low = rows // 2
    return low, low + max(1, rows // 100)


def middle_offsets(ends: Mapping[int, int]) -> Offsets:
    """The 1 % in the middle of each partition."""
    ranges = {partition: middle(end) for partition, end in ends.items()}
    return (
        {partition: low for partition, (low, _) in ranges.items()},
        {partition: high for partition, (_, high) in ranges.items()},
    )
