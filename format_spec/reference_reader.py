"""A reader of pylogtable topics, to be read beside spec.md.

It needs json and pyarrow, and nothing of the library. The sections below have the numbers of the
specification's, and each rule is cited where it is enforced, in the order of errors.md. It prefers
the plain way to the fast one: it replays every commit from version 0 on, and reads files as a
whole. Roots and leaves only save work, so it looks at them only if the commits below a root are
gone, as after a vacuum. Of the settings it knows only the policy.

    python reference_reader.py <topic> [<version>]      prints the rows as lines of JSON
"""

from __future__ import annotations

import base64
import itertools
import json
import operator
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Record = dict[str, Any]  # an object of the format, with its defaults filled in


class Refusal(Exception):
    """The reader says no. The classes below are the kinds of errors.md."""


class Corrupt(Refusal):
    """The object at `path` breaks `rule`."""

    def __init__(self, path: str, rule: str, detail: str = "") -> None:
        super().__init__(f"{path} breaks [{rule}] {detail}")
        self.path, self.rule = path, rule


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


def require(path: str, rule: str, holds: Any, detail: str = "") -> None:
    if not holds:
        raise Corrupt(path, rule, detail)


# --- JSON and checksums ----------------------------------------------------------------------

# The tables of the specification: `field:type`, and `=default` if the field may be absent.
# `[T]` is an array, `{T}` an object by partition, `<T>` one by name, `(T,T)` a pair, `T?` or null.
TABLES = {
    "protocol": "format:integer reader_features:[string]=[] writer_features:[string]=[]",
    "topic": """fields:[field] key:[string]=[] partitions:partitions config:<string>={}
        created_at_ms:integer last_field_id:count?=null retired:[string]=[]""",
    "field": "name:string type:type nullable:boolean=true id:count?=null stored_as:string?=null",
    "commit": """operation:string protocol:protocol?=null topic:topic?=null ends:{integer}={}
        add:[segment]=[] log_starts:[log_start]=[] replaced:[replaced]=[] cleaned:{integer}={}
        txn:txn?=null summary:<signed>={} rows:string?=null parent:string?=null version:integer
        commit_id:string topic_id:string committed_at_ms:integer mirror:mirror?=null
        mirrored_txns:[mirrored_txn]=[]""",
    "mirror": """source_id:string source:string="" version:integer?=null seen:integer?=null
        commit_id:string?=null own_retention:boolean=false partial:boolean=false
        new_names:boolean=false ended:integer?=null""",
    "mirrored_txn": """app_id:string version:integer previous:integer?=null origin:string?=null
        note:any=null offsets:{(integer,integer)}={} records:integer=0""",
    "log_start": """partition:integer offset:integer dropped:totals={}
        dropped_inline:totals?=null""",
    "replaced": """partition:integer start:integer end:integer dropped:totals
        dropped_inline:totals?=null""",
    "totals": "segments:integer=0 records:integer=0 size_bytes:integer=0",
    "txn": """app_id:string version:integer previous:integer?=null origin:string?=null
        note:any=null""",
    "segment": """partition:integer base_offset:integer end_offset:integer shift:signed=0
        records:integer size_bytes:integer min_timestamp_us:signed max_timestamp_us:signed
        path:string row_groups:[integer]=[0] tombstones:integer=0 delete_horizon_ms:integer?=null
        hashed_over:count?=null append_time:boolean=false footer_checksum:checksum?=null""",
    "root": """version:integer commit_id:string topic_id:string committed_at_ms:integer
        protocol:protocol topic:topic? partitions:[partition]=[] leaves:[(string,integer)]=[]
        leaf_checksums:[checksum?]=[] txns:<(integer,integer)>={} mirror:mirror?=null""",
    "partition": """log_start:integer=0 end:integer=0 clean_end:integer=0 live:totals={}
        inline:totals?=null runs:[(integer,integer,integer,signed)]=[] tail:[segment]=[]""",
    "group": """operation:string positions:{position}={} generation:integer=0 members:<member>={}
        deleted:boolean=false number:integer commit_id:string topic_id:string
        committed_at_ms:integer""",
    "position": 'offset:integer committed_at_ms:integer metadata:metadata=""',
    "member": "lease_until_ms:integer owned:[integer]=[]",
}
LINES = {kind: re.findall(r"(\w+):([^\s=]+)=?(\S*)", table) for kind, table in TABLES.items()}
FIELDS = {kind: {name: of for name, of, _ in lines} for kind, lines in LINES.items()}
DEFAULTS = {
    kind: {name: json.loads(default) for name, _, default in lines if default}
    for kind, lines in LINES.items()
}
RANGES = {
    "integer": range(2**63), "signed": range(-(2**63), 2**63),
    "count": range(1, 2**31), "partitions": range(1, 10_001),
}  # fmt: skip
TEXTS = {  # JSON can escape half of a surrogate pair, which is no text
    "string": "[^\ud800-\udfff]*", "metadata": "[^\ud800-\udfff]{0,4096}",
    "checksum": "[0-9a-f]{8}",
}  # fmt: skip


def checked(kind: str, value: Any) -> Any:
    """The value, with the defaults of its fields; a ValueError if it is not of this kind."""
    inner = kind[1:-1]
    match kind[0], value:
        case _, None if kind[-1] == "?":
            return None
        case _ if kind[-1] == "?":
            return checked(kind[:-1], value)
        case _, int() if kind in RANGES and type(value) is int and value in RANGES[kind]:
            return value
        case _, str() if kind in TEXTS and re.fullmatch(TEXTS[kind], value):
            return value
        case _ if kind == "type" and isinstance(value, str | dict):
            return value
        case _ if kind == "any" or (kind == "boolean" and type(value) is bool):
            return value
        case "[", list():
            return [checked(inner, element) for element in value]
        case "(", list() if len(kinds := inner.split(",")) == len(value):
            return [checked(part, element) for part, element in zip(kinds, value, strict=True)]
        case "{", dict() if all(re.fullmatch("0|[1-9][0-9]*", name) for name in value):
            return {int(name): checked(inner, member) for name, member in value.items()}
        case "<", dict():
            return {name: checked(inner, member) for name, member in value.items()}
        case _, dict() if kind in FIELDS and FIELDS[kind].keys() <= {*DEFAULTS[kind], *value}:
            value = {**DEFAULTS[kind], **value}  # what is not known is ignored [PROTO-1]
            return {name: checked(of, value[name]) for name, of in FIELDS[kind].items()}
    raise ValueError(f"{value!r:.40} is not of type {kind}")


def decode(data: bytes, kind: str, path: str, rule: str) -> Record:
    """The object, with its defaults. If it does not decode, it breaks `rule`."""
    try:
        value = json.loads(data.decode(), parse_constant=int)  # NaN is no JSON, and no int
        if type(value) is not dict or depth(value) > 100:
            raise ValueError("it is no object, or nested too deeply [JSON-1]")
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
        check_protocol(value.get("protocol"))  # first of all, even if nothing else decodes
        found: Record = checked(kind, value)
    except (ValueError, RecursionError) as error:
        raise Corrupt(path, rule, str(error)) from None
    is_right = data[-23:] == b',"checksum":"%s"}' % checksum(data[:-23]).encode()
    require(path, "SUM-1", "checksum" not in value or is_right)
    return found


def depth(value: Any) -> int:
    inner = value.values() if type(value) is dict else value if type(value) is list else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


# --- 1. Replay -------------------------------------------------------------------------------

NOTHING: Record = {"protocol": None, "topic": None, "partitions": [], "txns": {}, "mirror": None}


def open_topic(folder: Path, version: int | None = None) -> Record:
    """The state at `version`, or at the newest one. If the topic is deleted, `topic` is None."""
    commits = numbers(folder, "_manifest", COMMIT_NAME)
    roots = numbers(folder, "_manifest", ROOT_NAME)
    state, first, last = None, 0, end_of_run(commits, 0)
    if last < 0 and not roots:
        raise NoTopic(f"there is no topic at {folder}")
    beyond = [root for root in roots if last < root and (version is None or root <= version)]
    for root in reversed(beyond):  # the commits below it are gone [VAC-1]
        try:
            state, first, last = load_root(folder, root), root + 1, end_of_run(commits, root + 1)
            break
        except Corrupt as error:  # a root that cannot be used is passed over [ROOT-6]
            if error.path.startswith("_manifest/leaf-"):
                raise
    if version is not None and version > last:
        raise InvalidRequest(f"version {version} is not there, or no longer kept [READ-5]")
    require(commit_name(last + 1), "COMMIT-3", state or not beyond, "no root makes up for it")
    newest = replay(folder, state, first, last if version is None else version)
    for later in commits if version is None else ():
        if later > newest["version"]:
            is_void = load_commit(folder, later)["topic_id"] != newest["topic_id"]
            require(commit_name(last + 1), "COMMIT-3", is_void, f"{later} is beyond it")
    return newest


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
    version, operation = commit["version"], commit["operation"]
    path, creates = commit_name(version), operation == "create"
    require(path, "COMMIT-3", version == (state["version"] + 1 if state else 0))
    if state:
        is_child = commit["parent"] in (None, state["commit_id"])
        is_mine = commit["topic_id"] == state["topic_id"]
        if not is_mine and (state["topic"] or not creates or not is_child):
            return {**state, "version": version}  # void [COMMIT-11]
        require(path, "COMMIT-6", commit["committed_at_ms"] > state["committed_at_ms"])
        require(path, "COMMIT-10", is_child)
    old = state["topic"] if state else None
    require(path, "META-2", creates != bool(old))
    if creates:
        require(path, "META-2", commit["topic"] and commit["protocol"])
        require(path, "META-5", not state or not is_mine)
    before = state if state and old else NOTHING
    names = ("version", "commit_id", "topic_id", "committed_at_ms")
    after = {**NOTHING, **{name: commit[name] for name in names}}
    after["protocol"] = commit["protocol"] or before["protocol"]
    if operation == "delete_topic":
        return after

    topic, partitions = commit["topic"] or old, list(before["partitions"])
    require(path, "META-3", topic["partitions"] >= len(partitions))
    parts = [*commit["add"], *commit["replaced"], *commit["log_starts"]]
    named = sorted({part["partition"] for part in parts} | {*commit["ends"], *commit["cleaned"]})
    require(path, "META-3", all(number < topic["partitions"] for number in named))
    if old:
        has_records = any(part["end"] for part in partitions)
        check_alteration(old, topic, has_records, bool(commit["mirror"]), path)
    check_feature(topic, after["protocol"], path)
    is_given = "given-offsets" in announced(after["protocol"])
    if creates:
        starts = [commit["ends"].get(number, 0) for number in range(topic["partitions"])]
        require(path, "META-9", is_given or not commit["ends"])
        begun = [{**EMPTY_PARTITION, "log_start": start, "end": start} for start in starts]
        mirror = check_mirror(None, {**commit, "mirrored_txns": []}, after["protocol"], path)
        return {**after, "topic": topic, "partitions": begun, "mirror": mirror}
    check_rows(commit, after["protocol"], path)
    mirror = check_mirror(before["mirror"], commit, after["protocol"], path)
    partitions += [EMPTY_PARTITION] * (topic["partitions"] - len(partitions))
    for number in named:
        partitions[number] = change_partition(partitions[number], number, commit, path, is_given)
    txns = dict(before["txns"])
    for txn in [*filter(None, [commit["txn"]]), *commit["mirrored_txns"]]:  # [MIR-3]
        last, carried_by = txns.get(txn["app_id"], [-1, None])
        require(path, "TXN-5", txn["version"] > last)
        require(path, "TXN-1", txn["previous"] in (None, carried_by))
        txns[txn["app_id"]] = [txn["version"], version]
    changes = {"topic": topic, "partitions": partitions, "txns": txns, "mirror": mirror}
    return {**after, **changes}


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
INLINE_PATH = re.compile(r"_manifest/([0-9]{20})\.json@(0|[1-9][0-9]{0,8})")  # [INL-1]


def commit_name(version: int) -> str:
    return f"_manifest/{version:020d}.json"


# --- 4. Protocol -----------------------------------------------------------------------------

FEATURES = {"column-mapping", "given-offsets", "inline-batches", "mirror"}


def check_protocol(value: Any) -> None:
    """Refuse a format or a feature that is not known. A protocol that does not decode is left to
    whoever decodes the whole object [PROTO-2]."""
    try:
        protocol = checked("protocol", value)
    except ValueError:
        return
    unknown = {*protocol["reader_features"]} - FEATURES
    if protocol["format"] != 1 or unknown:
        raise Unsupported(f"format {protocol['format']}, features {sorted(unknown)} [PROTO-2]")


# --- 5. to 7. The topic object, settings and types -------------------------------------------

LOG_NAMES = ("partition", "offset", "timestamp", "topic", "timestampType")
PLAIN_TYPES = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(),
    "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "string": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
KEY_TYPES = {t.id for t in PLAIN_TYPES.values() if not pa.types.is_floating(t)}
KEY_TYPES |= {pa.decimal128(1).id}
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))


def arrow_type(described: Any) -> pa.DataType:
    """The type that the topic object describes [TYPE-1], [TYPE-2]."""

    def inner(name: str, of: Any, nullable: Any) -> pa.Field:
        if type(nullable) is not bool or name.encode(errors="replace").decode() != name:
            raise Unsupported(f"the type {described!r:.80} [TYPE-1]")
        return pa.field(name, arrow_type(of), nullable=nullable)

    match described:
        case str() if described in PLAIN_TYPES:
            return PLAIN_TYPES[described]
        case str() if found := re.fullmatch(r"decimal\((\d{1,2}),(\d{1,2})\)", described, re.ASCII):
            digits, scale = int(found[1]), int(found[2])
            if 1 <= digits <= 38 and scale <= digits:
                return pa.decimal128(digits, scale)
        case {"type": "array", "elementType": element}:
            return pa.list_(inner("element", element, described.get("containsNull", True)))
        case {"type": "map", "keyType": key, "valueType": value}:
            valued = inner("value", value, described.get("valueContainsNull", True))
            return pa.map_(arrow_type(key), valued)
        case {"type": "struct", "fields": [_, *_] as fields} if all(
            type(f) is dict for f in fields
        ):
            parts = [(f.get("name"), f.get("type"), f.get("nullable", True)) for f in fields]
            if len({name for name, _, _ in parts if type(name) is str}) == len(fields):
                return pa.struct([inner(*part) for part in parts])
    raise Unsupported(f"the type {described!r:.80} [TYPE-1]")


def widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """The changes of type that [META-4] allows."""
    if pa.types.is_decimal128(given) and pa.types.is_decimal128(wanted):
        whole = wanted.precision - wanted.scale - (given.precision - given.scale)
        return bool(whole >= 0 and wanted.scale >= given.scale)
    whole_numbers = pa.types.is_signed_integer(given) and pa.types.is_signed_integer(wanted)
    floats = given == pa.float32() and wanted == pa.float64()
    return bool(floats or (whole_numbers and given.bit_width < wanted.bit_width))


def fields_inside(described: Any) -> int:
    if isinstance(described, str):
        return 0
    parts = [described.get(name) for name in ("elementType", "keyType", "valueType")]
    parts += [field["type"] for field in described.get("fields", [])]
    return sum(1 + fields_inside(part) for part in parts if part is not None)


def check_topic(topic: Record, path: str) -> None:
    """What a topic object must say by itself. What it may leave out is filled in: ids [META-6] and
    stored names [META-7]. `values` are the columns that are all null in a tombstone [REC-3]."""
    fields, key, retired = topic["fields"], topic["key"], topic["retired"]
    types = {field["name"]: arrow_type(field["type"]) for field in fields}
    policy = topic["config"].get("cleanup.policy", "").split(",")
    compacts = "compact" in map(str.strip, policy)  # the one setting that is looked at [CONF-3]
    require(path, "META-1", 0 < len(types) == len(fields) and not {*types} & {*LOG_NAMES})
    require(path, "META-1", types.get("headers", HEADERS) == HEADERS)  # [TYPE-3]
    require(path, "META-1", len({*key}) == len(key) and {*key} <= {*types})
    require(path, "META-1", all(types[name].id in KEY_TYPES for name in key))
    require(path, "META-1", key or not compacts)
    free = 16
    for field in fields:
        field["id"] = free if field["id"] is None and not retired else field["id"]
        require(path, "META-6", (field["id"] or 0) >= free if retired else field["id"] == free)
        free = field["id"] + 1 + fields_inside(field["type"])
    last = free - 1 if topic["last_field_id"] is None and not retired else topic["last_field_id"]
    require(path, "META-6", (last or 0) >= free - 1 if retired else last == free - 1)
    renamed = {field["name"] for field in fields if field["stored_as"] is not None}
    require(path, "META-7", not renamed & {*key, "headers"})
    for field in fields:
        field["stored_as"] = field["stored_as"] if field["name"] in renamed else field["name"]
    names = [*LOG_NAMES, *(field["stored_as"] for field in fields)]
    require(path, "META-7", len({*names}) == len(names))
    require(path, "META-8", len({*names, *retired}) == len(names) + len(retired))
    values = [field for field in fields if field["name"] not in (*key, "headers")]
    topic |= {"last_field_id": last, "is_mapped": bool(renamed or retired), "values": values}
    if retired and key:  # a drop must not make tombstones of records
        is_safe = not compacts or not all(field["nullable"] for field in values)
        require(path, "META-8", values and is_safe)


def announced(protocol: Record) -> set[str]:
    """The features that readers and writers have to know [PROTO-4]."""
    return {*protocol["reader_features"]} & {*protocol["writer_features"]}


def check_feature(topic: Record, protocol: Record, path: str) -> None:
    is_announced = "column-mapping" in announced(protocol)
    require(path, "META-7", not topic["is_mapped"] or is_announced)


def check_alteration(old: Record, new: Record, has_records: bool, mirrors: bool, path: str) -> None:
    """Which changes are allowed. Columns with the same id are the same [META-6]. One that `mirrors`
    a source may be several changes, so columns may have come and gone [MIR-5]."""
    require(path, "META-4", old["key"] == new["key"])
    require(path, "META-4", old["created_at_ms"] == new["created_at_ms"])
    columns, gone = {field["id"]: field for field in new["fields"]}, []
    for before in old["fields"]:
        is_value, after = before in old["values"], columns.pop(before["id"], None)
        if after is None:
            require(path, "META-8", is_value)
            gone.append(before["stored_as"])
            continue
        may_rename = is_value and after["name"] != "headers"
        require(path, "META-7", before["stored_as"] == after["stored_as"])
        require(path, "META-7", before["name"] == after["name"] or may_rename)
        given, wanted = arrow_type(before["type"]), arrow_type(after["type"])
        require(path, "META-4", given == wanted or (is_value and widens(given, wanted)))
        require(path, "META-4", before["nullable"] == after["nullable"])
    retired, known = {*new["retired"]}, {*old["retired"], *gone}
    require(path, "META-8", known <= retired if mirrors else known == retired)
    for added in columns.values():
        require(path, "META-6", added["id"] > old["last_field_id"])
        require(path, "META-4", added["nullable"])
    require(path, "META-6", new["last_field_id"] >= old["last_field_id"])
    is_first_value = old["key"] and not old["values"] and new["values"]
    require(path, "META-4", not (is_first_value and has_records))


# --- 8. Commits ------------------------------------------------------------------------------


def load_commit(folder: Path, version: int) -> Record:
    data = read_object(folder, commit_name(version))
    require(commit_name(version), "COMMIT-3", data is not None, "it is missing")
    return decode_commit(data or b"", version)


def decode_commit(data: bytes, version: int) -> Record:
    path = commit_name(version)
    commit = decode(data, "commit", path, "COMMIT-1")
    require(path, "COMMIT-2", commit["version"] == version)
    if commit["topic"]:
        check_topic(commit["topic"], path)
    for entry in commit["add"]:
        check_entry(entry, path)
    require(path, "INL-4", commit["rows"] is None or data[-23:-10] == b',"checksum":"')
    return commit


def check_rows(commit: Record, protocol: Record, path: str) -> None:
    """Rows, and the entries that name them, agree as far as that can be told [INL-3]."""
    own = [entry for entry in commit["add"] if entry["path"].startswith(f"{path}@")]
    if commit["rows"] is not None:
        require(path, "INL-1", "inline-batches" in announced(protocol))
    require(path, "INL-3", bool(own) == (commit["rows"] is not None))
    starts = itertools.accumulate([0, *(entry["records"] for entry in own)])
    for entry, start in zip(own, starts, strict=False):
        require(path, "INL-3", entry["path"] == f"{path}@{start}")
    if own:
        size = len(commit["rows"]) // 4 * 3 - commit["rows"][-2:].count("=")
        require(path, "INL-5", size <= 1 << 20)
        require(path, "INL-3", size == sum(entry["size_bytes"] for entry in own))


# --- 9. The log ------------------------------------------------------------------------------

EMPTY_PARTITION: Record = {"log_start": 0, "end": 0, "clean_end": 0, "segments": []}


def change_partition(
    before: Record, number: int, commit: Record, path: str, is_given: bool
) -> Record:
    """One partition after the commit. Appended segments may have holes if offsets are given
    [LOG-11]."""
    log_start, end, clean_end, segments = before.values()
    kinds = [commit[name] for name in ("add", "replaced", "log_starts")]
    added, swaps, moves = ([p for p in parts if p["partition"] == number] for parts in kinds)
    for swap in swaps:
        low, high = swap["start"], swap["end"]
        inputs = [s for s in segments if s["base_offset"] < high and low < s["end_offset"]]
        outputs = [s for s in added if low <= s["base_offset"] < high]
        require(path, "LOG-7", tile(inputs, low, high) and tile(outputs, low, high))
        require(path, "LOG-7", log_start < high <= end)
        require(path, "SEG-10", all(s["slack"] >= 0 for s in outputs))
        require(path, "LOG-7", swap["dropped"] == totals(inputs))
        require(path, "INL-7", swap["dropped_inline"] in (None, totals(inputs, inline=True)))
        known = {s["path"] for s in inputs}
        require(path, "INL-3", all(s["path"] in known for s in outputs if "@" in s["path"]))
        require(path, "LOG-7", totals(outputs)["records"] <= totals(inputs)["records"])
        left = [s for s in outputs if s["end_offset"] > log_start]
        segments = sorted((*(s for s in segments if s not in inputs), *left), key=BY_OFFSET)
        added = [s for s in added if s not in outputs]
    if added or number in commit["ends"]:
        new_end = commit["ends"].get(number)
        require(path, "LOG-2", added and tile(added, end, new_end))
        require(path, "LOG-2", is_given or all(s["records"] == s["claim"] for s in added))
        inline = [s["path"] for s in added if "@" in s["path"]]
        require(path, "INL-3", all(one.startswith(f"{path}@") for one in inline))
        floors = all(s["slack"] >= 0 if is_given else s["slack"] == 0 for s in added)
        require(path, "SEG-10", floors)
        segments, end = [*segments, *added], new_end
    for move in moves:
        require(path, "LOG-6", log_start < move["offset"] <= end)
        log_start = move["offset"]
        gone = [s for s in segments if s["end_offset"] <= log_start]
        require(path, "LOG-6", move["dropped"] == totals(gone))
        require(path, "INL-7", move["dropped_inline"] in (None, totals(gone, inline=True)))
        segments = segments[len(gone) :]
    cleaned = commit["cleaned"].get(number, clean_end)
    require(path, "LOG-9", clean_end <= cleaned <= end)
    return {"log_start": log_start, "end": end, "clean_end": cleaned, "segments": segments}


def tile(segments: list[Record], start: int, end: int | None) -> bool:
    """Whether the segments, in this order, cover exactly `[start, end)` [LOG-4]."""
    bounds = [start, *(segment["end_offset"] for segment in segments)]
    return bounds[:-1] == [s["base_offset"] for s in segments] and bounds[-1] == end


def totals(segments: list[Record], inline: bool = False) -> Record:
    segments = [s for s in segments if "@" in s["path"] or not inline]
    sums = {name: sum(s[name] for s in segments) for name in ("records", "size_bytes")}
    return {"segments": len(segments), **sums}


# --- 10. Segments ----------------------------------------------------------------------------

BY_OFFSET = operator.itemgetter("base_offset")
LOG_FIELDS = [
    {"name": name, "type": of, "nullable": False, "id": number, "stored_as": name}
    for name, of, number in (("offset", "long", 2), ("timestamp", "timestamp", 3))
]


def grow(numbers: list[int]) -> bool:
    return all(low < high for low, high in itertools.pairwise(numbers))


def check_entry(entry: Record, source: str) -> None:
    """What an entry says about itself must be possible [SEG-10]. A path of another form could lead
    out of the topic [PATH-4]. `slack` is how far the first record is above floor plus shift: 0 if
    the segment was appended, more if a compaction has dropped the first ones, or if offsets were
    given."""
    found, inline = SEGMENT_PATH.fullmatch(entry["path"]), INLINE_PATH.fullmatch(entry["path"])
    require(source, "PATH-4", inline or (found and int(found[1]) == entry["partition"]))
    base, records, groups = entry["base_offset"], entry["records"], entry["row_groups"]
    entry["claim"], entry["slack"] = entry["end_offset"] - base, 0
    require(source, "SEG-10", 0 < entry["claim"] >= records >= entry["tombstones"])
    require(source, "SEG-10", entry["size_bytes"] <= 1 << 46)
    require(source, "SEG-10", entry["shift"] >= 0)
    require(source, "SEG-10", records or groups in ([], [0]))
    if records:
        require(source, "SEG-10", entry["min_timestamp_us"] <= entry["max_timestamp_us"])
        require(source, "SEG-10", 0 < len(groups) <= records and grow([*groups, entry["claim"]]))
        require(source, "SEG-10", records < entry["claim"] or groups[0] == 0)
    if inline:
        is_plain = entry["shift"] == 0 and groups == [0] and entry["footer_checksum"] is None
        require(source, "INL-1", is_plain and records == entry["claim"])
    elif records:
        entry["slack"] = base + groups[0] - int(found[2]) - entry["shift"]


def read_segment(folder: Path, entry: Record, topic: Record) -> pa.Table:
    """All records of a segment, with their true offsets, checked against its entry."""
    if "@" in entry["path"]:
        return read_inline(folder, entry, topic)
    path, data = entry["path"], read_object(folder, entry["path"])
    if data is None:
        raise FileGone(f"{path} is missing [SEG-1]")
    footer_bytes = int.from_bytes(data[-8:-4], "little") + 8
    require(path, "SEG-2", data[-4:] == b"PAR1" and footer_bytes <= len(data))
    footer = data[-footer_bytes:]
    require(path, "SUM-3", entry["footer_checksum"] in (None, checksum(footer)))
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
        table = pa.concat_tables(groups) if groups else file.schema_arrow.empty_table()
        table.validate(full=True)
        notes = file.metadata.metadata or {}
    except Exception as error:  # whatever Parquet says about bytes it cannot read
        raise Corrupt(path, "SEG-2", str(error)) from None
    require(path, "SEG-11", notes.get(b"pylogtable.path") in (None, path.encode()))
    columns: Record = {}
    for field in [*LOG_FIELDS, *topic["fields"]]:
        may_lack = field["nullable"] and field["name"] not in topic["key"]
        columns[field["name"]] = column_of(table, field, may_lack, path)
    require(path, "SEG-5", table.num_rows == entry["records"])
    require(path, "SEG-5", len(groups) == len(entry["row_groups"]))
    offsets = [stored + entry["shift"] for stored in columns["offset"].to_pylist()]
    base, starts = entry["base_offset"], itertools.accumulate([0, *map(len, groups)])
    firsts = [offsets[start] - base for start in starts if start < len(offsets)]
    require(path, "SEG-11", grow([base - 1, *offsets, entry["end_offset"]]))
    require(path, "SEG-11", not offsets or firsts == entry["row_groups"])
    times = pc.min_max(columns["timestamp"].cast("int64")).as_py()
    require(path, "SEG-5", not offsets or times["min"] == entry["min_timestamp_us"])
    require(path, "SEG-5", not offsets or times["max"] == entry["max_timestamp_us"])
    return pa.table({**columns, "offset": pa.array(offsets, pa.int64())})


def read_inline(folder: Path, entry: Record, topic: Record) -> pa.Table:
    """The records of a segment that are in a commit."""
    path, _, first = entry["path"].partition("@")
    data = read_object(folder, path)
    if data is None:
        raise FileGone(f"{path} is missing [SEG-1]")
    commit = decode_commit(data, int(path[-25:-5]))
    try:
        packed = base64.b64decode(commit["rows"] or "", validate=True)
        stream = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")
        unpacked = stream.read_buffer((64 << 20) + 1)
        require(path, "INL-5", unpacked.size <= 64 << 20)
        batches = list(pa.ipc.open_stream(unpacked))
        table = pa.Table.from_batches(batches)
        table.validate(full=True)
    except Corrupt:
        raise
    except Exception as error:  # whatever Arrow says about bytes it cannot read
        raise Corrupt(path, "INL-2", str(error)) from None
    require(path, "INL-2", len(batches) == 1)
    own = {e["path"]: e for e in commit["add"] if e["path"].startswith(f"{path}@")}
    require(path, "INL-3", table.num_rows == sum(e["records"] for e in own.values()))
    require(path, "INL-3", len(packed) == sum(e["size_bytes"] for e in own.values()))
    same = ("partition", "base_offset", "end_offset")
    mine = own.get(entry["path"])
    require(path, "INL-3", mine and all(mine[name] == entry[name] for name in same))
    table = table.slice(int(first), entry["records"])
    columns: Record = {"offset": pa.array(range(entry["base_offset"], entry["end_offset"]))}
    for field in [*LOG_FIELDS[1:], *topic["fields"]]:
        may_lack = field["nullable"] and field["name"] not in topic["key"]
        columns[field["name"]] = column_of(table, field, may_lack, entry["path"])
    times = pc.min_max(columns["timestamp"].cast("int64")).as_py()
    require(entry["path"], "SEG-5", times["min"] == entry["min_timestamp_us"])
    require(entry["path"], "SEG-5", times["max"] == entry["max_timestamp_us"])
    return pa.table(columns)


def column_of(table: pa.Table, field: Record, may_lack: bool, path: str) -> Any:
    """A column in the topic's type. The file may have a narrower one, or be older [SEG-3]."""
    wanted = arrow_type(field["type"])
    found = table.schema.get_all_field_indices(field["stored_as"])
    if not found and may_lack:
        return pa.nulls(table.num_rows, wanted)
    require(path, "SEG-3", len(found) == 1)
    given, column = table.schema.field(found[0]), table.column(found[0])
    number = (given.metadata or {}).get(b"PARQUET:field_id", field["id"])
    require(path, "META-6", int(number) == field["id"])
    require(path, "SEG-3", given.type == wanted or widens(given.type, wanted))
    require(path, "SEG-3", field["nullable"] or not column.null_count)
    return column.cast(wanted)


# --- 14. The index: only if commits are gone -------------------------------------------------


def load_root(folder: Path, version: int) -> Record:
    """The state that a root has saved, with the entries of its leaves."""
    path = f"_manifest/{version:020d}.root.json"
    root = decode(read_object(folder, path) or b"", "root", path, "ROOT-1")
    topic, parts, leaves = root["topic"], root["partitions"], root["leaves"]
    require(path, "ROOT-1", root["version"] == version)
    if topic:
        check_topic(topic, path)
        check_feature(topic, root["protocol"], path)
    require(path, "PATH-4", all(LEAF_ID.fullmatch(leaf) for leaf, _ in leaves))
    for number, part in enumerate(parts):
        for entry in part["tail"]:
            require(path, "SEG-10", entry["partition"] == number)
            check_entry(entry, path)
        require(path, "ROOT-3", all(run[0] < len(leaves) for run in part["runs"]))
    sums = root["leaf_checksums"] or [None] * len(leaves)
    runs = Counter(run[0] for part in parts for run in part["runs"])
    tails = [entry["path"] for part in parts for entry in part["tail"]]
    require(path, "ROOT-6", len(parts) == (topic["partitions"] if topic else 0))
    require(path, "ROOT-6", topic or not (root["txns"] or root["mirror"]))
    require(path, "ROOT-6", not root["mirror"] or "mirror" in announced(root["protocol"]))
    require(path, "ROOT-6", all(commit <= version for _, commit in root["txns"].values()))
    require(path, "ROOT-6", len({leaf for leaf, _ in leaves}) == len(leaves) == len(sums))
    require(path, "ROOT-6", all(1 <= runs[leaf] <= n for leaf, (_, n) in enumerate(leaves)))
    require(path, "ROOT-6", len({*tails}) == len(tails))
    slacks = (entry["slack"] for part in parts for entry in part["tail"])
    require(path, "ROOT-6", all(slack >= 0 for slack in slacks))
    for part in parts:
        part["runs"] = [run for run in part["runs"] if run[2] > part["log_start"]]  # [ROOT-3]
        tiles = [{"base_offset": low, "end_offset": high} for _, low, high, _ in part["runs"]]
        tiles = sorted([*tiles, *part["tail"]], key=BY_OFFSET)
        require(path, "ROOT-6", part["log_start"] <= part["end"] >= part["clean_end"])
        require(path, "ROOT-6", tiles or part["log_start"] == part["end"])
        require(path, "ROOT-6", all(one["base_offset"] < one["end_offset"] for one in tiles))
        for first in tiles[:1]:
            require(path, "ROOT-6", first["base_offset"] <= part["log_start"] < first["end_offset"])
            require(path, "ROOT-6", tile(tiles, first["base_offset"], part["end"]))
    found = [load_leaf(folder, *leaf, sum) for leaf, sum in zip(leaves, sums, strict=True)]
    for number, part in enumerate(parts):
        part["segments"] = part.pop("tail")
        for leaf, low, high, latest_us in part.pop("runs"):
            at = f"_manifest/leaf-{leaves[leaf][0]}.parquet"
            mine = [entry for entry in found[leaf] if entry["partition"] == number]
            inside = [entry for entry in mine if low <= entry["base_offset"] < high]
            latest = max((e["max_timestamp_us"] for e in inside if e["records"]), default=latest_us)
            require(at, "LEAF-3", tile(inside, low, high) and latest <= latest_us)
            require(at, "SEG-10", all(entry["slack"] >= 0 for entry in inside))
            part["segments"] += [e for e in inside if e["end_offset"] > part["log_start"]]
        part["segments"].sort(key=BY_OFFSET)
        require(path, "ROOT-5", part.pop("live") == totals(part["segments"]))
        require(path, "ROOT-5", part.pop("inline") in (None, totals(part["segments"], inline=True)))
    return root


def load_leaf(folder: Path, leaf: str, count: int, expected: str | None) -> list[Record]:
    """The entries of a leaf [LEAF-1], as many as the root says [LEAF-3]."""
    path = f"_manifest/leaf-{leaf}.parquet"
    data = read_object(folder, path) or b""
    require(path, "LEAF-1", data)
    require(path, "SUM-2", expected in (None, checksum(data)))
    try:
        table = pq.read_table(pa.BufferReader(data))
        entries: list[Record] = [checked("segment", row) for row in table.to_pylist()]
    except Exception as error:
        raise Corrupt(path, "LEAF-1", str(error)) from None
    require(path, "LEAF-1", FIELDS["segment"].keys() <= {*table.column_names, "footer_checksum"})
    bounds = [(e["partition"], o) for e in entries for o in (e["base_offset"], e["end_offset"])]
    require(path, "LEAF-1", bounds == sorted(bounds))
    for entry in entries:
        check_entry(entry, path)
    require(path, "LEAF-3", len(entries) == count)
    return entries


# --- 15. Reads -------------------------------------------------------------------------------


def read(
    folder: Path, state: Record, partition: int, start: int | None = None, end: int | None = None
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
            yield from json.loads(json.dumps(table.to_pylist(), default=printed))


def printed(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


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
        require(path, "GRP-2", state["number"] == number)
        owned = [one for member in state["members"].values() for one in member["owned"]]
        require(path, "GRP-12", len({*owned}) == len(owned))
        if state["topic_id"] == topic_id:
            return state
    return None


# --- 19. Copies ------------------------------------------------------------------------------


def shown_and_seen(mirror: Record) -> tuple[int, int]:
    """The version of the source that a copy shows, and the newest it has seen [MIR-6]."""
    shown = -1 if mirror["version"] is None else mirror["version"]
    return shown, shown if mirror["seen"] is None else mirror["seen"]


def check_mirror(before: Any, commit: Record, protocol: Record, path: str) -> Any:
    """What the state says about the source of a copy after the commit [MIR-1]."""
    new, apps = commit["mirror"], [txn["app_id"] for txn in commit["mirrored_txns"]]
    require(path, "MIR-3", new or not apps)
    if not new:  # an append of others ends the mirroring [MIR-2]
        ends = before and before["ended"] is None and (commit["ends"] or commit["txn"])
        return {**before, "ended": commit["version"]} if ends else before
    apps += [commit["txn"]["app_id"]] if commit["txn"] else []
    require(path, "MIR-1", "mirror" in announced(protocol))
    shows, seen = shown_and_seen(new)
    require(path, "MIR-1", shows <= seen)
    require(path, "MIR-2", new["ended"] in (None, commit["version"]))
    if commit["operation"] != "create":
        require(path, "MIR-3", len({*apps}) == len(apps))
        require(path, "MIR-1", before and before["source_id"] == new["source_id"])
        require(path, "MIR-2", before["ended"] is None)
        shown, known = shown_and_seen(before)
        require(path, "MIR-1", shown <= shows and known <= seen)
        require(path, "MIR-4", new["own_retention"] >= before["own_retention"])
        require(path, "MIR-7", new["new_names"] >= before["new_names"])
    return new


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    place = Path(sys.argv[1])
    try:
        found = open_topic(place, *map(int, sys.argv[2:]))
        if found["topic"] is None or found["topic_id"] != open_topic(place)["topic_id"]:
            raise InvalidRequest("that version is of a topic that was deleted [READ-5]")
        for row in rows(place, found):
            print(json.dumps(row))
    except (Refusal, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
