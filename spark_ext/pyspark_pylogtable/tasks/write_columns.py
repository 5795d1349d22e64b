"""Checks the columns of a write against its topic, before any data is written."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pylogtable import InvalidRequestError, LogTableError, SchemaMismatchError, is_kafka_shaped
from pylogtable.engine import AppendPlan
from pyspark_pylogtable.columns import arrow_schema, default_columns
from pyspark_pylogtable.request.destination import (
    OFFSET_REFUSED,
    check_offset_column,
    check_text,
)
from pyspark_pylogtable.tasks.assignment import assigned_columns

TOPIC = "topic"
#: Columns that only the log sets; the rows of a write must have null there. With `keepOffsets`,
#: rows bring their offsets.
SET_BY_LOG = ("offset", "timestampType", TOPIC)

_INSTEAD = {
    "variant": "Write it as text with to_json, and read it with parse_json",
    "geometry": "Write its bytes with ST_AsBinary",
    "geography": "Write its bytes with ST_AsBinary",
}


def checked_plan(plan: AppendPlan, columns: pa.Schema, *, merge: bool) -> AppendPlan:
    """Raise if rows with these columns cannot be written by the plan. With `merge`, the topic gets
    the columns that it does not have. Returns the plan after that.

    For a Kafka-shaped topic the messages are those of the Kafka sink, and `value` is required:
    without it every record would be a tombstone.
    """
    given = columns
    if TOPIC in columns.names:
        given = columns.remove(columns.get_field_index(TOPIC))
    if is_kafka_shaped(plan.schema, more_columns=True):
        if "value" not in given.names:
            raise SchemaMismatchError("Required attribute 'value' not found")
        check_text(given, ("key", "value"))
    check_offset_column(given, keep_offsets=plan.keep_offsets)
    given = assigned_columns(given, plan.schema)
    if merge:
        plan = plan.merge_columns(given)
    try:
        plan.check_columns(given)
    except SchemaMismatchError as error:
        # A name that differs only in case is not added either [TYPE-5].
        known = {name.lower() for name in (*plan.schema.names, *SET_BY_LOG)}
        unknown = ", ".join(name for name in given.names if name.lower() not in known)
        if merge or not unknown:
            raise
        raise SchemaMismatchError(
            f'{error}. A write adds {unknown} with .option("mergeSchema", True), or with '
            "LogTable.append(..., merge_schema=True)"
        ) from None
    return plan


def spark_columns(schema: StructType) -> pa.Schema:
    """The Arrow columns of a DataFrame; raises for types that a topic cannot hold."""
    for field in schema:
        if (lost := _lost_type(field.dataType)) is not None:
            raise SchemaMismatchError(
                f"column {field.name!r} has the type {lost}, which a topic cannot hold: Spark "
                f"passes it on as a struct of bytes, and it comes back as one. {_INSTEAD[lost]}"
            )
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


def _lost_type(kind: DataType) -> str | None:
    """The name of a type in it that Spark turns into a struct on its way to a sink."""
    if isinstance(kind, StructType):
        return next(filter(None, (_lost_type(field.dataType) for field in kind)), None)
    if isinstance(kind, ArrayType):
        return _lost_type(kind.elementType)
    if isinstance(kind, MapType):
        return _lost_type(kind.keyType) or _lost_type(kind.valueType)
    # By name, because Spark 4.0 has no class for most of them.
    return kind.typeName() if kind.typeName() in _INSTEAD else None


def without_log_columns(
    batch: pa.RecordBatch, topic: str | None, *, keep_offsets: bool = False
) -> pa.RecordBatch:
    """The batch without the columns that only the log sets. They must be null, except `topic`: it
    must name `topic`, unless an option chose the topic, and `topic` is None here."""
    names = batch.schema.names
    present = [name for name in set_by_log(keep_offsets) if name in names]
    for name in present:
        column = batch.column(name)
        if name != TOPIC and column.null_count < len(column):
            raise SchemaMismatchError(
                OFFSET_REFUSED
                if name == "offset"
                else f"column {name!r} is given by the log and cannot be written; drop it"
            )
    if TOPIC in present and topic is not None:
        # An INSERT sends null for it, and for `offset` too.
        _check_topic(batch.column(TOPIC), topic, may_be_null="offset" in present)
    return batch.drop_columns(present) if present else batch


def set_by_log(keep_offsets: bool) -> tuple[str, ...]:
    """The columns that rows of a write must not fill."""
    return SET_BY_LOG[1:] if keep_offsets else SET_BY_LOG


def _check_topic(column: pa.Array, topic: str, *, may_be_null: bool) -> None:
    found = [name for name in pc.unique(column).to_pylist() if name != topic]
    if may_be_null and None in found:
        found.remove(None)
    if found:
        other = "null" if found[0] is None else repr(found[0])
        raise InvalidRequestError(
            f"the rows have a column 'topic' with {other}, and they go to the topic {topic!r}. "
            "Drop the column; or write to the path of the store, where each row goes to the topic "
            "that it names"
        )


def has_every_column(topic: pa.Schema, columns: pa.Schema) -> bool:
    """True for an `INSERT INTO` a view: SQL sends null for each column that it does not name,
    including those that only the log sets."""
    shown = default_columns(topic, include_headers=False, with_topic=False)
    return set(shown) <= set(columns.names)
