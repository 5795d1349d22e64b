"""A streaming query as Spark runs it, by the same calls and without Spark: offsets go through JSON,
and whatever is in another process there is pickled here."""

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
    """As Spark's own, which is found by its name; 4.0 and 4.1 have none."""


class Query:
    """`log` are the end offsets of the batches that were planned, as they lie in a checkpoint."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.path = path
        self.log: list[str] = []
        self.start(**options)

    def start(
        self, *, available_now: bool = False, schema: pa.Schema | None = None, **options: Any
    ) -> None:
        """Also after a stop: the checkpoint is all that is left of the run before."""
        given = {"path": os.fspath(self.path), **{name: str(v) for name, v in options.items()}}
        source = pickle.loads(pickle.dumps(DefaultSource(given)))
        self.schema = spark_schema(schema) if schema else source.schema()
        self.reader: StreamReader = source.streamReader(self.schema)
        self.reader.initialOffset()  # says no if the stream is refused
        self._tasks = pickle.dumps(source.streamReader(self.schema))
        self._committed = len(self.log)
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def start_of(self, batch: int) -> dict[str, Any]:
        text = self.log[batch - 1] if batch else json.dumps(self.reader.initialOffset())
        return json.loads(text)  # type: ignore[no-any-return]

    def plan(self, *, everything: bool = False) -> bool:
        """Whether there is a batch to run."""
        start = self.start_of(len(self.log))
        limit = ReadAllAvailable() if everything else object()
        end = json.dumps(self.reader.latestOffset(start, limit))  # type: ignore[arg-type]
        if end == json.dumps(start):
            return False
        self.log.append(end)
        return True

    def run(self, batch: int = -1) -> pa.Table:
        """The rows of a batch that was planned, the last by default."""
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
        """How many rows each batch has until there is nothing left to read."""
        counts = []
        while (table := self.trigger()) is not None:
            counts.append(table.num_rows)
            assert len(counts) < 100
        return counts


def offsets(table: pa.Table | None) -> dict[int, list[int]]:
    """The offsets of rows by partition, in the order they came."""
    found: dict[int, list[int]] = {}
    if table is not None:
        for partition, offset in zip(
            table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True
        ):
            found.setdefault(partition, []).append(offset)
    return found
