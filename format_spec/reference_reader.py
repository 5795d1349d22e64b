"""A reader of pylogtable topics, to be read beside spec.md.

It needs json and pyarrow, and nothing of the library. The sections below have the numbers of the
specification's, and each rule is cited where it is enforced. It prefers the plain way to the fast
one: it replays every commit from version 0 on, and reads files as a whole. Roots and leaves only
save work, so it looks at them only if the commits below a root are gone, as after a vacuum.

    python reference_reader.py <topic> [--version N]      prints the rows as lines of JSON
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Record = dict[str, Any]  # an object of the format, with its defaults filled in
Require = Callable[[Any, str, str], None]  # condition, rule, detail


class Refusal(Exception):
    """The reader says no. The classes below are the kinds of errors.md."""


class Corrupt(Refusal):
    """The object at `path` breaks `rule`."""

    def __init__(self, path: str, rule: str, detail: str) -> None:
        super().__init__(f"{path} breaks [{rule}]: {detail}")
        self.path, self.rule, self.detail = path, rule, detail


class Unsupported(Refusal):
    """The topic needs something that this reader does not know [PROTO-2]."""


class OutOfRange(Refusal):
    """An offset outside of `[log start, end]` was asked for [READ-2]."""


class NoTopic(Refusal):
    """There never was a topic in this folder [HINT-1]."""


class InvalidRequest(Refusal):
    """The version that was asked for does not exist, or is no longer kept [READ-5]."""


class FileGone(Refusal):
    """A file that an entry names is missing [SEG-1]."""


class Mismatch(Exception):
    """A JSON value does not have the shape that its table says."""


# --- 1. Replay -------------------------------------------------------------------------------


def open_topic(folder: Path, version: int | None = None) -> Record:
    """The state at `version`, or at the newest one. If the topic is deleted, `topic` is None."""
    commits = numbers(folder, "_manifest", COMMIT_NAME)
    roots = numbers(folder, "_manifest", ROOT_NAME)
    last = end_of_run(commits, 0)
    beyond = [root for root in roots if last < root and (version is None or root <= version)]
    if version is not None and version <= last:
        beyond, last = [], version
    for root in reversed(beyond):  # the commits below it are gone [VAC-1]
        to = end_of_run(commits, root + 1) if version is None else version
        try:
            state = load_root(folder, root)
        except Corrupt as error:
            if error.rule.startswith(("LEAF", "SUM-2")):
                raise
            continue  # a root that cannot be used is passed over [ROOT-6]
        return until_gap(folder, replay(folder, state, root + 1, to), version, commits)
    if last < 0 and not roots:
        raise NoTopic(f"there is no topic at {folder}")
    if version is not None and version > last:
        raise InvalidRequest(f"version {version} is not there, or no longer kept [READ-5]")
    if beyond:
        raise Corrupt(commit_name(last + 1), "COMMIT-3", "missing, and no root can be used")
    return until_gap(folder, replay(folder, None, 0, last), version, commits)


def until_gap(folder: Path, state: Record, version: int | None, commits: list[int]) -> Record:
    """The state, unless the newest one is wanted and the topic goes on after a miss [COMMIT-3]."""
    for later in commits if version is None else []:
        if later > state["version"] and load_commit(folder, later)["topic_id"] == state["topic_id"]:
            raise Corrupt(commit_name(state["version"] + 1), "COMMIT-3", f"{later} is beyond it")
    return state


def replay(folder: Path, state: Any, first: int, last: int) -> Record:
    for version in range(first, last + 1):
        state = apply(state, load_commit(folder, version))
    return dict(state)


def end_of_run(versions: Iterable[int], first: int) -> int:
    """The last version before the first miss [COMMIT-3]; `first - 1` if `first` is missing."""
    there = set(versions)
    return next(version for version in itertools.count(first) if version not in there) - 1


def apply(state: Record | None, commit: Record) -> Record:
    """The state after `commit`, which follows `state`."""

    def require(holds: Any, rule: str, detail: str) -> None:
        if not holds:
            raise Corrupt(commit_name(commit["version"]), rule, detail)

    head = {name: commit[name] for name in ("version", "commit_id", "topic_id", "committed_at_ms")}
    head["protocol"], topic = commit["protocol"], commit["topic"]
    partitions: list[Record] = []
    txns: Record = {}
    if state is None:
        require(commit["version"] == 0, "COMMIT-3", "commits before it are missing")
    else:
        follows = commit["version"] == state["version"] + 1
        require(follows, "COMMIT-3", f"it does not follow version {state['version']}")
        if is_void(state, commit):
            return {**state, "version": commit["version"]}
        later = commit["committed_at_ms"] > state["committed_at_ms"]
        require(later, "COMMIT-6", "it is not later than the commit before it")
        is_child = commit["parent"] in (None, state["commit_id"])
        require(is_child, "COMMIT-10", f"its parent is not commit {state['commit_id']}")
    if state is None or state["topic"] is None:
        creates = commit["operation"] == "create" and topic and head["protocol"]
        require(creates, "META-2", "there is no topic, and it does not create one")
        is_new = state is None or commit["topic_id"] != state["topic_id"]
        require(is_new, "META-5", "it creates a topic under the id of the deleted one")
    else:
        require(commit["operation"] != "create", "META-2", "it creates a topic that exists")
        head["protocol"], topic = head["protocol"] or state["protocol"], topic or state["topic"]
        partitions, txns = list(state["partitions"]), dict(state["txns"])
    if commit["operation"] == "delete_topic":
        return {**head, "topic": None, "partitions": [], "txns": {}}
    require(topic["partitions"] >= len(partitions), "META-3", "partitions are taken away")
    check_columns(state and state["topic"], topic, head["protocol"], require)
    is_first_value = state and state["topic"] and not values(state["topic"]) and values(topic)
    written = topic["key"] and any(partition["end"] for partition in partitions)
    require(not is_first_value or not written, "META-4", "records would become tombstones")
    partitions += [EMPTY_PARTITION] * (topic["partitions"] - len(partitions))
    entries = [*commit["add"], *commit["replaced"], *commit["log_starts"]]
    named = {entry["partition"] for entry in entries} | {*commit["ends"], *commit["cleaned"]}
    for number in sorted(named):
        require(number < len(partitions), "META-3", f"there is no partition {number}")
        partitions[number] = change_partition(partitions[number], number, commit, require)
    if commit["txn"] is not None:
        app_id, txn = commit["txn"]["app_id"], commit["txn"]["version"]
        last, carried_by = txns.get(app_id, [-1, None])
        require(txn > last, "TXN-5", f"txn {txn} of {app_id!r} goes back")
        previous = commit["txn"]["previous"]
        require(previous in (None, carried_by), "TXN-1", f"its txn does not follow {previous}")
        txns[app_id] = [txn, commit["version"]]
    return {**head, "topic": topic, "partitions": partitions, "txns": txns}


def is_void(state: Record, commit: Record) -> bool:
    """A commit of another topic takes its version and has no other effect [COMMIT-11]."""
    if commit["topic_id"] == state["topic_id"]:
        return False
    is_child = commit["parent"] in (None, state["commit_id"])
    return state["topic"] is not None or commit["operation"] != "create" or not is_child


# --- 2. The store: here, a directory ---------------------------------------------------------


def read_object(folder: Path, name: str) -> bytes | None:
    """The whole object; None if it is absent [STORE-1]."""
    try:
        return (folder / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def numbers(folder: Path, below: str, name: re.Pattern[str]) -> list[int]:
    """The numbers of the objects below a prefix whose names have this form, in order."""
    found = [name.fullmatch(path.name) for path in (folder / below).glob("*") if path.is_file()]
    return sorted(int(match[1]) for match in found if match)


# --- 3. Names --------------------------------------------------------------------------------

COMMIT_NAME = re.compile(r"([0-9]{20})\.json")  # a group's states have the same form
ROOT_NAME = re.compile(r"([0-9]{20})\.root\.json")
LEAF_ID = re.compile(r"[0-9a-z]{1,64}")
SEGMENT_PATH = re.compile(r"partition=(0|[1-9][0-9]*)/([0-9]{20})-[0-9a-z]{1,64}\.parquet")


def commit_name(version: int) -> str:
    return f"_manifest/{version:020d}.json"


def floor_of(path: str, partition: int, source: str) -> int:
    """The offset in a segment's name; a path of another form could lead out of the topic."""
    found = SEGMENT_PATH.fullmatch(path)
    if found is None or int(found[1]) != partition:
        raise Corrupt(source, "PATH-4", f"{path!r} is no segment of partition {partition}")
    return int(found[2])


# --- 4. Protocol -----------------------------------------------------------------------------

KNOWN_FEATURES = {"column-mapping"}


def check_protocol(protocol: Record) -> None:
    unknown = set(protocol["reader_features"]) - KNOWN_FEATURES
    if protocol["format"] != 1 or unknown:
        raise Unsupported(f"format {protocol['format']}, features {sorted(unknown)} [PROTO-2]")


# --- 5. to 7. The topic object, settings and types -------------------------------------------

LOG_COLUMNS = ("partition", "offset", "timestamp", "topic", "timestampType")
PLAIN_TYPES = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(),
    "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "string": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
KEY_TYPES = {t.id for t in PLAIN_TYPES.values() if not pa.types.is_floating(t)}
KEY_TYPES |= {pa.decimal128(1).id}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def arrow_type(described: Any) -> pa.DataType:
    """The type that the topic object describes [TYPE-1], [TYPE-2]."""
    match described:
        case str() if described in PLAIN_TYPES:
            return PLAIN_TYPES[described]
        case str() if found := re.fullmatch(r"decimal\((\d{1,2}),(\d{1,2})\)", described, re.ASCII):
            digits, scale = int(found[1]), int(found[2])
            if 1 <= digits <= 38 and scale <= digits:
                return pa.decimal128(digits, scale)
        case {"type": "array", "elementType": element}:
            return pa.list_(arrow_type(element))
        case {"type": "map", "keyType": key, "valueType": value}:
            return pa.map_(arrow_type(key), arrow_type(value))
        case {"type": "struct", "fields": [_, *_] as fields}:
            named = [field for field in fields if isinstance(field, dict)]
            names = [field["name"] for field in named if isinstance(field.get("name"), str)]
            if len(set(names)) == len(fields):
                types = [arrow_type(field.get("type")) for field in fields]
                return pa.struct(list(zip(names, types, strict=True)))
    raise Unsupported(f"the type {described!r:.80} [TYPE-1]")


def check_topic(topic: Record, path: str) -> None:
    """What readers rely on [META-1], [TYPE-3], [META-6..8]."""
    types = {field["name"]: arrow_type(field["type"]) for field in topic["fields"]}
    key = topic["key"]
    for holds, what in (
        (1 <= topic["partitions"] <= 10_000, "the number of partitions"),
        (0 < len(types) == len(topic["fields"]), "the columns' names"),
        (not set(types) & set(LOG_COLUMNS), "a column with a name of the log"),
        (types.get("headers", HEADERS) == HEADERS, "the type of headers"),
        (len(set(key)) == len(key) and set(key) <= set(types), "the key"),
        (all(types[name].id in KEY_TYPES for name in set(key) & set(types)), "the key's types"),
        (key or "compact" not in topic["config"].get("cleanup.policy", ""), "no key to compact"),
    ):
        if not holds:
            raise Mismatch(what)
    check_ids(topic, path)
    check_stored_names(topic, path)


def values(topic: Record) -> list[Record]:
    """The columns that are all null in a tombstone [REC-3]."""
    return [f for f in topic["fields"] if f["name"] not in (*topic["key"], "headers")]


def check_ids(topic: Record, path: str) -> None:
    """Ids count up, and skip those of dropped columns. Absent ones are filled in [META-6]."""
    free, gaps = 16, bool(topic["retired"])
    for field in topic["fields"]:
        found = field["id"] if gaps or field["id"] is not None else free
        if found is None or found < free or (found > free and not gaps):
            raise Corrupt(path, "META-6", f"column {field['name']!r} has the id {found}")
        field["id"], free = found, found + 1 + fields_inside(field["type"])
    last = topic["last_field_id"] if gaps or topic["last_field_id"] is not None else free - 1
    if last is None or last < free - 1 or (last >= free and not gaps):
        raise Corrupt(path, "META-6", f"last_field_id is {last}")
    topic["last_field_id"] = last


def fields_inside(described: Any) -> int:
    if isinstance(described, str):
        return 0
    parts = [described.get(name) for name in ("elementType", "keyType", "valueType")]
    parts += [field["type"] for field in described.get("fields", [])]
    return sum(1 + fields_inside(part) for part in parts if part is not None)


def check_stored_names(topic: Record, path: str) -> None:
    """Stored names are the columns' for good [META-7], [META-8]."""
    stored = [stored_name(field) for field in topic["fields"]]
    fixed = [f for f in topic["fields"] if f not in values(topic) and f["stored_as"] is not None]
    names = [*LOG_COLUMNS, *stored, *topic["retired"]]
    if fixed or len(set(names)) != len(names):
        raise Corrupt(path, "META-7" if fixed or not topic["retired"] else "META-8", f"{names}")
    compacts = "compact" in topic["config"].get("cleanup.policy", "")
    is_safe = any(not field["nullable"] for field in values(topic)) or not compacts
    if topic["retired"] and topic["key"] and not (values(topic) and is_safe):
        raise Corrupt(path, "META-8", "records may have become tombstones")


def check_columns(old: Record | None, new: Record, protocol: Record, require: Require) -> None:
    """Which changes of columns are allowed [META-4], [META-7], [META-8]."""
    columns = {stored_name(field): field for field in new["fields"]}
    is_mapped = new["retired"] or any(field["stored_as"] is not None for field in new["fields"])
    lists = (protocol["reader_features"], protocol["writer_features"])
    announced = all("column-mapping" in features for features in lists)
    require(announced or not is_mapped, "META-7", "renamed or dropped without the feature")
    if old is None:
        return
    same_key = (old["key"], old["created_at_ms"]) == (new["key"], new["created_at_ms"])
    require(same_key, "META-4", "the key or the time of creation changes")
    kept = [stored_name(field) for field in old["fields"] if stored_name(field) in columns]
    require([*columns][: len(kept)] == kept, "META-4", "the order of columns changes")
    gone = {stored_name(field) for field in old["fields"]} - set(kept)
    require({*new["retired"]} == {*old["retired"], *gone}, "META-8", "a column is gone")
    for before in old["fields"]:
        is_value, after = before in values(old), columns.pop(stored_name(before), None)
        require(is_value or after, "META-8", f"column {before['name']!r} is dropped")
        if after is None:
            continue
        is_renamed = after["name"] != before["name"]
        is_allowed = not is_renamed or (is_value and after["name"] != "headers")
        require(is_allowed, "META-7", f"column {before['name']!r} is renamed")
        given, wanted = arrow_type(before["type"]), arrow_type(after["type"])
        fits = same(given, wanted) or (is_value and widens(given, wanted))
        alike = fits and before["nullable"] == after["nullable"]
        require(alike, "META-4", f"column {before['name']!r} changes")
        same_id = before["id"] == after["id"]
        require(same_id, "META-6", f"column {before['name']!r} gets another id")
    for added in columns.values():
        require(added["nullable"], "META-4", f"column {added['name']!r} is not nullable")
        is_new = added["id"] > old["last_field_id"]
        require(is_new, "META-6", f"column {added['name']!r} gets the id of another one")
    goes_on = new["last_field_id"] >= old["last_field_id"]
    require(goes_on, "META-6", "last_field_id goes back")


def stored_name(field: Record) -> str:
    """The column's name in every file, whatever it is called by now [META-7]."""
    name: str = field["name"] if field["stored_as"] is None else field["stored_as"]
    return name


# --- 8. Commits: how an object decodes -------------------------------------------------------

# The tables of the specification: `field:type`, and `=default` if the field may be absent.
# `[T]` is an array, `{T}` an object by partition, `<T>` one by name, `(T,T)` a pair.
TABLES = {
    "protocol": "format:integer reader_features:[string]=[] writer_features:[string]=[]",
    "topic": """fields:[field] key:[string]=[] partitions:integer config:<string>={}
        created_at_ms:integer last_field_id:integer?=null retired:[string]=[]""",
    "field": "name:string type:any nullable:boolean=true id:integer?=null stored_as:string?=null",
    "commit": """operation:string protocol:protocol?=null topic:topic?=null ends:{integer}={}
        add:[segment]=[] log_starts:[log_start]=[] replaced:[replaced]=[] cleaned:{integer}={}
        txn:txn?=null summary:<signed>={} parent:string?=null version:integer commit_id:string
        topic_id:string committed_at_ms:integer""",
    "log_start": "partition:integer offset:integer dropped:totals={}",
    "replaced": "partition:integer start:integer end:integer dropped:totals",
    "totals": "segments:integer=0 records:integer=0 size_bytes:integer=0",
    "txn": "app_id:string version:integer previous:integer?=null origin:string?=null",
    "segment": """partition:integer base_offset:integer end_offset:integer shift:integer=0
        records:integer size_bytes:integer min_timestamp_us:signed max_timestamp_us:signed
        path:string row_groups:[integer]=[0] tombstones:integer=0 delete_horizon_ms:integer?=null
        hashed_over:integer?=null append_time:boolean=false footer_checksum:string?=null""",
    "root": """version:integer commit_id:string topic_id:string committed_at_ms:integer
        protocol:protocol topic:topic? partitions:[partition]=[] leaves:[(string,integer)]=[]
        leaf_checksums:[string?]=[] txns:<(integer,integer)>={}""",
    "partition": """log_start:integer=0 end:integer=0 clean_end:integer=0 live:totals={}
        runs:[(integer,integer,integer,signed)]=[] tail:[segment]=[]""",
    "group": """operation:string positions:{position}={} generation:integer=0 members:<member>={}
        deleted:boolean=false number:integer commit_id:string topic_id:string
        committed_at_ms:integer""",
    "position": 'offset:integer committed_at_ms:integer metadata:string=""',
    "member": "lease_until_ms:integer owned:[integer]=[]",
}


def checked(kind: str, value: Any) -> Any:
    """The value, with the defaults of its fields; an error if it is not of this kind."""
    is_integer = type(value) is int and -(2**63) <= value < 2**63
    match kind[0], kind[-1]:
        case _, "?":
            return None if value is None else checked(kind[:-1], value)
        case "[", _ if type(value) is list:
            return [checked(kind[1:-1], element) for element in value]
        case "(", _ if type(value) is list and len(kinds := kind[1:-1].split(",")) == len(value):
            return [checked(kind, element) for kind, element in zip(kinds, value, strict=True)]
        case "{", _ if type(value) is dict and all(re.fullmatch("0|[1-9][0-9]*", k) for k in value):
            return {int(name): checked(kind[1:-1], member) for name, member in value.items()}
        case "<", _ if type(value) is dict:
            return {name: checked(kind[1:-1], member) for name, member in value.items()}
    match kind:
        case "any":
            return value
        case "integer" if is_integer and value >= 0:
            return value
        case "signed" if is_integer:
            return value
        case "boolean" if type(value) is bool:
            return value
        case "string" if type(value) is str and _is_utf8(value):
            return value
        case _ if kind in TABLES and type(value) is dict:
            return _record(kind, value)
    raise Mismatch(f"{value!r:.40} is not of type {kind}")


def _is_utf8(value: str) -> bool:
    """JSON can escape half of a surrogate pair, which is no text."""
    return not any("\ud800" <= sign <= "\udfff" for sign in value)


def _record(kind: str, value: Record) -> Record:
    """Fields that are not known are ignored [PROTO-1]."""
    found = {}
    for line in TABLES[kind].split():
        name, _, rest = line.partition(":")
        of, has_default, default = rest.partition("=")
        if name not in value and not has_default:
            raise Mismatch(f"there is no {name}")
        found[name] = checked(of, value[name] if name in value else json.loads(default))
    return found


def decode(data: bytes, kind: str, path: str, rule: str) -> Record:
    """The object, with its defaults. If it does not decode, it breaks `rule` [JSON-1]."""
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
        if type(value) is not dict or _depth(value) > 100:
            raise Mismatch("it is no object, or nested too deeply [JSON-1]")
        _check_protocol_first(value)
        found: Record = checked(kind, value)
        if "checksum" in value and not has_right_checksum(data):
            raise Corrupt(path, "SUM-1", "the checksum is wrong")
        if found.get("topic"):
            check_topic(found["topic"], path)
        return found
    except (ValueError, RecursionError, Mismatch) as error:
        raise Corrupt(path, rule, str(error)) from None


def _refuse_constant(name: str) -> None:
    raise Mismatch(f"{name} is no JSON")


def _depth(value: Any) -> int:
    inner = value.values() if type(value) is dict else value if type(value) is list else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def _check_protocol_first(value: Record) -> None:
    """A newer format is said to be one, even if the object does not decode otherwise [PROTO-2]."""
    try:
        protocol = checked("protocol", value.get("protocol"))
    except Mismatch:
        return
    check_protocol(protocol)


def has_right_checksum(data: bytes) -> bool:
    """Whether the last member is the CRC-32 of all bytes before it [SUM-1]."""
    body, found = data[:-23], data[-23:]
    return found == b',"checksum":"%08x"}' % zlib.crc32(body)


def load_commit(folder: Path, version: int) -> Record:
    path = commit_name(version)
    data = read_object(folder, path)
    if data is None:
        raise Corrupt(path, "COMMIT-3", "it is missing")
    return decode_commit(data, version)


def decode_commit(data: bytes, version: int) -> Record:
    path = commit_name(version)
    commit = decode(data, "commit", path, "COMMIT-1")
    if commit["version"] != version:
        raise Corrupt(path, "COMMIT-2", f"the body says version {commit['version']}")
    for entry in commit["add"]:
        check_entry(entry, path)
    return commit


# --- 9. The log ------------------------------------------------------------------------------

EMPTY_PARTITION: Record = {"log_start": 0, "end": 0, "clean_end": 0, "segments": []}


def change_partition(before: Record, number: int, commit: Record, require: Require) -> Record:
    """One partition after the commit."""

    def mine(part: str) -> list[Record]:
        return [element for element in commit[part] if element["partition"] == number]

    log_start, end, clean_end, segments = before.values()
    added = mine("add")
    for swap in mine("replaced"):
        low, high = swap["start"], swap["end"]
        inputs = [s for s in segments if s["base_offset"] < high and low < s["end_offset"]]
        outputs = [s for s in added if low <= s["base_offset"] < high]
        tiled = tile(inputs, low, high) and tile(outputs, low, high)
        require(
            tiled and log_start < high <= end, "LOG-7", f"[{low}, {high}) is not replaced whole"
        )
        for entry in outputs:
            first = entry["base_offset"] + (entry["row_groups"] or [0])[0]
            least = floor_of(entry["path"], number, entry["path"]) + entry["shift"]
            require(first >= least or not entry["records"], "SEG-10", f"{entry['path']}: its floor")
        require(swap["dropped"] == totals(inputs), "LOG-7", f"what is dropped is {totals(inputs)}")
        fewer = totals(outputs)["records"] <= totals(inputs)["records"]
        require(fewer, "LOG-7", f"[{low}, {high}) gets records")
        segments = [s for s in segments if s not in inputs] + outputs
        segments.sort(key=lambda segment: segment["base_offset"])
        added = [s for s in added if s not in outputs]
    if added or number in commit["ends"]:
        new_end = commit["ends"].get(number)
        tiled = bool(added) and tile(added, end, new_end)
        require(tiled, "LOG-2", f"partition {number}: [{end}, {new_end}) is not what is added")
        for entry in added:
            dense = entry["records"] == entry["end_offset"] - entry["base_offset"]
            require(dense, "LOG-2", f"{entry['path']} has holes")
            predicted = floor_of(entry["path"], number, entry["path"])
            placed = entry["base_offset"] == predicted + entry["shift"]
            require(placed, "SEG-10", f"{entry['path']} is not shifted by {entry['shift']}")
        segments, end = [*segments, *added], new_end
    for move in mine("log_starts"):
        forward = log_start < move["offset"] <= end
        require(forward, "LOG-6", f"from {log_start} to {move['offset']}, the end is {end}")
        log_start = move["offset"]
        gone = [s for s in segments if s["end_offset"] <= log_start]
        require(move["dropped"] == totals(gone), "LOG-6", f"what is dropped is {totals(gone)}")
        segments = [s for s in segments if s["end_offset"] > log_start]
    cleaned = commit["cleaned"].get(number, clean_end)
    require(
        clean_end <= cleaned <= end, "LOG-9", f"from {clean_end} to {cleaned}, the end is {end}"
    )
    return {"log_start": log_start, "end": end, "clean_end": cleaned, "segments": segments}


def tile(segments: list[Record], start: int, end: int) -> bool:
    """Whether the segments, in this order, cover exactly `[start, end)` [LOG-4]."""
    bounds = [start, *(segment["end_offset"] for segment in segments)]
    return bounds[:-1] == [s["base_offset"] for s in segments] and bounds[-1] == end


def totals(segments: list[Record]) -> Record:
    sums = {name: sum(s[name] for s in segments) for name in ("records", "size_bytes")}
    return {"segments": len(segments), **sums}


# --- 10. Segments ----------------------------------------------------------------------------


def check_entry(entry: Record, source: str) -> None:
    """What an entry says about itself must be possible [SEG-10]."""
    floor_of(entry["path"], entry["partition"], source)
    claimed, records = entry["end_offset"] - entry["base_offset"], entry["records"]
    groups = entry["row_groups"]
    rising = all(low < high for low, high in itertools.pairwise([*groups, claimed]))
    if not (
        claimed > 0
        and records <= claimed
        and (rising and 0 < len(groups) <= records if records else groups in ([], [0]))
        and (records < claimed or groups[0] == 0)
        and (not records or entry["min_timestamp_us"] <= entry["max_timestamp_us"])
        and entry["tombstones"] <= records
    ):
        raise Corrupt(source, "SEG-10", f"the entry of {entry['path']} contradicts itself")


def read_segment(folder: Path, entry: Record, topic: Record) -> pa.Table:
    """All records of a segment, with their true offsets, checked against its entry."""
    path = entry["path"]
    data = read_object(folder, path)
    if data is None:
        raise FileGone(f"{path} is missing [SEG-1]")
    if entry["footer_checksum"] is not None:
        footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
        if f"{zlib.crc32(footer):08x}" != entry["footer_checksum"]:
            raise Corrupt(path, "SUM-3", "the footer's checksum is wrong")
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
        table = pa.concat_tables(groups) if groups else file.schema_arrow.empty_table()
        table.validate(full=True)
    except Exception as error:  # whatever Parquet says about bytes it cannot read
        raise Corrupt(path, "SEG-2", str(error)) from None
    if table.num_rows != entry["records"] or len(groups) != len(entry["row_groups"]):
        raise Corrupt(path, "SEG-5", f"{table.num_rows} rows in {len(groups)} row groups")
    wanted = {"offset": "long", "timestamp": "timestamp"}
    columns: Record = {name: column_of(table, name, wanted[name], path) for name in wanted}
    if any(column is None or column.null_count for column in columns.values()):
        raise Corrupt(path, "SEG-3", "offset or timestamp is missing")
    offsets = [stored + entry["shift"] for stored in columns["offset"].to_pylist()]
    check_offsets(entry, offsets, [group.num_rows for group in groups])
    columns["offset"] = pa.array(offsets, pa.int64())
    for field in topic["fields"]:
        check_id(table.schema, field, path)
        column = column_of(table, stored_name(field), field["type"], path)
        if column is None:  # the file is older than the column [READ-3]
            column = pa.nulls(table.num_rows, arrow_type(field["type"]))
            if field["name"] in topic["key"]:
                raise Corrupt(path, "SEG-3", f"the key column {field['name']} is missing")
        if column.null_count and not field["nullable"]:
            raise Corrupt(path, "SEG-3", f"column {field['name']} has nulls")
        columns[field["name"]] = column
    return pa.table(columns)


def check_offsets(entry: Record, offsets: list[int], sizes: list[int]) -> None:
    """They grow, lie inside of the claim, and row groups begin where the entry says [SEG-11]."""
    base, starts = entry["base_offset"], [0, *itertools.accumulate(sizes)]
    bounds = [base - 1, *offsets, entry["end_offset"]]
    firsts = [offsets[start] - base for start in starts[:-1] if start < len(offsets)]
    rising = all(low < high for low, high in itertools.pairwise(bounds))
    if not rising or (offsets and firsts != entry["row_groups"]):
        raise Corrupt(entry["path"], "SEG-11", "the file has other offsets than its entry says")


def check_id(schema: pa.Schema, field: Record, path: str) -> None:
    """A column with another id is another column [META-6]."""
    for index in schema.get_all_field_indices(stored_name(field)):
        found = (schema.field(index).metadata or {}).get(b"PARQUET:field_id")
        if found is not None and int(found) != field["id"]:
            raise Corrupt(path, "META-6", f"column {stored_name(field)} has the id {int(found)}")


def column_of(table: pa.Table, name: str, described: Any, path: str) -> pa.ChunkedArray | None:
    """A column in the topic's type. The file may have a narrower one [SEG-3]."""
    found, wanted = table.schema.get_all_field_indices(name), arrow_type(described)
    if not found:
        return None
    given = table.schema.field(found[0]).type
    if len(found) > 1 or not (same(given, wanted) or widens(given, wanted)):
        raise Corrupt(path, "SEG-3", f"column {name} is of type {given}, and not {wanted}")
    return table.column(found[0]).cast(wanted)


def same(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Equal, apart from nullability and from what Parquet calls the elements of a list."""
    if not pa.types.is_nested(wanted) or given.id != wanted.id:
        return bool(given == wanted)
    if pa.types.is_struct(wanted) and [f.name for f in given] != [f.name for f in wanted]:
        return False
    inner = [(given.field(i).type, wanted.field(i).type) for i in range(wanted.num_fields)]
    return given.num_fields == wanted.num_fields and all(same(a, b) for a, b in inner)


def widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """The changes of type that [META-4] allows."""
    if pa.types.is_decimal128(given) and pa.types.is_decimal128(wanted):
        whole = wanted.precision - wanted.scale - (given.precision - given.scale)
        return bool(whole >= 0 and wanted.scale >= given.scale)
    whole_numbers = pa.types.is_signed_integer(given) and pa.types.is_signed_integer(wanted)
    floats = given == pa.float32() and wanted == pa.float64()
    return bool(floats or (whole_numbers and given.bit_width < wanted.bit_width))


# --- 14. The index: only if commits are gone -------------------------------------------------


def load_root(folder: Path, version: int) -> Record:
    """The state that a root has saved, with the entries of its leaves."""
    path = f"_manifest/{version:020d}.root.json"
    root = decode(read_object(folder, path) or b"", "root", path, "ROOT-1")

    def require(holds: Any, rule: str, detail: str) -> None:
        if not holds:
            raise Corrupt(path, rule, detail)

    require(root["version"] == version, "ROOT-1", f"the body says version {root['version']}")
    ids = [leaf for leaf, _ in root["leaves"]]
    sums = root["leaf_checksums"] or [None] * len(ids)
    require(len(sums) == len(ids) == len(set(ids)), "ROOT-6", "its leaves and their checksums")
    require(all(map(LEAF_ID.fullmatch, ids)), "PATH-4", "a leaf has a name that is none")
    partitions = 0 if root["topic"] is None else root["topic"]["partitions"]
    require(partitions == len(root["partitions"]), "ROOT-6", f"there are {partitions} partitions")
    known = all(committed <= version for _, committed in root["txns"].values())
    require(known, "ROOT-6", "a txn is of a later version")
    for number, part in enumerate(root["partitions"]):
        for entry in part["tail"]:
            require(entry["partition"] == number, "PATH-4", "an entry of another partition")
            check_entry(entry, path)
        require(all(run[0] < len(ids) for run in part["runs"]), "ROOT-3", "a leaf is not listed")
        part["runs"] = [run for run in part["runs"] if run[2] > part["log_start"]]
        runs = [{"base_offset": run[1], "end_offset": run[2]} for run in part["runs"]]
        check_tiling(part, [*runs, *part["tail"]], require)
    leaves = [
        load_leaf(folder, leaf, entries, checksum)
        for (leaf, entries), checksum in zip(root["leaves"], sums, strict=True)
    ]
    states = []
    for number, part in enumerate(root["partitions"]):
        segments = list(part["tail"])
        for leaf, low, high, latest_us in part["runs"]:
            mine = [entry for entry in leaves[leaf] if entry["partition"] == number]
            inside = [entry for entry in mine if low <= entry["base_offset"] < high]
            latest = max((entry["max_timestamp_us"] for entry in inside), default=latest_us)
            if not tile(inside, low, high) or latest > latest_us:
                raise Corrupt(f"_manifest/leaf-{ids[leaf]}.parquet", "LEAF-3", "a run is not in it")
            segments += [entry for entry in inside if entry["end_offset"] > part["log_start"]]
        segments.sort(key=lambda segment: segment["base_offset"])
        require(totals(segments) == part["live"], "ROOT-6", f"the totals are {totals(segments)}")
        kept = {name: part[name] for name in ("log_start", "end", "clean_end")}
        states.append({**kept, "segments": segments})
    return {**root, "partitions": states}


def check_tiling(part: Record, tiles: list[Record], require: Require) -> None:
    """Runs and tail are the live segments, from the one with the log start to the end [ROOT-3]."""
    tiles = sorted(tiles, key=lambda one: one["base_offset"])
    first, end = tiles[0] if tiles else {"base_offset": part["end"]}, part["end"]
    rising = all(one["base_offset"] < one["end_offset"] for one in tiles)
    tiled = rising and tile(tiles, first["base_offset"], end) and part["clean_end"] <= end
    starts = first["base_offset"] <= part["log_start"] < first.get("end_offset", end + 1)
    require(tiled and starts, "ROOT-6", "a partition is not tiled")


def load_leaf(folder: Path, leaf: str, count: int, checksum: str | None) -> list[Record]:
    """The entries of a leaf [LEAF-1], as many as the root says [LEAF-3]."""
    path = f"_manifest/leaf-{leaf}.parquet"
    data = read_object(folder, path) or b""
    if checksum is not None and f"{zlib.crc32(data):08x}" != checksum:
        raise Corrupt(path, "SUM-2", "its checksum is wrong")
    try:
        rows = pq.read_table(pa.BufferReader(data)).to_pylist()
        entries: list[Record] = [checked("segment", row) for row in rows]
    except Exception as error:
        raise Corrupt(path, "LEAF-1", str(error)) from None
    for entry in entries:
        check_entry(entry, path)
    bounds = [(e["partition"], o) for e in entries for o in (e["base_offset"], e["end_offset"])]
    if bounds != sorted(bounds) or len(entries) != count:
        raise Corrupt(path, "LEAF-3", f"{len(entries)} entries, or out of order")
    return entries


# --- 15. Reads -------------------------------------------------------------------------------


def read(
    folder: Path,
    state: Record,
    partition: int,
    start: int | None = None,
    end: int | None = None,
) -> Iterator[pa.Table]:
    """The records of `[start, end)` of a partition, a table for each segment [READ-3]."""
    part = state["partitions"][partition]
    start = part["log_start"] if start is None else start
    end = part["end"] if end is None else end
    if not all(part["log_start"] <= bound <= part["end"] for bound in (start, end)):
        raise OutOfRange(f"the log is [{part['log_start']}, {part['end']}) [READ-2]")
    for entry in part["segments"]:
        if entry["base_offset"] < end and start < entry["end_offset"]:
            table = read_segment(folder, entry, state["topic"])
            offsets = table["offset"]
            inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
            number = pa.array([partition] * table.num_rows, pa.int32())
            yield table.add_column(0, "partition", number).filter(inside)


def rows(folder: Path, state: Record) -> Iterator[Record]:
    """All records, as values that JSON has: times in microseconds, bytes in hex."""
    for number in range(len(state["partitions"])):
        for table in read(folder, state, number):
            for index, column in enumerate(table.columns):
                if pa.types.is_timestamp(column.type):
                    table = table.set_column(index, table.field(index).name, column.cast("int64"))
            yield from map(printable, table.to_pylist())


def printable(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {name: printable(part) for name, part in value.items()}
        case list() | tuple():
            return [printable(part) for part in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def bounds(state: Record) -> dict[int, tuple[int, int]]:
    """The log start and the end of each partition."""
    return {n: (part["log_start"], part["end"]) for n, part in enumerate(state["partitions"])}


def count(folder: Path, state: Record) -> int:
    """How many records can be read. Only a segment that a log start cuts is opened."""
    found = 0
    for number, part in enumerate(state["partitions"]):
        cut = [s for s in part["segments"] if s["base_offset"] < part["log_start"]]
        found += sum(s["records"] for s in part["segments"] if s not in cut)
        for entry in cut:
            found += sum(t.num_rows for t in read(folder, state, number, end=entry["end_offset"]))
    return found


def offset_for_time(folder: Path, state: Record, partition: int, time_us: int) -> int | None:
    """The smallest offset whose timestamp is at or after a time [READ-4]."""
    part = state["partitions"][partition]
    for entry in part["segments"]:
        if entry["records"] and entry["max_timestamp_us"] >= time_us:
            start = max(entry["base_offset"], part["log_start"])
            for table in read(folder, state, partition, start, entry["end_offset"]):
                late = pc.greater_equal(table["timestamp"].cast("int64"), time_us)
                if found := table.filter(late)["offset"].to_pylist():
                    return int(found[0])
    return None


# --- 17. Consumer groups ---------------------------------------------------------------------


def group_state(folder: Path, group: str, topic_id: str) -> Record | None:
    """The newest state of a group that counts [GRP-3], [GRP-5]; None if there is none."""
    for number in reversed(numbers(folder, f"_groups/{group}", COMMIT_NAME)):
        path = f"_groups/{group}/{number:020d}.json"
        state = decode(read_object(folder, path) or b"", "group", path, "GRP-2")
        owned = [one for member in state["members"].values() for one in member["owned"]]
        longest = max((len(at["metadata"]) for at in state["positions"].values()), default=0)
        if state["number"] != number or longest > 4096:
            raise Corrupt(path, "GRP-2", "its number, or metadata that is too long")
        if len(set(owned)) < len(owned):
            raise Corrupt(path, "GRP-12", "a partition has two owners")
        if state["topic_id"] == topic_id:
            return state
    return None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Print the rows of a topic as lines of JSON.")
    parser.add_argument("topic", type=Path, help="the topic's directory")
    parser.add_argument("--version", type=int, help="a version other than the newest")
    asked = parser.parse_args(arguments)
    try:
        state = open_topic(asked.topic, asked.version)
        for row in rows(asked.topic, state):
            print(json.dumps(row))
    except Refusal as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
