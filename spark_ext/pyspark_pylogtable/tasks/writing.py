"""The writing half of the source: tasks stage files, one commit per topic makes them visible.

Spark calls `commit` and `abort` on copies of the planned writer, in other processes than the tasks
ran in, so all that they need travels in the messages. `abort` is also called when `commit` raised,
whatever the reason: files are removed only where it is proven that no commit can name them. The
functions here are those of the stream's sink as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Semaphore
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pylogtable import (
    AppendResult,
    CommitUnknownError,
    InvalidRequestError,
    LogTableError,
    SchemaMismatchError,
    Topic,
)
from pylogtable.engine import Staged, Stager, TopicWriter
from pyspark_pylogtable.columns import arrow_schema, default_columns, is_kafka_shaped
from pyspark_pylogtable.options import Options
from pyspark_pylogtable.topics import Destination, check_text, destination

TOPIC = "topic"
GIVEN_BY_THE_LOG = ("offset", "timestampType", TOPIC)
# Of what waits in memory for all topics of a task together.
WAITING_BYTES = 192 << 20
# Threads of a task; Spark runs as many tasks as there are cores.
ENCODERS = 2
# Row groups in their hands or waiting for them. Each topic has a bound of its own for its own; of
# a hundred topics that would be no bound.
HANDED_OVER = 4 * ENCODERS


@dataclass
class Written(WriterCommitMessage):
    """What one task staged, by topic, and the streaming query that it ran for, if any."""

    staged: dict[str, Staged] = field(default_factory=dict)
    query_id: str | None = None


def plan_write(options: Options, schema: StructType, *, overwrite: bool) -> BatchWriter:
    """Find or make the topic and check the columns, before any data is written."""
    options.refuse_for("write")
    if overwrite:
        raise InvalidRequestError(
            "a topic is a log: records are appended, and never overwritten. Use mode('append'); "
            "to begin anew delete the topic with store.delete_topic, to drop old records use "
            "topic.delete_records or retention"
        )
    where, topic = plan_destination(options, schema)
    repeated = bool(topic and options.txn and TopicWriter(topic).find_txn(*options.txn))
    return BatchWriter(where, options.txn, repeated=repeated)


def plan_destination(options: Options, schema: StructType) -> tuple[Destination, Topic | None]:
    """Where the rows go, and the topic, if it is one for all."""
    columns = spark_columns(schema)
    where = destination(options, columns)
    if where.name is None:
        return where, None
    topic = where.open(where.name)
    given = columns
    if fills_every_column(topic, columns):
        given = pa.schema([column for column in columns if column.name not in GIVEN_BY_THE_LOG])
    check_columns(topic, given)
    return where, topic


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a DataFrame to one topic, or to those that the rows name. `repeated` says
    that the txn is in the log, so that there is nothing left to write."""

    def __init__(self, where: Destination, txn: tuple[str, int] | None, *, repeated: bool) -> None:
        self._where = where
        self._txn = txn
        self._repeated = repeated

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._repeated:
            for _ in iterator:
                pass
            return Written(query_id=query_id())
        return stage_rows(self._where, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = staged_by_topic(messages)
        if self._where.name is not None and self._txn is not None:
            # Without a row the txn is to be remembered all the same; and whose a repeat is, is
            # known only now.
            staged.setdefault(self._where.name, [])
        commit_staged(self._where, staged, self._txn, query_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard_aborted(self._where, messages)


def stage_rows(where: Destination, batches: Iterator[pa.RecordBatch]) -> Written:
    """What a task does."""
    task = TaskContext.get()
    with _Topics(where, task.partitionId() if task else 0) as topics:
        for batch in batches:
            topics.add(batch)
        return Written(topics.finish(), query_id())


def query_id() -> str | None:
    """The id of the streaming query that a task runs for; it stays the same with its checkpoint."""
    task = TaskContext.get()
    return task.getLocalProperty("sql.streaming.queryId") if task else None


def query_of(messages: Iterable[WriterCommitMessage | None]) -> str | None:
    found = (message.query_id for message in messages if isinstance(message, Written))
    return next((query for query in found if query is not None), None)


def staged_by_topic(messages: Iterable[WriterCommitMessage | None]) -> dict[str, list[Staged]]:
    """What all tasks staged, by topic and in the order of the tasks."""
    staged: dict[str, list[Staged]] = {}
    for message in messages:
        if isinstance(message, Written):
            for name, part in message.staged.items():
                staged.setdefault(name, []).append(part)
    return staged


def commit_staged(
    where: Destination,
    staged: dict[str, list[Staged]],
    txn: tuple[str, int] | None,
    query: str | None,
) -> None:
    """One commit for each topic; if one fails, files of those not yet tried are removed."""
    done: list[str] = []
    for name in sorted(staged):
        try:
            commit_topic(where.existing(name), staged[name], txn, query)
        except LogTableError as error:
            for untried in staged:
                if untried > name:
                    with suppress(LogTableError):
                        TopicWriter(where.existing(untried)).discard(staged[untried])
            if not done:
                raise
            fate = "may be" if isinstance(error, CommitUnknownError) else "was not"
            raise LogTableError(
                f"topic {name!r} {fate} written, and {', '.join(done)} were: each topic has a "
                "commit of its own. With txnAppId and txnVersion the write can be repeated "
                f"as it is. {error}"
            ) from error
        done.append(name)


def commit_topic(
    topic: Topic, staged: list[Staged], txn: tuple[str, int] | None, query: str | None
) -> AppendResult:
    """A batch that another query wrote under this txn is an error."""
    origin = query if txn is not None else None
    with _naming_queries(topic, txn, origin):
        return TopicWriter(topic).commit_or_discard(staged, txn=txn, origin=origin)


def find_written(topic: Topic, txn: tuple[str, int], query: str | None) -> AppendResult | None:
    """What was written under this txn; that another query did is an error."""
    with _naming_queries(topic, txn, query):
        return TopicWriter(topic).find_txn(*txn, origin=query)


@contextmanager
def _naming_queries(
    topic: Topic, txn: tuple[str, int] | None, origin: str | None
) -> Iterator[None]:
    try:
        yield
    except InvalidRequestError as error:
        first = (
            TopicWriter(topic).find_txn(*txn) if txn is not None and origin is not None else None
        )
        if first is None or first.origin in (None, origin) or txn is None:
            raise
        raise InvalidRequestError(
            f"[TXN_OF_ANOTHER_QUERY] batch {txn[1]} under txnAppId {txn[0]!r} was written to topic "
            f"{topic.name!r} by the streaming query {first.origin}, and this is the query "
            f"{origin}, which counts its batches anew: it has another checkpoint. Nothing was "
            "written, and nothing was skipped. Give this query a txnAppId of its own, or the "
            "checkpoint of the old one"
        ) from error


def discard_aborted(where: Destination, messages: list[WriterCommitMessage | None]) -> None:
    # With every message there a commit was tried, which has seen to its files itself.
    if all(message is not None for message in messages):
        return
    for name, staged in staged_by_topic(messages).items():
        with suppress(LogTableError):
            TopicWriter(where.existing(name)).discard(staged)


class _Topics:
    """The topics that one task writes to; files of all are removed if it fails."""

    def __init__(self, where: Destination, task: int) -> None:
        self._where = where
        self._task = task
        self._open: dict[str, Stager] = {}
        self._stack = ExitStack()
        # One set of threads for all topics: each thread keeps memory for itself.
        self._encoders = self._stack.enter_context(_Encoders(ENCODERS))

    def __enter__(self) -> _Topics:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.__exit__(*failure)  # type: ignore[arg-type]

    def add(self, batch: pa.RecordBatch) -> None:
        if self._where.name is not None:
            rows = without_given(batch)
            self._staging(self._where.name, rows).add(rows)
            return
        for name, rows in _split_by_topic(batch):
            self._staging(name, rows).add(rows)
        if sum(staging.waiting_bytes for staging in self._open.values()) > WAITING_BYTES:
            max(self._open.values(), key=lambda staging: staging.waiting_bytes).flush()

    def finish(self) -> dict[str, Staged]:
        return {name: staging.finish() for name, staging in self._open.items()}

    def _staging(self, name: str, rows: pa.RecordBatch) -> Stager:
        if name not in self._open:
            topic = self._where.open(name)
            check_columns(topic, rows.schema)
            staging = TopicWriter(topic).begin_staging(
                first_sticky=self._task, encoders=self._encoders
            )
            self._open[name] = self._stack.enter_context(staging)
        return self._open[name]


class _Encoders(ThreadPoolExecutor):
    """Threads that take no more work than they can do soon: who has more waits."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self._room = Semaphore(HANDED_OVER)

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self._room.acquire()
        try:
            handed: Future[Any] = super().submit(*args, **kwargs)
        except BaseException:
            self._room.release()
            raise
        handed.add_done_callback(lambda _: self._room.release())
        return handed


def check_columns(topic: Topic, columns: pa.Schema) -> None:
    """Refuse columns that do not fit the topic, in the Kafka sink's words where it has Kafka's
    shape; there `value` may not be missing, since that would make every record a tombstone."""
    given = columns
    if TOPIC in columns.names:
        given = columns.remove(columns.get_field_index(TOPIC))
    view = topic.at()
    if is_kafka_shaped(view):
        if "value" not in given.names:
            raise SchemaMismatchError("Required attribute 'value' not found")
        check_text(
            given,
            [name for name in ("key", "value") if pa.types.is_binary(view.schema.field(name).type)],
        )
    TopicWriter(topic).check_columns(given)


def spark_columns(schema: StructType) -> pa.Schema:
    try:
        columns = arrow_schema(schema)
    except LogTableError:
        raise
    except Exception as error:
        raise SchemaMismatchError(
            f"these columns cannot be written: {schema.simpleString()}: {error}"
        ) from error
    if TOPIC in columns.names and not pa.types.is_string(columns.field(TOPIC).type):
        raise SchemaMismatchError(
            f"topic must be a(n) string, and is {columns.field(TOPIC).type}; cast it"
        )
    return columns


def fills_every_column(topic: Topic, columns: pa.Schema) -> bool:
    """Whether this is an `INSERT INTO` a view: SQL then sends null for each column it does not
    name, also for those that only the log gives."""
    shown = default_columns(topic.at(), include_headers=False, with_topic=False)
    return set(shown) <= set(columns.names)


def without_given(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without columns that only the log gives; they must be null. The topic is chosen by
    then, and what the rows say of it does not matter."""
    present = [name for name in GIVEN_BY_THE_LOG if name in batch.schema.names]
    for name in present:
        column = batch.column(name)
        if name != TOPIC and column.null_count < len(column):
            raise SchemaMismatchError(
                f"column {name!r} is given by the log and cannot be written; drop it"
            )
    return batch.drop_columns(present) if present else batch


def _split_by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    names = batch.column(TOPIC)
    if names.null_count:
        raise InvalidRequestError(
            "null topic present in the data. Use the topic option for setting a topic."
        )
    rows = batch.drop_columns([TOPIC])
    for name in names.unique().to_pylist():
        yield name, rows.filter(pc.equal(names, name))
