"""A topic that somebody asks for: its description, and what an existing one has otherwise. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from pylogtable.arguments import names_in
from pylogtable.format.config import describe_config
from pylogtable.format.model import CopyOf, Field, TopicInfo
from pylogtable.format.schema import KAFKA_FIELDS, type_text, widens
from pylogtable.topics.column_types import GivenType, make_fields
from pylogtable.topics.plan import new_topic_info


def asked_topic(
    partitions: int,
    schema: pa.Schema | Mapping[str, GivenType] | None,
    key: str | Sequence[str] | None,
    config: Mapping[str, object] | None,
    now_ms: int,
    source: CopyOf | None = None,
) -> TopicInfo:
    """The description of the topic that these arguments ask for; without a schema it is
    Kafka-shaped. Raises if an argument is not valid. `source` makes it a guarded copy [GUARD-1]."""
    if schema is None:
        fields: tuple[Field, ...] = KAFKA_FIELDS
        key = "key" if key is None else key
    else:
        fields = make_fields(schema)
    keys = [key] if isinstance(key, str) else names_in("key", () if key is None else key)
    settings = {} if config is None else config
    return new_topic_info(fields, keys, partitions, settings, now_ms, source)


def differences(there: TopicInfo, asked: TopicInfo) -> str:
    """What an existing topic has otherwise; "" if nothing. What may have come later is no
    difference: more columns, and wider ones. Nor is one partition, the default."""
    told = []
    if asked.partitions not in (1, there.partitions):
        told.append(f"{there.partitions} partition(s) (asked: {asked.partitions})")
    if asked.key != there.key:
        keys = (", ".join(key) or "none" for key in (there.key, asked.key))
        told.append("the key is {} (asked: {})".format(*keys))
    types = {field.name: field.type for field in there.fields}
    for field in asked.fields:
        found, wanted = types.get(field.name), type_text(field.type)
        if found is None:
            told.append(f"there is no column {field.name!r} (asked: {wanted})")
        elif type_text(found) != wanted and not widens(field.type, found):
            told.append(f"column {field.name!r} is {type_text(found)} (asked: {wanted})")
    settings, wanted_settings = describe_config(there.config), describe_config(asked.config)
    told += [
        f"{name}={settings[name]} (asked: {wanted_settings[name]})"
        for name in asked.config
        if settings[name] != wanted_settings[name]
    ]
    return ", ".join(told)
