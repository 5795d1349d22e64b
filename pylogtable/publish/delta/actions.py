"""The lines of a Delta log entry. Pure.

An entry shows one version of the topic. Its `commitInfo` says, under `pylogtable`, all that the
next publication has to know, so that it need not read the whole table [PUB-5].
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import msgspec

from pylogtable.format.model import Segment
from pylogtable.format.published_state import PublishedState
from pylogtable.format.schema import OFFSET, PARTITION, TIMESTAMP
from pylogtable.publish.delta.deletion_vectors import Descriptor
from pylogtable.publish.plan import TableFile
from pylogtable.publish.table import damaged, state_in
from pylogtable.segments.column_bounds import ColumnBounds

APP_ID = "pylogtable"
#: Longer texts are no statistics: Delta cuts them, and a cut maximum is wrong.
MAX_TEXT = 32

Action = dict[str, Any]


def commit_info(state: PublishedState, now_ms: int, publish_id: str) -> Action:
    return {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": "PUBLISH",
            "operationParameters": {"version": str(state.version)},
            "engineInfo": "pylogtable",
            "txnId": publish_id,
            "pylogtable": msgspec.to_builtins(state),
        }
    }


def txn(state: PublishedState, now_ms: int) -> Action:
    return {"txn": {"appId": APP_ID, "version": state.version, "lastUpdated": now_ms}}


def add(
    file: Segment,
    bounds: Mapping[str, ColumnBounds],
    now_ms: int,
    *,
    is_data: bool,
    vector: Descriptor | None = None,
) -> Action:
    """The action that adds a file, with its statistics, and with the vector of the rows that are
    hidden in it."""
    body = {
        "path": file.path,
        "partitionValues": {PARTITION: str(file.partition)},
        "size": file.size_bytes,
        "modificationTime": now_ms,
        "dataChange": is_data,
        "stats": json.dumps(_statistics(file, bounds), separators=(",", ":")),
    }
    return {"add": body if vector is None else _with_vector(body, vector)}


def add_again(known: Mapping[str, Any], vector: Descriptor | None, now_ms: int) -> Action:
    """The action that adds a file again, which an action `known` has added, with another vector, or
    with none."""
    body = {name: value for name, value in known.items() if name != "deletionVector"}
    body |= {"modificationTime": now_ms, "dataChange": True}
    return {"add": _with_vector(body, vector)}


def _with_vector(body: Mapping[str, Any], vector: Descriptor | None) -> dict[str, Any]:
    """The same with a vector. A value that is a bound may be in a row that is hidden."""
    statistics = json.loads(body["stats"])
    statistics.pop("tightBounds", None)
    if vector is not None:
        statistics["tightBounds"] = False
    made = {**body, "stats": json.dumps(statistics, separators=(",", ":"))}
    return made if vector is None else {**made, "deletionVector": vector}


def remove(
    file: TableFile, now_ms: int, *, is_data: bool, vector: Descriptor | None = None
) -> Action:
    """The action that removes a file, which has this vector, from the table."""
    body = {
        "path": file.path,
        "deletionTimestamp": now_ms,
        "dataChange": is_data,
        "extendedFileMetadata": True,
        "partitionValues": {PARTITION: str(file.partition)},
        "size": file.size_bytes,
    }
    return {"remove": body if vector is None else {**body, "deletionVector": vector}}


def _statistics(file: Segment, bounds: Mapping[str, ColumnBounds]) -> dict[str, Any]:
    """Statistics as Delta writes them. The bounds of a time are whole milliseconds; all others are
    values that the file has, because engines answer queries from them."""
    low: dict[str, Any] = {TIMESTAMP: _moment(file.min_timestamp_us // 1000)}
    high: dict[str, Any] = {TIMESTAMP: _moment(-(-file.max_timestamp_us // 1000))}
    nulls = {OFFSET: 0, TIMESTAMP: 0}
    if file.is_dense:
        low[OFFSET], high[OFFSET] = file.base_offset, file.end_offset - 1
    for name, of in bounds.items():
        nulls[name] = of.nulls
        least, greatest = _plain(of.least), _plain(of.greatest)
        if least is not None and greatest is not None:
            low[name], high[name] = least, greatest
    return {
        "numRecords": file.records,
        "minValues": {name: value for name, value in low.items() if value is not None},
        "maxValues": {name: value for name, value in high.items() if value is not None},
        "nullCount": nulls,
    }


def _plain(value: Any) -> Any:
    """The value in Delta's JSON; None if Delta has no statistics for it."""
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal | date):
        return None
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else None
    if isinstance(value, datetime):
        return None  # its bounds would have to be rounded, each in its direction
    if isinstance(value, date):
        return value.isoformat()
    # A double in JSON has 15 digits that are certain.
    if isinstance(value, Decimal):
        return float(value) if len(value.as_tuple().digits) <= 15 else None
    return value


def _moment(millis: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(millis // 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None  # beyond the years that Python knows
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}.{millis % 1000:03d}Z"


def encode(actions: Iterable[Action]) -> bytes:
    """A log entry: one action a line."""
    lines = (json.dumps(action, separators=(",", ":")) for action in actions)
    return "".join(f"{line}\n" for line in lines).encode()


def decode(data: bytes, path: str) -> Iterator[Action]:
    """The actions of a log entry."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    try:
        for line in data.splitlines():
            if line.strip():
                yield decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged(path, f"it cannot be decoded ({error})") from error


def publish_id_of(data: bytes, path: str) -> str:
    """The id of the publication that has put an entry; `""` if it has none."""
    for action in decode(data, path):
        info = action.get("commitInfo")
        if isinstance(info, dict):
            return str(info.get("txnId"))
    return ""


def state_of(data: bytes, path: str) -> PublishedState | None:
    """What an entry says about itself; None if somebody else wrote it."""
    found = list(decode(data, path))
    if not found:
        raise damaged(path, "it is empty")
    for action in found:
        info = action.get("commitInfo")
        if isinstance(info, dict) and "pylogtable" in info:
            return state_in(info["pylogtable"], path)
    return None
