"""Which columns a DataFrame of a topic has, and their types in Spark and in Arrow."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.pandas import types as spark_arrow
from pyspark.sql.types import StructField, StructType

from pylogtable import SchemaMismatchError, View
from pylogtable.engine import Scan

_KAFKA_ORDER = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_HEADERS = "headers"


def is_kafka_shaped(view: View) -> bool:
    """Whether the topic has Kafka's own columns, so that what reads `format("kafka")` reads it."""
    names = view.schema.names
    return view.key == ("key",) and "value" in names


def default_columns(view: View, *, include_headers: bool, with_topic: bool) -> list[str]:
    """Kafka's columns in the order of Spark's Kafka source for a topic of Kafka's shape, headers on
    request as there; for any other the log's columns and then its own. `with_topic` is for reads
    that may see several topics."""
    own = view.schema.names
    if is_kafka_shaped(view):
        added = [name for name in own if name not in (*_KAFKA_ORDER, _HEADERS)]
        headers = [_HEADERS] if include_headers and _HEADERS in own else []
        return [*_KAFKA_ORDER, *added, *headers]
    return ["topic", *own] if with_topic else own


def spark_schema(arrow: pa.Schema) -> StructType:
    """The Spark columns of an Arrow schema, all nullable, as a source's columns are."""
    # Spark 4.0 takes timestamps without a zone for those with one unless told.
    converted = spark_arrow.from_arrow_schema(arrow, prefer_timestamp_ntz=True)
    return StructType([StructField(field.name, field.dataType) for field in converted])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow columns that Spark expects of a source with these columns, or hands to a sink."""
    with_zone = "timezone" in inspect.signature(spark_arrow.to_arrow_schema).parameters
    converted: pa.Schema = (
        spark_arrow.to_arrow_schema(schema, timezone="UTC")
        if with_zone
        else spark_arrow.to_arrow_schema(schema)
    )
    return converted


def check_asked(asked: StructType, views: Mapping[str, View]) -> None:
    """Refuse columns that a topic does not have, or has with another type."""
    for topic, view in views.items():
        names = [*view.schema.names, "topic", "timestampType"]
        for field in asked:
            if field.name not in names:
                near = difflib.get_close_matches(field.name, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}"
                raise SchemaMismatchError(f"topic {topic!r} has no column {field.name!r}; {hint}")
        has = spark_schema(Scan(view).reader(asked.names).schema)
        for field, own in zip(asked, has, strict=True):
            if _bare(field) != _bare(own):
                raise SchemaMismatchError(
                    f"column {field.name!r} of topic {topic!r} is {own.dataType.simpleString()}, "
                    f"and was asked for as {field.dataType.simpleString()}; read it as it is and "
                    "cast it then"
                )


def _bare(field: StructField) -> str:
    return field.dataType.simpleString()
