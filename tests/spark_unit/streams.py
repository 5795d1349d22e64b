"""A streaming query with the calls that Spark makes, but without Spark: offsets go through JSON,
and what Spark sends to another process is pickled."""

from __future__ import annotations

import json
import os
import pickle
from typing import Any

import pyarrow as pa

from pyspark_pylogtable import DefaultSource
from pyspark_pylogtable.columns import spark_schema
from pyspark_pylogtable.stream.source import StreamReader


class ReadAllAvailable:
    """Stands for Spark's class, which is recognised by its name; 4.0 and 4.1 have none."""


class Query:
    """`log` has the end offsets of the planned batches, as a checkpoint stores them."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.path = path
        self.log: list[str] = []
        self.start(**options)

    def start(
        self, *, available_now: bool = False, schema: pa.Schema | None = None, **options: Any
    ) -> None:
        """Start, or restart: only the checkpoint is left of the run before."""
        given = {"path": os.fspath(self.path), **{name: str(v) for name, v in options.items()}}
        source = pickle.loads(pickle.dumps(DefaultSource(given)))
        self.schema = spark_schema(schema) if schema else source.schema()
        self.reader: StreamReader = source.streamReader(self.schema)
        self.reader.initialOffset()  # raises if the stream is refused
        self._tasks = pickle.dumps(source.streamReader(self.schema))
        self._committed = len(self.log)
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def start_of(self, batch: int) -> dict[str, Any]:
        text = self.log[batch - 1] if batch else json.dumps(self.reader.initialOffset())
        return json.loads(text)  # type: ignore[no-any-return]

    def plan(self, *, everything: bool = False) -> bool:
        """Plan a batch; False if there is none."""
        start = self.start_of(len(self.log))
        limit = ReadAllAvailable() if everything else object()
        end = json.dumps(self.reader.latestOffset(start, limit))  # type: ignore[arg-type]
        if end == json.dumps(start):
            return False
        self.log.append(end)
        return True

    def run(self, batch: int = -1) -> pa.Table:
        """The rows of a planned batch, by default the last."""
        number = batch % len(self.log)
        if number > 0:
            self.reader.commit(self.start_of(number))
        end = json.loads(self.log[number])
        parts = self.reader.partitions(self.start_of(number), end)
        worker = pickle.loads(self._tasks)
        batches = [b for part in parts for b in worker.read(pickle.loads(pickle.dumps(part)))]
        return pa.Table.from_batches(batches, worker._columns)

    def trigger(self, *, everything: bool = False) -> pa.Table | None:
        return self.run() if self.plan(everything=everything) else None

    def drain(self) -> list[int]:
        """The number of rows of each batch until nothing is left to read."""
        counts = []
        while (table := self.trigger()) is not None:
            counts.append(table.num_rows)
            assert len(counts) < 100
        return counts


def offsets(table: pa.Table | None) -> dict[int, list[int]]:
    """The offsets of the rows by partition, in their order."""
    found: dict[int, list[int]] = {}
    if table is not None:
        for partition, offset in zip(
            table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True
        ):
            found.setdefault(partition, []).append(offset)
    return found
