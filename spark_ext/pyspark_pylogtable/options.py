"""The options of `format("pylogtable")`, parsed and checked once, before any store is touched.

Names are those of Spark's Kafka connector wherever the meaning is the same. Nothing is ignored: an
option that would do nothing here is refused, with the reason and what to use instead. Spark builds
a source without saying whether it will read or write, once or as a stream, so `refuse_for` is
called when that is known.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from pylogtable import TOPIC_CONFIG_KEYS, InvalidRequestError
from pyspark_pylogtable.subscription import (
    EPOCH,
    POSITION_FORMS,
    Position,
    Subscription,
    parse_position,
    parse_subscription,
    parse_time,
)

#: "read" is one of which it is not known yet whether it is a stream.
Use = Literal["read", "batch read", "stream read", "write", "stream write"]

VIEWS = ("records", "latest", "segments", "partitions", "history", "groups")

_PLACE = ("path", "storageOptions")
_RANGE = (
    *(f"{side}{form}" for side in ("starting", "ending") for form in POSITION_FORMS),
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
)
_ENDING = tuple(name for name in _RANGE if name.startswith("ending"))
_TRAVEL = ("versionAsOf", "timestampAsOf")
_READ = ("subscribe", "subscribePattern", "assign", *_RANGE, *_TRAVEL, "columns", "view")
_STREAM_READ = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "group",
)
_STREAM_WRITE = ("checkpointLocation", "queryName")
_WRITE = ("topic", "key", "partitions", "txnAppId", "txnVersion", *TOPIC_CONFIG_KEYS)
_NAMES = {
    name.lower(): name
    for name in (*_PLACE, *_READ, "includeHeaders", *_STREAM_READ, *_WRITE, *_STREAM_WRITE)
}

# Of minOffsetsPerTrigger, as in the Kafka connector.
DEFAULT_DELAY_MS = 15 * 60_000
_UNITS_MS = {
    **dict.fromkeys(("", "ms"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}

# What Spark adds by itself to the options of CREATE TABLE.
_TABLE_PROPERTIES = ("provider", "owner", "location", "external", "comment", "is_managed_location")

_NO_GROUP = (
    "a read belongs to no group: remove it, and say where to start with startingOffsets; a stream "
    "tells its positions to a consumer group with the option group"
)
_NO_SERIALIZERS = "columns have types and are stored as they are: remove it"
_CREDENTIALS = "credentials of the store go into storageOptions"
_ONCE = "txnAppId and txnVersion make a write happen once"
# Both by the beginning of the key, the second after `kafka.`.
_REFUSED = {
    "paths": 'several paths at once: give one, with load("<path>"); a store\'s path with subscribe '
    "or subscribePattern reads several topics",
    "groupIdPrefix": _NO_GROUP,
    "kafkaConsumer.pollTimeoutMs": "there is no consumer that polls: remove it",
    "fetchOffset.": "offsets come from the topic's manifest, not from a broker: remove it",
    "file.delete.delay.ms": "vacuum deletes files, and its retention says when: remove it",
    "partition.metadata.cache.": "partitions are not cached, every load sees all: remove it",
    "key.": _NO_SERIALIZERS,
    "value.": _NO_SERIALIZERS,
}
_KAFKA = {
    "bootstrap.servers": "path takes its place: a directory or s3://bucket/…",
    "group.id": _NO_GROUP,
    "auto.offset.reset": "say where to start with startingOffsets",
    "enable.auto.commit": "a read commits no positions: remove it",
    "isolation.level": "only committed records are ever visible: remove it",
    "security.": _CREDENTIALS,
    "sasl.": _CREDENTIALS,
    "ssl.": _CREDENTIALS,
    "transactional.id": _ONCE,
    "enable.idempotence": _ONCE,
    "partitioner.class": "the key decides, as in Kafka's default partitioner: remove it",
    "key.": _NO_SERIALIZERS,
    "value.": _NO_SERIALIZERS,
}
_INSTEAD = {
    "topic": "subscribe chooses the topics to read",
    "partitions": "assign reads some partitions, minPartitions makes more Spark tasks",
    "subscribe": "topic names the topic to write to",
}


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for; the defaults are those of a read or write that asks for nothing."""

    path: str | None = None
    # Not shown: it may hold credentials.
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    subscription: Subscription | None = None
    starting: Position | None = None
    ending: Position | None = None
    starting_strategy: str = "error"
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    version_as_of: int | None = None
    timestamp_as_of: datetime | None = None
    columns: tuple[str, ...] | None = None
    view: str = "records"
    topic: str | None = None
    key: tuple[str, ...] | None = None
    partitions: int | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    max_records_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_records_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_DELAY_MS
    group: str | None = None
    config: dict[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    def require_path(self) -> str:
        if self.path is None:
            raise InvalidRequestError(
                'no path: give it with .load("<path>"), .save("<path>") or .option("path", …). A '
                "catalog table (CREATE TABLE … USING pylogtable) reaches a Python source with "
                "empty options in Spark 4.0 to 4.3, also if it was created with a path. Instead: "
                "CREATE TEMPORARY VIEW v USING pylogtable OPTIONS (path '<path>'), or SELECT … "
                "FROM t WITH (path='<path>'), or in Python "
                'LogTable.for_path(spark, "<path>").create_view("v")'
            )
        return self.path

    @property
    def txn(self) -> tuple[str, int] | None:
        """What makes a batch write happen once."""
        if self.txn_app_id is None or self.txn_version is None:
            return None
        return self.txn_app_id, self.txn_version

    def refuse_for(self, use: Use) -> None:
        """Fails on options that are for something else than `use` (and, if it reads, the view)."""
        if use in ("write", "stream write"):
            self._refuse((*_READ, *_STREAM_READ), "for reading, and this is a write")
        else:
            self._refuse((*_WRITE, *_STREAM_WRITE), "for writing, and this is a read")
        match use:
            case "write":
                self._refuse_for_batch_write()
            case "stream write":
                why = "the batch's own number in a stream, which makes each happen once"
                self._refuse(("txnVersion",), f"{why}; with foreachBatch give it to the write")
            case "stream read":
                self._refuse_for_stream()
            case _:
                if use == "batch read":
                    self._refuse(_STREAM_READ, "for streams, and this is a batch read")
                self._refuse_for_view()

    def _refuse_for_batch_write(self) -> None:
        self._refuse(_STREAM_WRITE, "for streams, and this is a batch write")
        if (self.txn_app_id is None) != (self.txn_version is None):
            have, lack = "txnVersion", "txnAppId"
            if self.txn_version is None:
                have, lack = lack, have
            raise InvalidRequestError(
                f"{have} is given without {lack}: a write that happens once needs both, the name "
                "of the job and a number that grows with each of its writes"
            )

    def _refuse_for_stream(self) -> None:
        self._refuse(_ENDING, "not valid in streaming queries, which have no end")
        why = "of no use in a stream, which reads what is appended to the newest version"
        self._refuse(_TRAVEL, why)
        if self.view != "records":
            raise InvalidRequestError(
                f"view={self.view} cannot be read as a stream: it changes as a whole with each "
                "commit. Stream the records, or read the view as a batch (in foreachBatch, say)"
            )
        if "maxTriggerDelay" in self.given and self.min_records_per_trigger is None:
            raise InvalidRequestError(
                "maxTriggerDelay is how long minOffsetsPerTrigger may hold a batch back, and that "
                "is not given: give both, or none"
            )

    def _refuse_for_view(self) -> None:
        if self.view == "latest":
            why = "of no use with view=latest, the newest record of each key in the whole topic"
            ranges = (*_RANGE, *_STREAM_READ)
            self._refuse(ranges, f"{why}; versionAsOf and timestampAsOf show it as it was")
        elif self.view != "records":
            why = f"about records, and view={self.view} shows none"
            ranges = (*_RANGE, *_STREAM_READ, "includeHeaders")
            self._refuse(ranges, f"{why}; filter the DataFrame instead")
        if self.view in ("history", "groups"):
            self._refuse(_TRAVEL, f"of no use with view={self.view}, which is not kept by version")

    def _refuse(self, names: Iterable[str], why: str) -> None:
        wrong = [name for name in names if name in self.given]
        if wrong:
            verb, them = ("is", "it") if len(wrong) == 1 else ("are", "them")
            hints = [f"; {_INSTEAD[name]}" for name in wrong if name in _INSTEAD]
            listed = ", ".join(wrong)
            raise InvalidRequestError(f"{listed} {verb} {why}: remove {them}{''.join(hints)}")


def parse_options(options: Mapping[str, str]) -> Options:
    """Fails on whatever is unknown, malformed or contradictory, for reads and writes alike."""
    given = _named(options)
    if "versionAsOf" in given and "timestampAsOf" in given:
        raise InvalidRequestError(
            "versionAsOf and timestampAsOf both say which version to read: give one of them"
        )
    path = given.get("path", "")
    most, least = (_whole(given, f"{side}OffsetsPerTrigger", at_least=1) for side in ("max", "min"))
    if most is not None and least is not None and least > most:
        raise InvalidRequestError(
            f"The value of minOffsetsPerTrigger({least}) is higher than the "
            f"maxOffsetsPerTrigger({most}): no batch could ever be large enough"
        )
    return Options(
        path=path if path.strip() else None,
        storage_options=_storage_options(given.get("storageOptions")),
        subscription=parse_subscription(given),
        starting=parse_position(given, "starting"),
        ending=parse_position(given, "ending"),
        starting_strategy=_choice(
            given, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
        ),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
        min_partitions=_whole(given, "minPartitions", at_least=1),
        max_records_per_partition=_whole(given, "maxRecordsPerPartition", at_least=1),
        include_headers=_boolean(given, "includeHeaders", default=False),
        version_as_of=_whole(given, "versionAsOf", at_least=0),
        timestamp_as_of=_datetime(given, "timestampAsOf"),
        columns=_names(given, "columns"),
        view=_choice(given, "view", VIEWS, "records"),
        topic=_text(given, "topic"),
        key=_names(given, "key"),
        partitions=_whole(given, "partitions", at_least=1),
        txn_app_id=_text(given, "txnAppId"),
        txn_version=_whole(given, "txnVersion", at_least=0),
        max_records_per_trigger=most,
        max_bytes_per_trigger=_whole(given, "maxBytesPerTrigger", at_least=1),
        min_records_per_trigger=least,
        max_trigger_delay_ms=_duration_ms(given, "maxTriggerDelay", DEFAULT_DELAY_MS),
        group=_text(given, "group"),
        config={key: given[key] for key in TOPIC_CONFIG_KEYS if key in given},
        given=frozenset(given).difference(_PLACE),
    )


def _named(options: Mapping[str, str]) -> dict[str, str]:
    """The options under their documented spelling; Spark hands them over in lower case."""
    lowered = {key.lower(): text for key, text in options.items()}
    if "provider" in lowered:
        for key in [*lowered]:
            if key in _TABLE_PROPERTIES or key.startswith("option."):
                del lowered[key]
    for key in lowered:
        if key not in _NAMES:
            raise InvalidRequestError(_why_not(key))
    return {_NAMES[key]: text for key, text in lowered.items()}


def _why_not(key: str) -> str:
    for start, why in _REFUSED.items():
        if key.startswith(start.lower()):
            return f"option {start + key[len(start) :]!r}: {why}"
    if key.startswith("kafka."):
        setting = key.removeprefix("kafka.")
        advice = next((why for start, why in _KAFKA.items() if setting.startswith(start)), None)
        if setting in TOPIC_CONFIG_KEYS:
            advice = f"give {setting!r} without 'kafka.' to the write that creates the topic"
        return f"option {key!r}: there is no broker here; {advice or 'remove it'}"
    known = [name for name in _NAMES.values() if ("." in name) >= ("." in key)]
    spellings = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in known}
    near = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", key), spellings, n=1, cutoff=0.7)
    hint = f"did you mean {spellings[near[0]]!r}?" if near else f"known: {', '.join(known)}"
    return f"unknown option {key!r}; {hint}"


def _bad(name: str, text: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"option {name}={text!r}: {why}")


def _text(given: Mapping[str, str], name: str) -> str | None:
    if name in given and not given[name].strip():
        raise _bad(name, given[name], "is blank; give a value or leave it out")
    return given[name].strip() if name in given else None


def _choice(given: Mapping[str, str], name: str, choices: Sequence[str], default: str) -> str:
    text = given.get(name, default).strip().lower()
    if text not in choices:
        near = difflib.get_close_matches(text, choices, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise _bad(name, given[name], f"must be one of {', '.join(choices)}{hint}")
    return text


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    return _choice(given, name, ("true", "false"), str(default).lower()) == "true"


def _whole(given: Mapping[str, str], name: str, at_least: int) -> int | None:
    if name not in given:
        return None
    text = given[name].strip()
    if not re.fullmatch(r"[0-9]{1,19}", text) or not at_least <= int(text) < 2**63:
        raise _bad(name, given[name], f"must be a whole number, {at_least} or more")
    return int(text)


def _names(given: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Column names, of `a,b` or, for names with commas or spaces around them, `["a","b"]`."""
    if name not in given:
        return None
    text = given[name].strip()
    try:
        parts = json.loads(text) if text.startswith("[") else [p.strip() for p in text.split(",")]
    except (ValueError, RecursionError):
        parts = []
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise _bad(name, given[name], 'must name columns, as a,b or as ["a","b"]')
    repeated = sorted({part for part in parts if parts.count(part) > 1})
    if repeated:
        raise _bad(name, given[name], f"{', '.join(repeated)} is named twice")
    return tuple(parts)


def _datetime(given: Mapping[str, str], name: str) -> datetime | None:
    if name not in given:
        return None
    try:
        return EPOCH + timedelta(microseconds=parse_time(name, given[name]))
    except OverflowError:
        raise _bad(name, given[name], "is beyond the year 9999; is it in milliseconds?") from None


def _duration_ms(given: Mapping[str, str], name: str, default: int) -> int:
    """Of Spark's time strings: `15m`, `30s`, `500ms`; a bare number is milliseconds."""
    if name not in given:
        return default
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", given[name].strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise _bad(name, given[name], "must be a time such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _UNITS_MS[found[2]]


def _storage_options(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InvalidRequestError(
            'storageOptions must be a JSON object such as {"key":"…","secret":"…"}; what was given '
            "is not shown, since it may hold credentials"
        )
    return content
