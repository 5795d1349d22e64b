"""The columns of a topic's DataFrame, and their types in Spark and in Arrow."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.pandas import types as spark_arrow
from pyspark.sql.types import StructField, StructType

from pylogtable import SchemaMismatchError, View, is_kafka_shaped
from pylogtable.engine import Scan

_KAFKA_ORDER = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_HEADERS = "headers"


def default_columns(schema: pa.Schema, *, include_headers: bool, with_topic: bool) -> list[str]:
    """The columns of a read that does not choose any.

    A Kafka-shaped topic has the columns of Spark's Kafka source in the same order, headers only on
    request. Any other topic has the log's columns and then its own; `with_topic` adds `topic`, for
    reads of several topics.
    """
    own = schema.names
    if is_kafka_shaped(schema, more_columns=True):
        added = [name for name in own if name not in (*_KAFKA_ORDER, _HEADERS)]
        headers = [_HEADERS] if include_headers and _HEADERS in own else []
        return [*_KAFKA_ORDER, *added, *headers]
    return ["topic", *own] if with_topic else own


def spark_schema(arrow: pa.Schema) -> StructType:
    """The Spark columns of an Arrow schema, all nullable as the columns of a source are."""
    # Without the argument Spark 4.0 takes timestamps without a zone for those with one.
    converted = spark_arrow.from_arrow_schema(arrow, prefer_timestamp_ntz=True)
    return StructType([StructField(field.name, field.dataType) for field in converted])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow columns that Spark expects from a source, or passes to a sink."""
    with_zone = "timezone" in inspect.signature(spark_arrow.to_arrow_schema).parameters
    converted: pa.Schema = (
        spark_arrow.to_arrow_schema(schema, timezone="UTC")
        if with_zone
        else spark_arrow.to_arrow_schema(schema)
    )
    return converted


def check_requested(requested: StructType, views: Mapping[str, View]) -> None:
    """Raise if a topic does not have one of these columns, or has it with another type."""
    for topic, view in views.items():
        names = [*view.schema.names, "topic", "timestampType"]
        for field in requested:
            if field.name not in names:
                near = difflib.get_close_matches(field.name, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}"
                new_names = {stored: name for name, stored in view.stored_names.items()}
                if field.name in new_names:
                    hint = f"it was renamed to {new_names[field.name]!r}"
                raise SchemaMismatchError(f"topic {topic!r} has no column {field.name!r}; {hint}")
        has = spark_schema(Scan(view).reader(requested.names).schema)
        for field, own in zip(requested, has, strict=True):
            if _type_name(field) != _type_name(own):
                raise SchemaMismatchError(
                    f"column {field.name!r} of topic {topic!r} is {own.dataType.simpleString()}, "
                    f"and was requested as {field.dataType.simpleString()}; read it as it is, then "
                    "cast it"
                )


def ids_of(requested: StructType, view: View) -> dict[str, int | None]:
    """What these names mean in a version of the topic: the id of each column, which it keeps when
    it is renamed. None for a column that is not there, or not in files."""
    ids = view.column_ids
    return {name: ids.get(name) for name in requested.names}


def _type_name(field: StructField) -> str:
    return field.dataType.simpleString()
