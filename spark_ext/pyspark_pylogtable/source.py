"""`format("pylogtable")`: what Spark calls, on the driver. Everything is done elsewhere.

Spark builds this object in a process of its own when a DataFrame is loaded, pickles it, and uses
that copy for each action. So the version is resolved in `__init__`: a DataFrame shows the topic as
it was when it was loaded, on every Spark version. There `__init__` cannot know whether it is to
read or to write, once or as a stream; what one of them may not do is refused when it is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark_pylogtable.stream.sink import StreamWriter
    from pyspark_pylogtable.stream.source import RefusedStream, StreamReader
    from pyspark_pylogtable.tasks.reading import BatchReader
    from pyspark_pylogtable.tasks.writing import BatchWriter


class LogTableSource(DataSource):
    """Topics of pylogtable as a Spark data source."""

    def __init__(self, options: dict[str, str]) -> None:
        from pylogtable import LogTableError
        from pyspark_pylogtable.options import parse_options
        from pyspark_pylogtable.topics import Pinned, pin

        super().__init__(options)
        self._options = parse_options(options)
        self._pinned: Pinned | LogTableError
        try:
            self._pinned = pin(self._options)
        except LogTableError as error:
            # For a write that is to make the topic, its absence is no error.
            self._pinned = error

    @classmethod
    def name(cls) -> str:
        return "pylogtable"

    def schema(self) -> StructType:
        from pyspark_pylogtable.tasks.reading import plan_content

        return plan_content(self._options, self._pinned, "read").schema()

    def reader(self, schema: StructType) -> BatchReader:
        from pyspark_pylogtable.tasks.reading import BatchReader, plan_content

        return BatchReader(plan_content(self._options, self._pinned, "batch read"), schema)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:
        from pylogtable import LogTableError
        from pyspark_pylogtable.stream.source import RefusedStream, plan_stream

        try:
            return plan_stream(self._options, self._pinned, schema)
        except LogTableError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from pyspark_pylogtable.tasks.writing import plan_write

        return plan_write(self._options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from pyspark_pylogtable.stream.sink import plan_stream_write

        return plan_stream_write(self._options, schema, overwrite=overwrite)
