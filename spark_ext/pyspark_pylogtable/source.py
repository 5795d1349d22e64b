"""`format("pylogtable")`: the entry point that Spark calls on the driver.

When a DataFrame is loaded Spark creates this object in a separate process, pickles it, and uses the
copy for each action. So `__init__` resolves the version: on every Spark version a DataFrame shows
the topic as it was at load. `__init__` cannot know whether the source will read or write, as a
batch or as a stream; options that do not fit are refused once that is known.

Imports are inside the methods because Spark starts many short-lived processes with this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pylogtable import Topic
    from pyspark_pylogtable.batch.reader import BatchReader
    from pyspark_pylogtable.batch.writer import BatchWriter
    from pyspark_pylogtable.stream.sink import StreamWriter
    from pyspark_pylogtable.stream.source import RefusedStream, StreamReader


class LogTableSource(DataSource):
    """The Spark data source for topics: batch and stream, read and write."""

    def __init__(self, options: dict[str, str]) -> None:
        from pylogtable import LogTableError
        from pyspark_pylogtable.request.parsing import parse_options
        from pyspark_pylogtable.request.pinned import Pinned, pin

        super().__init__(options)
        self._options = parse_options(options)
        self._pinned: Pinned | LogTableError
        try:
            self._pinned = pin(self._options)
        except LogTableError as error:
            # Not an error for a write that creates the topic.
            self._pinned = error

    @property
    def _opened(self) -> Topic | None:
        """The topic at the path, if this process opened it."""
        return getattr(self._pinned, "opened", None)

    @classmethod
    def name(cls) -> str:
        return "pylogtable"

    def schema(self) -> StructType:
        from pyspark_pylogtable.batch.reader import plan_read

        return plan_read(self._options, self._pinned, "read").schema()

    def reader(self, schema: StructType) -> BatchReader:
        from pyspark_pylogtable.batch.reader import BatchReader, plan_read

        return BatchReader(plan_read(self._options, self._pinned, "batch read"), schema)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:
        from pylogtable import LogTableError
        from pyspark_pylogtable.stream.source import RefusedStream, plan_stream

        try:
            return plan_stream(self._options, self._pinned, schema)
        except LogTableError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from pyspark_pylogtable.batch.writer import plan_write

        return plan_write(self._options, schema, self._opened, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from pyspark_pylogtable.stream.sink import plan_stream_write

        return plan_stream_write(self._options, schema, self._opened, overwrite=overwrite)
