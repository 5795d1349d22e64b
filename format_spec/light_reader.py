"""A light reader of pylogtable topics: the smallest program that gives the right rows.

It believes a manifest whose checksums are right, checks every data file, and uses roots only where
commits are gone. The full reader (reference_reader.py) adds the rest: conformance.md has the rules.

    python light_reader.py <topic> [<version>]      prints the rows as lines of JSON
"""

from __future__ import annotations

import base64
import itertools
import json
import operator
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Record = dict[str, Any]  # an object of the format, with its defaults filled in


class Refusal(Exception):
    """The reader says no. What is derived from it are the kinds of errors.md."""


class Corrupt(Refusal):  # the object at `path` breaks `rule`
    def __init__(self, path: str, rule: str, detail: str = "") -> None:
        super().__init__(f"{path} breaks [{rule}] {detail}")
        self.path, self.rule = path, rule


KIND = ("Unsupported", "OutOfRange", "NoTopic", "InvalidRequest", "FileGone")
Unsupported, OutOfRange, NoTopic, InvalidRequest, FileGone = (type(k, (Refusal,), {}) for k in KIND)


def require(path: str, rule: str, holds: Any, detail: str = "") -> None:
    if not holds:
        raise Corrupt(path, rule, detail)


FEATURES = {"column-mapping", "given-offsets", "inline-batches", "mirror"}
COMMIT_NAME = re.compile(r"([0-9]{20})\.json")  # a group's states have the same form
ROOT_NAME = re.compile(r"([0-9]{20})\.root\.json")
SEGMENT_PATH = re.compile(r"partition=(0|[1-9][0-9]*)/([0-9]{20})-[0-9a-z]{1,64}\.parquet")
INLINE_PATH = re.compile(r"_manifest/([0-9]{20})\.json@(0|[1-9][0-9]{0,8})")  # [INL-1]
PLAIN_TYPES = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(),
    "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "string": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
DEFAULTS = {  # of all fields that may be absent: no two objects have different ones for a name
    "protocol": None, "topic": None, "ends": {}, "add": [], "log_starts": [], "replaced": [],
    "rows": None, "parent": None, "reader_features": [], "key": [], "nullable": True, "id": None,
    "stored_as": None, "shift": 0, "row_groups": [0], "footer_checksum": None, "partitions": [],
    "leaves": [], "leaf_checksums": [], "log_start": 0, "end": 0, "runs": [], "tail": [],
}  # fmt: skip
LOG_FIELDS = [
    {"name": name, "arrow": of, "nullable": False, "ids": [number], "stored_as": name}
    for name, of, number in (("offset", pa.int64(), 2), ("timestamp", PLAIN_TYPES["timestamp"], 3))
]
BY_OFFSET = operator.itemgetter("base_offset")


def commit_name(version: int, ending: str = "json") -> str:
    return f"_manifest/{version:020d}.{ending}"


def checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def tile(segments: list[Record], start: int, end: int | None) -> bool:
    """Whether the segments, in this order, cover exactly `[start, end)` [LOG-4]."""
    bounds = [start, *(segment["end_offset"] for segment in segments)]
    return bounds[:-1] == [s["base_offset"] for s in segments] and bounds[-1] == end


def end_of_run(versions: set[int], first: int) -> int:
    """The last version before the first miss [COMMIT-3]; `first - 1` if `first` is missing."""
    return next(version for version in itertools.count(first) if version not in versions) - 1


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
        case {"type": "struct", "fields": [_, *_] as fields}:
            named = {f["name"]: f for f in fields if type(f) is dict and type(f.get("name")) is str}
            parts = [(name, f.get("type"), f.get("nullable", True)) for name, f in named.items()]
            if len(parts) == len(fields):
                return pa.struct(list(itertools.starmap(inner, parts)))
    raise Unsupported(f"the type {described!r:.80} [TYPE-1]")


def widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """The changes of type that [META-4] allows."""
    if pa.types.is_decimal128(given) and pa.types.is_decimal128(wanted):
        whole = wanted.precision - wanted.scale - (given.precision - given.scale)
        return bool(whole >= 0 and wanted.scale >= given.scale)
    whole_numbers = pa.types.is_signed_integer(given) and pa.types.is_signed_integer(wanted)
    is_wider = whole_numbers and given.bit_width < wanted.bit_width
    return bool(is_wider or (given == pa.float32() and wanted == pa.float64()))


def ids_of(field: pa.Field) -> list[bytes | None]:
    """The ids in a file of a column and the fields inside of it, in their order [META-6]."""
    of, own = field.type, (field.metadata or {}).get(b"PARQUET:field_id")
    is_map = pa.types.is_map(of)
    inner = [of.key_field, of.item_field] if is_map else [*map(of.field, range(of.num_fields))]
    return [own, *itertools.chain(*map(ids_of, inner))]


class LightReader:
    """Reads the topic in a folder. In a state, `topic` is None if the topic is deleted."""

    NOTHING: ClassVar[Record] = {"protocol": None, "topic": None, "partitions": []}
    EMPTY_PARTITION: ClassVar[Record] = {"log_start": 0, "end": 0, "segments": []}

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read_object(self, name: str) -> bytes | None:
        """The whole object; None if it is absent [STORE-1]. Here, the store is a directory."""
        path = self.folder / name
        return path.read_bytes() if path.is_file() else None

    def numbers(self, below: str, name: re.Pattern[str]) -> set[int]:
        """The numbers of the objects below a prefix whose names have this form."""
        names = [path.name for path in (self.folder / below).glob("*") if path.is_file()]
        return {int(match[1]) for match in map(name.fullmatch, names) if match}

    def check_part(self, part: str, path: str, *facts: Any) -> None:
        """Where the full level checks more: what writers have to keep, and totals."""

    def open(self, version: int | None = None) -> Record:
        """The state at `version`, or at the newest one."""
        commits, roots = (self.numbers("_manifest", name) for name in (COMMIT_NAME, ROOT_NAME))
        state, first, last = None, 0, end_of_run(commits, 0)
        if last < 0 and not roots:
            raise NoTopic(f"there is no topic at {self.folder} [HINT-1]")
        beyond = [root for root in roots if last < root and (version is None or root <= version)]
        for root in sorted(beyond, reverse=True):  # the commits below it are gone [VAC-1]
            try:
                state, first, last = self.load_root(root), root + 1, end_of_run(commits, root + 1)
                break
            except (Corrupt, KeyError, TypeError) as error:  # it is passed over [ROOT-2]
                if getattr(error, "path", "").startswith("_manifest/leaf-"):
                    raise
        if version is not None and version > last:
            raise InvalidRequest(f"version {version} is not there, or no longer kept [READ-5]")
        require(commit_name(last + 1), "COMMIT-3", state or not beyond, "no root makes up for it")
        newest = max(commits, default=last) if version is None else version
        for number in sorted(n for n in commits if first <= n <= newest):
            commit = self.decode_commit(self.read_object(commit_name(number)), number)
            if number > last:
                is_void = commit["topic_id"] != state["topic_id"]
                require(commit_name(last + 1), "COMMIT-3", is_void, f"{number} is beyond it")
            else:
                state = self.apply(state, commit)
        return state

    def apply(self, state: Record | None, commit: Record) -> Record:
        """The state after `commit`, which follows `state`."""
        path, creates = commit_name(commit["version"]), commit["operation"] == "create"
        require(path, "COMMIT-3", commit["version"] == (state["version"] + 1 if state else 0))
        old, is_mine = (state["topic"] if state else None), False
        if state:
            is_child = commit["parent"] in (None, state["commit_id"])
            is_mine = commit["topic_id"] == state["topic_id"]
            if not is_mine and (old or not creates or not is_child):
                return {**state, "version": commit["version"]}  # void [COMMIT-11]
            require(path, "COMMIT-6", commit["committed_at_ms"] > state["committed_at_ms"])
            require(path, "COMMIT-10", is_child)
        require(path, "META-2", creates != bool(old))
        require(path, "META-2", not creates or (commit["topic"] and commit["protocol"]))
        require(path, "META-5", not creates or not is_mine)
        before = state if state and old else self.NOTHING
        names = ("version", "commit_id", "topic_id", "committed_at_ms")
        after = {**self.NOTHING, **{name: commit[name] for name in names}}
        after["protocol"] = commit["protocol"] or before["protocol"]
        if commit["operation"] == "delete_topic":
            return after
        after["topic"] = topic = commit["topic"] or old
        parts = [*commit["add"], *commit["replaced"], *commit["log_starts"]]
        named = [*commit["ends"], *(part["partition"] for part in parts)]
        require(path, "META-3", max(named, default=0) < topic["partitions"])
        return self.change(before, commit, after, path)

    def change(self, before: Record, commit: Record, after: Record, path: str) -> Record:
        """The state with the partitions as the commit leaves them."""
        parts, added = list(map(dict, before["partitions"])), commit["add"]
        after["partitions"] = parts
        for number in range(len(parts), after["topic"]["partitions"]):
            start = commit["ends"].get(number, 0) if commit["operation"] == "create" else 0
            parts.append({**self.EMPTY_PARTITION, "log_start": start, "end": start})  # [META-9]
        if commit["operation"] == "create":
            return after
        for swap in commit["replaced"]:
            part, low, high = parts[swap["partition"]], swap["start"], swap["end"]
            live = part["segments"]
            inputs = [s for s in live if s["base_offset"] < high and low < s["end_offset"]]
            mine = [s for s in added if s["partition"] == swap["partition"]]
            outputs = [s for s in mine if low <= s["base_offset"] < high]
            require(path, "LOG-7", tile(inputs, low, high) and tile(outputs, low, high))
            require(path, "LOG-7", part["log_start"] < high <= part["end"])
            self.check_part("replaced", path, swap, inputs, outputs)
            left = [s for s in outputs if s["end_offset"] > part["log_start"]]
            part["segments"] = sorted([*left, *(s for s in live if s not in inputs)], key=BY_OFFSET)
            added = [s for s in added if s not in outputs]
        for number in sorted({*commit["ends"], *(s["partition"] for s in added)}):
            part, new_end = parts[number], commit["ends"].get(number)
            mine = [s for s in added if s["partition"] == number]
            require(path, "LOG-2", mine and tile(mine, part["end"], new_end))
            self.check_part("add", path, mine, after["protocol"])
            part |= {"segments": [*part["segments"], *mine], "end": new_end}
        for move in commit["log_starts"]:
            part = parts[move["partition"]]
            require(path, "LOG-6", part["log_start"] < move["offset"] <= part["end"])
            gone = [s for s in part["segments"] if s["end_offset"] <= move["offset"]]
            self.check_part("log_starts", path, move, gone)
            part |= {"segments": part["segments"][len(gone) :], "log_start": move["offset"]}
        return after

    def decode(self, data: bytes, kind: str, path: str, rule: str) -> Record:
        """The object, with its defaults. If it does not decode, it breaks `rule`."""
        try:
            value = json.loads(data.decode(), parse_constant=int)  # NaN is no JSON, and no int
            protocol = value.get("protocol") or {"format": 1}
            if protocol["format"] != 1 or {*protocol.get("reader_features", [])} - FEATURES:
                raise Unsupported(f"its protocol is {protocol} [PROTO-2]")
            found = self.filled(kind, value)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Corrupt(path, rule, repr(error)) from None
        is_right = data[-23:] == b',"checksum":"%s"}' % checksum(data[:-23]).encode()
        require(path, "SUM-1", "checksum" not in value or is_right)
        return found

    def filled(self, kind: str, value: Any) -> Record:
        """The value, and all objects in it, with the fields that may be absent."""
        return json.loads(json.dumps(value), object_hook=lambda found: {**DEFAULTS, **found})

    def decode_commit(self, data: bytes | None, version: int) -> Record:
        path = commit_name(version)
        require(path, "COMMIT-3", data is not None, "it is missing")
        commit = self.decode(data, "commit", path, "COMMIT-1")
        require(path, "COMMIT-2", commit["version"] == version)
        commit["ends"] = {int(n): at for n, at in commit["ends"].items() if str(n).isdecimal()}
        if commit["topic"]:
            self.check_topic(commit["topic"], path)
        for entry in commit["add"]:
            self.check_entry(entry, path)
        require(path, "INL-4", commit["rows"] is None or data[-23:-10] == b',"checksum":"')
        return commit

    def check_topic(self, topic: Record, path: str) -> None:
        """Types are known [TYPE-1]. What a column may leave out is filled in [META-6], [META-7]."""
        free = 16
        for field in topic["fields"]:
            field["arrow"] = arrow_type(field["type"])
            first, count = field["id"] or free, len(ids_of(pa.field("", field["arrow"])))
            field["ids"], free = [*range(first, first + count)], first + count
            field["stored_as"] = field["name"] if field["stored_as"] is None else field["stored_as"]

    def check_entry(self, entry: Record, source: str) -> None:
        """A path of another form could lead out of the topic [PATH-4]."""
        found, inline = SEGMENT_PATH.fullmatch(entry["path"]), INLINE_PATH.fullmatch(entry["path"])
        require(source, "PATH-4", inline or (found and int(found[1]) == entry["partition"]))

    def read_segment(self, entry: Record, topic: Record) -> pa.Table:
        """All records of a segment, with their true offsets, checked against its entry."""
        data = self.read_object(entry["path"].partition("@")[0])
        if data is None:
            raise FileGone(f"{entry['path']} is missing [SEG-1]")
        table = (self.read_inline if "@" in entry["path"] else self.read_file)(data, entry, topic)
        times = pc.min_max(table["timestamp"].cast("int64")).as_py()
        said = {"min": entry["min_timestamp_us"], "max": entry["max_timestamp_us"]}
        require(entry["path"], "SEG-5", not table.num_rows or times == said)
        return table

    def read_file(self, data: bytes, entry: Record, topic: Record) -> pa.Table:
        path, size = entry["path"], int.from_bytes(data[-8:-4], "little") + 8  # of the footer
        require(path, "SEG-2", data[-4:] == b"PAR1" and size <= len(data))
        require(path, "SUM-3", entry["footer_checksum"] in (None, checksum(data[-size:])))
        try:
            file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
            groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
            table = pa.concat_tables(groups) if groups else file.schema_arrow.empty_table()
            table.validate(full=True)
            notes = file.metadata.metadata or {}
        except Exception as error:  # whatever Parquet says about bytes it cannot read
            raise Corrupt(path, "SEG-2", str(error)) from None
        require(path, "SEG-11", notes.get(b"pylogtable.path") in (None, path.encode()))
        columns = self.columns(table, [*LOG_FIELDS, *topic["fields"]], topic["key"], path)
        require(path, "SEG-5", table.num_rows == entry["records"])
        require(path, "SEG-5", len(groups) == len(entry["row_groups"]))
        base, shift = entry["base_offset"], entry["shift"]
        offsets = [stored + shift for stored in columns["offset"].to_pylist()]
        firsts = [group["offset"][0].as_py() + shift - base for group in groups if len(group)]
        require(path, "SEG-11", offsets == sorted({*offsets}))
        require(path, "SEG-11", all(base <= offset < entry["end_offset"] for offset in offsets))
        require(path, "SEG-11", not offsets or firsts == entry["row_groups"])
        return pa.table({**columns, "offset": pa.array(offsets, pa.int64())})

    def read_inline(self, data: bytes, entry: Record, topic: Record) -> pa.Table:
        path, _, first = entry["path"].partition("@")
        commit = self.decode_commit(data, int(path[-25:-5]))
        try:
            packed = base64.b64decode(commit["rows"] or "", validate=True)
            stream = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")
            unpacked = stream.read_buffer((64 << 20) + 1)
            require(path, "INL-5", unpacked.size <= 64 << 20)
            batches = list(pa.ipc.open_stream(unpacked))
            table = pa.Table.from_batches(batches)
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            raise Corrupt(path, "INL-2", str(error)) from None
        require(path, "INL-2", len(batches) == 1)
        own = {e["path"]: e for e in commit["add"] if e["path"].startswith(f"{path}@")}
        require(path, "INL-3", table.num_rows == sum(e["records"] for e in own.values()))
        require(path, "INL-3", len(packed) == sum(e["size_bytes"] for e in own.values()))
        mine, same = own.get(entry["path"]), ("partition", "base_offset", "end_offset")
        require(path, "INL-3", mine and all(mine[name] == entry[name] for name in same))
        table = table.slice(int(first), entry["records"])
        columns = self.columns(table, [LOG_FIELDS[1], *topic["fields"]], topic["key"], path)
        offsets = pa.array(range(entry["base_offset"], entry["end_offset"]))
        return pa.table({"offset": offsets, **columns})

    def columns(self, table: pa.Table, fields: list[Record], key: list[str], path: str) -> Record:
        """The columns in the topic's types. A file may have narrower ones, or be older [SEG-3]. It
        has all ids, or none [META-6]."""
        ids = {column.name: ids_of(column) for column in table.schema}
        has_ids, columns = any(map(any, ids.values())), {}
        for field in fields:
            name, stored, wanted = field["name"], field["stored_as"], field["arrow"]
            found = table.schema.get_all_field_indices(stored)
            if not found and field["nullable"] and name not in key:
                columns[name] = pa.nulls(table.num_rows, wanted)
                continue
            require(path, "SEG-3", len(found) == 1)
            given, column, is_log = table.schema.field(stored), table[stored], field in LOG_FIELDS
            expected = [str(one).encode() if has_ids else None for one in field["ids"]]
            is_wider = not is_log and name not in key and widens(given.type, wanted)
            require(path, "SEG-3", given.type == wanted or is_wider)
            require(path, "META-6", ids[stored] == expected)
            require(path, "SEG-3", field["nullable"] or not column.null_count)
            require(path, "SEG-3", not (is_log and given.nullable))
            columns[name] = column.cast(wanted)
        return columns

    def load_root(self, version: int) -> Record:
        """The state that a root has saved, with the entries of its leaves."""
        root = self.decode_root(self.read_object(commit_name(version, "root.json")) or b"", version)
        leaves, sums = root["leaves"], root["leaf_checksums"] or itertools.repeat(None)
        found = [self.load_leaf(*leaf, sum) for leaf, sum in zip(leaves, sums, strict=False)]
        for number, part in enumerate(root["partitions"]):
            part["segments"] = [*part.pop("tail")]
            for leaf, low, high, latest_us in part.pop("runs"):
                if high > part["log_start"]:  # otherwise it means nothing [ROOT-3]
                    at = f"_manifest/leaf-{leaves[leaf][0]}.parquet"
                    mine = [e for e in found[leaf] if e["partition"] == number]
                    inside = [e for e in mine if low <= e["base_offset"] < high]
                    require(at, "LEAF-3", tile(inside, low, high))
                    self.check_part("run", at, inside, latest_us)
                    part["segments"] += [e for e in inside if e["end_offset"] > part["log_start"]]
            part["segments"].sort(key=BY_OFFSET)
        return root

    def decode_root(self, data: bytes, version: int) -> Record:
        path = commit_name(version, "root.json")
        root = self.decode(data, "root", path, "ROOT-1")
        require(path, "ROOT-1", root["version"] == version)
        if root["topic"]:
            self.check_topic(root["topic"], path)
        leaves = root["leaves"]
        require(path, "PATH-4", all(re.fullmatch("[0-9a-z]{1,64}", leaf) for leaf, _ in leaves))
        for part in root["partitions"]:
            for entry in part["tail"]:
                self.check_entry(entry, path)
            require(path, "ROOT-3", all(run[0] < len(leaves) for run in part["runs"]))
        require(path, "ROOT-6", len(root["leaf_checksums"]) in (0, len(leaves)))
        return root

    def load_leaf(self, leaf: str, count: int, expected: str | None) -> list[Record]:
        """The entries of a leaf [LEAF-1], as many as the root says [LEAF-3]."""
        path = f"_manifest/leaf-{leaf}.parquet"
        data = self.read_object(path)
        require(path, "LEAF-1", data is not None, "it is missing")
        require(path, "SUM-2", expected in (None, checksum(data or b"")))
        try:
            table = pq.read_table(pa.BufferReader(data))
            entries = [self.filled("segment", row) for row in table.to_pylist()]
        except Exception as error:
            raise Corrupt(path, "LEAF-1", str(error)) from None
        self.check_part("leaf", path, table, entries)
        for entry in entries:
            self.check_entry(entry, path)
        require(path, "LEAF-3", len(entries) == count)
        return entries

    def read(self, state: Record, partition: int, *bounds: int) -> Iterator[pa.Table]:
        """The records of a partition, or of `[start, end)`, a table for each segment [READ-3]."""
        part = state["partitions"][partition]
        start, end = bounds or (part["log_start"], part["end"])
        if not all(part["log_start"] <= bound <= part["end"] for bound in (start, end)):
            raise OutOfRange(f"the log is [{part['log_start']}, {part['end']}) [READ-2]")
        for entry in part["segments"]:
            if entry["base_offset"] < end and start < entry["end_offset"]:
                table = self.read_segment(entry, state["topic"])
                number = pa.array([partition] * table.num_rows, pa.int32())
                inside = (pc.field("offset") >= start) & (pc.field("offset") < end)
                yield table.add_column(0, "partition", number).filter(inside)

    def rows(self, state: Record) -> Iterator[Record]:
        """All records, as values that JSON has: times in microseconds, bytes in hex."""
        every = (self.read(state, number) for number in range(len(state["partitions"])))
        for table in itertools.chain.from_iterable(every):
            types = [pa.int64() if pa.types.is_timestamp(t) else t for t in table.schema.types]
            table = table.cast(pa.schema([*zip(table.column_names, types, strict=True)]))
            text = json.dumps(table.to_pylist(), default=lambda v: getattr(v, "hex", v.__str__)())
            yield from json.loads(text)


if __name__ == "__main__":
    topic = LightReader(Path(sys.argv[1]))
    print(*map(json.dumps, topic.rows(topic.open(*map(int, sys.argv[2:])))), sep="\n")
