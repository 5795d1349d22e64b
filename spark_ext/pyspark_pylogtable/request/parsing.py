"""Option values, parsed from text and checked once, before any store is opened."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pylogtable import TOPIC_CONFIG_KEYS, InvalidRequestError
from pylogtable.engine import NOT_GIVEN, ExpectedLast, as_datetime, parse_time
from pyspark_pylogtable.request.bounds import naming, parse_bound
from pyspark_pylogtable.request.option_names import PLACE, with_documented_names
from pyspark_pylogtable.request.options import DEFAULT_DELAY_MS, VIEWS, Options
from pyspark_pylogtable.request.subscription import parse_subscription

_UNITS_MS = {
    **dict.fromkeys(("", "ms"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


def parse_options(options: Mapping[str, str]) -> Options:
    """The options as one object. Raises if one is unknown, malformed or contradicts another."""
    given = with_documented_names(options)
    if "versionAsOf" in given and "timestampAsOf" in given:
        raise InvalidRequestError(
            "versionAsOf and timestampAsOf both choose the version to read: give one of them"
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
        starting=parse_bound(given, "starting"),
        ending=parse_bound(given, "ending"),
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
        keys=_keys(given),
        topic=_text(given, "topic"),
        key=_names(given, "key"),
        partitions=_whole(given, "partitions", at_least=1),
        create_topics=_boolean(given, "createTopics", default=False),
        merge_schema=_boolean(given, "mergeSchema", default=False),
        keep_offsets=_boolean(given, "keepOffsets", default=False),
        txn_app_id=_text(given, "txnAppId"),
        txn_version=_whole(given, "txnVersion", at_least=0),
        txn_expected_last=_expected_last(given),
        txn_note=_note(given),
        max_records_per_trigger=most,
        max_bytes_per_trigger=_whole(given, "maxBytesPerTrigger", at_least=1),
        min_records_per_trigger=least,
        max_trigger_delay_ms=_duration_ms(given, "maxTriggerDelay", DEFAULT_DELAY_MS),
        group=_text(given, "group"),
        config={key: given[key] for key in TOPIC_CONFIG_KEYS if key in given},
        given=frozenset(given).difference(PLACE),
    )


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


def _expected_last(given: Mapping[str, str]) -> ExpectedLast:
    """The last txnVersion, or none, as `str(topic.last_txn(…))` says it."""
    name = "txnExpectedLast"
    if name not in given:
        return NOT_GIVEN
    if given[name].strip().lower() == "none":
        return None
    try:
        return _whole(given, name, at_least=0)
    except InvalidRequestError:
        raise _bad(name, given[name], "must be a whole number, 0 or more, or none") from None


def _note(given: Mapping[str, str]) -> Any:
    """A JSON value, as text."""
    name = "txnNote"
    if name not in given:
        return None
    try:
        return json.loads(given[name], parse_constant=int)  # NaN is no JSON, and no int
    except (ValueError, RecursionError):
        raise _bad(name, given[name], 'must be JSON, such as {"read_to": 1200}') from None


def _names(given: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Column names, from `a,b` or from `["a","b"]`, which also allows commas in names."""
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


def _keys(given: Mapping[str, str]) -> tuple[Any, ...] | None:
    """Keys, from a JSON array. A key of several columns is an array itself."""
    if "keys" not in given:
        return None
    try:
        keys = json.loads(given["keys"])
    except (ValueError, RecursionError):
        keys = None
    if not isinstance(keys, list) or any(isinstance(key, dict) for key in keys):
        why = 'must be a JSON array, as ["u1","u2"], or [["eu",1]] if the key has several columns'
        raise _bad("keys", given["keys"], why)
    return tuple(tuple(key) if isinstance(key, list) else key for key in keys)


def _datetime(given: Mapping[str, str], name: str) -> datetime | None:
    if name not in given:
        return None
    with naming(name, given[name]):
        return as_datetime(parse_time(given[name]))


def _duration_ms(given: Mapping[str, str], name: str, default: int) -> int:
    """Milliseconds, from Spark's own time strings (`15m`, `30s`, `500ms`); these are not the
    durations of the library. A bare number is milliseconds."""
    if name not in given:
        return default
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", given[name].strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise _bad(name, given[name], "must be a duration such as 500ms, 30s, 15m or 1h")
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
            'storageOptions must be a JSON object such as {"key":"…","secret":"…"}. The value is '
            "not shown here, because it may hold credentials"
        )
    return content
