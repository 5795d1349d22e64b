"""Which columns of a topic are which fields of a value or a key in Kafka: the way back from
`columns_plan`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pylogtable.errors import InvalidRequestError
from pylogtable.format.model import TopicInfo
from pylogtable.format.schema import HEADERS
from pylogtable.kafka.typed.columns_plan import (
    KEY,
    OWN,
    TAKEN,
    VALUE,
    VALUE_SCHEMA_ID,
    key_names,
    value_names,
)


@dataclass(frozen=True)
class Fields:
    """The column of each field. `others` are columns without a field."""

    columns: Mapping[str, str]
    others: Sequence[str]


def is_from_typed_import(info: TopicInfo) -> bool:
    """True if the topic has the columns of a typed import."""
    return any(one.name == VALUE_SCHEMA_ID and one.type == "integer" for one in info.fields)


def columns_of_values(info: TopicInfo) -> list[str]:
    """The columns that have fields of values. What an import adds to them is none."""
    own: Collection[str] = OWN if is_from_typed_import(info) else (HEADERS,)
    return [one.name for one in info.fields if one.name not in info.key and one.name not in own]


def value_fields(info: TopicInfo, fields: tuple[str, ...] | None) -> Fields:
    """Those of values of a schema with these `fields`: none if it is no record, None if there is no
    schema."""
    columns = columns_of_values(info)
    if not fields:
        return _plain(VALUE, columns, fields, TAKEN | {name.lower() for name in info.key})
    if is_from_typed_import(info):
        return _named(columns, value_names(fields, info))
    # Any other table has a field of the key and of the value only once.
    columns = [*columns, *(name for name in info.key if name in fields)]
    same = {name: name for name in fields if name in columns}
    renamed = value_names([name for name in fields if name not in same], info)
    return _named(columns, {**same, **renamed})


def key_fields(info: TopicInfo, fields: tuple[str, ...] | None) -> Fields:
    """Those of keys."""
    columns = list(info.key)
    if not fields:
        return _plain(KEY, columns, fields, TAKEN)
    same = {name: name for name in fields if name in columns}
    return _named(columns, {**same, **key_names([name for name in fields if name not in same])})


def _named(columns: Sequence[str], names: Mapping[str, str]) -> Fields:
    found = {field: column for field, column in names.items() if column in columns}
    return Fields(found, [column for column in columns if column not in found.values()])


def _plain(
    part: str, columns: Sequence[str], fields: tuple[str, ...] | None, taken: Collection[str]
) -> Fields:
    """Without names of fields: a value that is no record has one column, and the columns of others
    tell their names."""
    if fields is None:
        return Fields({_without_prefix(part, one, columns, taken): one for one in columns}, [])
    if part in columns:
        return Fields({part: part}, [column for column in columns if column != part])
    return Fields({column: column for column in columns}, [])


def _without_prefix(part: str, column: str, columns: Sequence[str], taken: Collection[str]) -> str:
    """The field of a column. The prefix is not of the field if its name is not free without."""
    others = {one.lower() for one in columns if one != column}
    field, prefix = column, f"{part}_"
    while field.startswith(prefix):
        rest = field.removeprefix(prefix)
        if rest and rest.lower() not in taken and rest.lower() not in others:
            break
        field = rest
    return field


def check_key(name: str, info: TopicInfo) -> None:
    """Raise unless the keys of this topic are bytes."""
    types = {one.name: one.type for one in info.fields}
    keys = list(info.key)
    if keys and (keys != [KEY] or types[KEY] not in ("binary", "string")):
        raise InvalidRequestError(
            f"the key of topic {name!r} is {', '.join(keys)}, and keys of Kafka are bytes: give "
            "--key-format (key_format=)"
        )
