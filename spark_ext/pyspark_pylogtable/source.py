"""`format("pylogtable")`: the entry point that Spark calls on the driver.

When a DataFrame is loaded Spark creates this object in a separate process, pickles it, and uses the
copy for each action. So the version of a read is resolved before that: on every Spark version a
DataFrame shows the topic as it was at load. For a write Spark creates an object of its own, and
pickles only its writer. `__init__` cannot know whether the source will read or write, as a batch or
as a stream. The method that Spark calls then says so, and refuses options that do not fit.

Imports are inside the methods because Spark starts many short-lived processes with this module.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_pylogtable.shipped import Reduced, reduced

if TYPE_CHECKING:
    from pyspark_pylogtable.batch.reader import BatchReader
    from pyspark_pylogtable.batch.writer import BatchWriter
    from pyspark_pylogtable.request.options import Use
    from pyspark_pylogtable.request.pinned import Pinned
    from pyspark_pylogtable.stream.sink import StreamWriter
    from pyspark_pylogtable.stream.source import RefusedStream, StreamReader


class LogTableSource(DataSource):
    """The Spark data source for topics: batch and stream, read and write."""

    def __init__(self, options: dict[str, str]) -> None:
        from pyspark_pylogtable.request.parsing import parse_options

        super().__init__(options)
        self._options = parse_options(options)
        self._pinned: Pinned | None = None

    def __reduce__(self) -> Reduced:
        from pylogtable.engine import module_of_provider

        needed = module_of_provider(self._options.storage_options or {})
        return reduced(_loaded, type(self), self._state(), needed=needed)

    def _state(self) -> dict[str, object]:
        from pylogtable import LogTableError

        # A read with a schema of its own has not called `schema`. If this fails, the read tells.
        with suppress(LogTableError):
            self._pin("read")
        return vars(self)

    def _pin(self, use: Use) -> Pinned:
        """The topics of a read. An option that does not fit is refused before any is opened."""
        from pyspark_pylogtable.request.pinned import pin

        self._options.refuse_for(use)
        if self._pinned is None:
            self._pinned = pin(self._options)
        return self._pinned

    @classmethod
    def name(cls) -> str:
        return "pylogtable"

    def schema(self) -> StructType:
        from pyspark_pylogtable.batch.reader import plan_read

        return plan_read(self._options, self._pin("read"), "read").schema()

    def reader(self, schema: StructType) -> BatchReader:
        from pyspark_pylogtable.batch.reader import BatchReader, plan_read

        pinned = self._pin("batch read")
        return BatchReader(plan_read(self._options, pinned, "batch read"), schema)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:
        from pylogtable import LogTableError
        from pyspark_pylogtable.stream.source import RefusedStream, plan_stream

        try:
            return plan_stream(self._options, self._pin("stream read"), schema)
        except LogTableError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from pyspark_pylogtable.batch.writer import BatchWriter

        return BatchWriter(self._options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from pyspark_pylogtable.stream.sink import StreamWriter

        return StreamWriter(self._options, schema, overwrite=overwrite)


def _loaded(kind: type[LogTableSource], state: dict[str, object]) -> LogTableSource:
    source = kind.__new__(kind)
    vars(source).update(state)
    return source
