"""The names of all options, and the advice for names that are not supported."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from pylogtable import TOPIC_CONFIG_KEYS, InvalidRequestError
from pyspark_pylogtable.request.bounds import BOUND_FORMS

PLACE = ("path", "storageOptions")
RANGE = (
    *(f"{side}{form}" for side in ("starting", "ending") for form in BOUND_FORMS),
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
)
ENDING = tuple(name for name in RANGE if name.startswith("ending"))
TIME_TRAVEL = ("versionAsOf", "timestampAsOf")
READ = ("subscribe", "subscribePattern", "assign", *RANGE, *TIME_TRAVEL, "columns", "view", "keys")
STREAM_READ = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "group",
)
STREAM_WRITE = ("checkpointLocation", "queryName")
WRITE = (
    *("topic", "key", "partitions", "createTopics", "mergeSchema", "keepOffsets"),
    *("txnAppId", "txnVersion", "txnExpectedLast", "txnNote"),
    *TOPIC_CONFIG_KEYS,
)

_BY_LOWER_CASE = {
    name.lower(): name
    for name in (*PLACE, *READ, "includeHeaders", *STREAM_READ, *WRITE, *STREAM_WRITE)
}

#: Why there are no catalog tables, and what to use.
NO_CATALOG_TABLES = (
    "A catalog table (CREATE TABLE … USING pylogtable, saveAsTable) does not work: Spark 4.0 to "
    "4.3 gives a Python source no options when such a table is used, even if it was created with a "
    "path. A saveAsTable with a path has appended its rows to the topic there; do not repeat it. "
    "Use CREATE TEMPORARY VIEW v USING pylogtable OPTIONS (path '<path>'), or in Python "
    'LogTable.for_path(spark, "<path>").create_view("v"). A table for every session is a published '
    "one: LogTable.publish, then CREATE TABLE … USING delta. Or create a table with its columns "
    "and name the path each time: SELECT … FROM t WITH (path='<path>')"
)
# Spark itself adds this to the options of CREATE TABLE, if it does not name columns.
_OF_CREATE_TABLE = "provider"

_NO_GROUP = (
    "a read belongs to no consumer group. Remove it, and set the start with startingOffsets; a "
    "stream reports its positions to a consumer group with the option group"
)
_NO_SERIALIZERS = "columns have types and are stored as they are. Remove it"
_CREDENTIALS = "put the credentials of the store into storageOptions"
_ONCE = "use txnAppId and txnVersion for a write that happens once"
# Keys are prefixes: of the option's name, and below of its name after `kafka.`.
_UNSUPPORTED = {
    "paths": 'several paths at once are not supported. Give one, with load("<path>"); to read '
    "several topics give the path of their store, with subscribe or subscribePattern",
    "groupIdPrefix": _NO_GROUP,
    "kafkaConsumer.pollTimeoutMs": "there is no consumer that polls. Remove it",
    "fetchOffset.": "offsets come from the topic's manifest, not from a broker. Remove it",
    "file.delete.delay.ms": "vacuum deletes files, and its retention says when. Remove it",
    "partition.metadata.cache.": "partitions are not cached, every load sees all. Remove it",
    "key.": _NO_SERIALIZERS,
    "value.": _NO_SERIALIZERS,
}
_KAFKA_ADVICE = {
    "bootstrap.servers": "use path instead: a directory or s3://bucket/…",
    "group.id": _NO_GROUP,
    "auto.offset.reset": "set the start with startingOffsets",
    "enable.auto.commit": "a read commits no positions. Remove it",
    "isolation.level": "only committed records are ever visible. Remove it",
    "security.": _CREDENTIALS,
    "sasl.": _CREDENTIALS,
    "ssl.": _CREDENTIALS,
    "transactional.id": _ONCE,
    "enable.idempotence": _ONCE,
    "partitioner.class": "the key decides, as in Kafka's default partitioner. Remove it",
    "key.": _NO_SERIALIZERS,
    "value.": _NO_SERIALIZERS,
}


def with_documented_names(options: Mapping[str, str]) -> dict[str, str]:
    """The options under their documented names, in any case; Spark passes them in lower case.
    Raises for a name that is not supported."""
    lowered = {key.lower(): text for key, text in options.items()}
    if _OF_CREATE_TABLE in lowered:
        raise InvalidRequestError(NO_CATALOG_TABLES)
    for key in lowered:
        if key not in _BY_LOWER_CASE:
            raise InvalidRequestError(_why_unsupported(key))
    return {_BY_LOWER_CASE[key]: text for key, text in lowered.items()}


def _why_unsupported(key: str) -> str:
    for prefix, why in _UNSUPPORTED.items():
        if key.startswith(prefix.lower()):
            return f"option {prefix + key[len(prefix) :]!r}: {why}"
    if key.startswith("kafka."):
        setting = key.removeprefix("kafka.")
        found = (why for prefix, why in _KAFKA_ADVICE.items() if setting.startswith(prefix))
        advice = next(found, "remove it")
        if setting in TOPIC_CONFIG_KEYS:
            advice = f"give {setting!r} without 'kafka.' to the write that creates the topic"
        return f"option {key!r}: there is no broker here; {advice}"
    # A name with dots is a misspelt topic setting, so only those are suggested.
    known = [name for name in _BY_LOWER_CASE.values() if ("." in name) >= ("." in key)]
    spellings = {_letters(name): name for name in known}
    near = difflib.get_close_matches(_letters(key), spellings, n=1, cutoff=0.7)
    hint = f"did you mean {spellings[near[0]]!r}?" if near else f"known: {', '.join(known)}"
    return f"unknown option {key!r}; {hint}"


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
