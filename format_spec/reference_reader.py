"""The full reader of pylogtable topics, to be read beside spec.md.

It is the light reader (light_reader.py), and all that a reader has to check besides: types and
bounds of every field, what writers may change, and totals. So all readers of this level call the
same topics corrupt, by the same rules, in the order of errors.md. It also looks up offsets and
reads groups. It needs json and pyarrow, and nothing of the library.

    python reference_reader.py <topic> [<version>]      prints the rows as lines of JSON
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from light_reader import (
    BY_OFFSET,
    COMMIT_NAME,
    INLINE_PATH,
    SEGMENT_PATH,
    Corrupt,
    InvalidRequest,
    LightReader,
    Record,
    Refusal,
    arrow_type,
    commit_name,
    require,
    tile,
    widens,
)

# --- JSON ------------------------------------------------------------------------------------

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


def levels(data: bytes) -> int:
    """How many levels an object has, if it is JSON."""
    brackets = re.findall(rb"[{}\[\]]", re.sub(rb'"(?:[^"\\]|\\.)*"', b"", data))
    return max(itertools.accumulate(1 if one in b"{[" else -1 for one in brackets), default=0)


# --- 5. to 7. The topic object, settings and types -------------------------------------------

LOG_NAMES = ("partition", "offset", "timestamp", "topic", "timestampType")
KEY_TYPES = {arrow_type(name).id for name in ("boolean", "byte", "short", "integer", "long")}
KEY_TYPES |= {arrow_type(name).id for name in ("string", "binary", "date", "timestamp")}
KEY_TYPES |= {arrow_type("decimal(1,0)").id}
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))


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
    columns, gone = {field["ids"][0]: field for field in new["fields"]}, []
    for before in old["fields"]:
        is_value, after = before in old["values"], columns.pop(before["ids"][0], None)
        if after is None:
            require(path, "META-8", is_value)
            gone.append(before["stored_as"])
            continue
        may_rename = is_value and after["name"] != "headers"
        require(path, "META-7", before["stored_as"] == after["stored_as"])
        require(path, "META-7", before["name"] == after["name"] or may_rename)
        given, wanted = before["arrow"], after["arrow"]
        require(path, "META-4", given == wanted or (is_value and widens(given, wanted)))
        require(path, "META-4", before["nullable"] == after["nullable"])
    retired, known = {*new["retired"]}, {*old["retired"], *gone}
    require(path, "META-8", known <= retired if mirrors else known == retired)
    for added in columns.values():
        require(path, "META-6", added["ids"][0] > old["last_field_id"])
        require(path, "META-4", added["nullable"])
    require(path, "META-6", new["last_field_id"] >= old["last_field_id"])
    is_first_value = old["key"] and not old["values"] and new["values"]
    require(path, "META-4", not (is_first_value and has_records))


# --- 8. to 10. Commits, the log and segments -------------------------------------------------


def check_rows(commit: Record, protocol: Record, path: str) -> None:
    """Rows need the feature [INL-1], and agree with the entries that name them."""
    if commit["rows"] is not None:
        require(path, "INL-1", "inline-batches" in announced(protocol))
    check_entries_of_rows(commit, path)


def check_entries_of_rows(commit: Record, path: str) -> None:
    """Rows, and the entries that name them, agree as far as that can be told [INL-3]."""
    own = [entry for entry in commit["add"] if entry["path"].startswith(f"{path}@")]
    require(path, "INL-3", bool(own) == (commit["rows"] is not None))
    starts = itertools.accumulate([0, *(entry["records"] for entry in own)])
    for entry, start in zip(own, starts, strict=False):
        require(path, "INL-3", entry["path"] == f"{path}@{start}")
    if own:
        size = len(commit["rows"]) // 4 * 3 - commit["rows"][-2:].count("=")
        require(path, "INL-5", size <= 1 << 20)
        require(path, "INL-3", size == sum(entry["size_bytes"] for entry in own))


def totals(segments: list[Record], inline: bool = False) -> Record:
    segments = [s for s in segments if "@" in s["path"] or not inline]
    sums = {name: sum(s[name] for s in segments) for name in ("records", "size_bytes")}
    return {"segments": len(segments), **sums}


def minus(totals: Record, others: Record) -> Record:
    return {name: totals[name] - others[name] for name in totals}


def grow(numbers: list[int]) -> bool:
    return all(low < high for low, high in itertools.pairwise(numbers))


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


class Reader(LightReader):
    """Reads the topic in a folder. A state also has `txns`, `mirror` and clean ends."""

    NOTHING: ClassVar[Record] = {**LightReader.NOTHING, "txns": {}, "mirror": None}
    EMPTY_PARTITION: ClassVar[Record] = {**LightReader.EMPTY_PARTITION, "clean_end": 0}

    # --- JSON --------------------------------------------------------------------------------

    def filled(self, kind: str, value: Any) -> Record:
        """All fields are there, and of their types [JSON-1], [JSON-2]."""
        found: Record = self.checked(kind, value)
        return found

    def decode(self, data: bytes, kind: str, path: str, rule: str) -> Record:
        """What JSON-1 says of any object; a protocol that does not decode asks for nothing."""
        require(path, rule, levels(data) <= 100, "it is nested too deeply [JSON-1]")
        try:
            value = json.loads(data.decode())
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
            self.checked("protocol?", value.get("protocol") if type(value) is dict else None)
        except (ValueError, RecursionError) as error:
            raise Corrupt(path, rule, str(error)) from None
        return super().decode(data, kind, path, rule)

    def checked(self, kind: str, value: Any) -> Any:
        """The value, with the defaults of its fields; a ValueError if it is not of this kind."""
        inner = kind[1:-1]
        match kind[0], value:
            case _, None if kind[-1] == "?":
                return None
            case _ if kind[-1] == "?":
                return self.checked(kind[:-1], value)
            case _, int() if kind in RANGES and type(value) is int and value in RANGES[kind]:
                return value
            case _, str() if kind in TEXTS and re.fullmatch(TEXTS[kind], value):
                return value
            case _ if kind == "type" and isinstance(value, str | dict):
                return value
            case _ if kind == "any" or (kind == "boolean" and type(value) is bool):
                return value
            case "[", list():
                return [self.checked(inner, element) for element in value]
            case "(", list() if len(kinds := inner.split(",")) == len(value):
                return [
                    self.checked(part, element) for part, element in zip(kinds, value, strict=True)
                ]
            case "{", dict() if all(re.fullmatch("0|[1-9][0-9]*", name) for name in value):
                return {int(name): self.checked(inner, member) for name, member in value.items()}
            case "<", dict():
                return {name: self.checked(inner, member) for name, member in value.items()}
            case _, dict() if kind in FIELDS and FIELDS[kind].keys() <= {*DEFAULTS[kind], *value}:
                value = {**DEFAULTS[kind], **value}  # what is not known is ignored [PROTO-1]
                return {name: self.checked(of, value[name]) for name, of in FIELDS[kind].items()}
        raise ValueError(f"{value!r:.40} is not of type {kind}")

    # --- 1. Replay ---------------------------------------------------------------------------

    def change(self, before: Record, commit: Record, after: Record, path: str) -> Record:
        topic, protocol = after["topic"], after["protocol"]
        require(path, "META-3", topic["partitions"] >= len(before["partitions"]))
        require(path, "META-3", all(number < topic["partitions"] for number in commit["cleaned"]))
        if before["topic"]:
            has_records = any(part["end"] for part in before["partitions"])
            mirrors = bool(commit["mirror"])
            check_alteration(before["topic"], topic, has_records, mirrors, path)
        check_feature(topic, protocol, path)
        if commit["operation"] == "create":
            is_given = "given-offsets" in announced(protocol)
            require(path, "META-9", is_given or not commit["ends"])
            mirror = check_mirror(None, {**commit, "mirrored_txns": []}, protocol, path)
            return {**super().change(before, commit, after, path), "mirror": mirror}
        check_rows(commit, protocol, path)
        mirror = check_mirror(before["mirror"], commit, protocol, path)
        after = super().change(before, commit, after, path)
        for number, cleaned in commit["cleaned"].items():
            part = after["partitions"][number]
            require(path, "LOG-9", part["clean_end"] <= cleaned <= part["end"])
            part["clean_end"] = cleaned
        txns = dict(before["txns"])
        for txn in [*filter(None, [commit["txn"]]), *commit["mirrored_txns"]]:  # [MIR-3]
            last, carried_by = txns.get(txn["app_id"], [-1, None])
            require(path, "TXN-5", txn["version"] > last)
            require(path, "TXN-1", txn["previous"] in (None, carried_by))
            txns[txn["app_id"]] = [txn["version"], commit["version"]]
        return {**after, "txns": txns, "mirror": mirror}

    def check_part(self, part: str, path: str, *facts: Any) -> None:
        {
            "replaced": self.check_swap,
            "add": self.check_append,
            "log_starts": self.check_move,
            "run": self.check_run,
            "leaf": self.check_leaf,
        }[part](path, *facts)

    def check_swap(
        self, path: str, swap: Record, inputs: list[Record], outputs: list[Record]
    ) -> None:
        require(path, "SEG-10", all(s["slack"] >= 0 for s in outputs))
        require(path, "LOG-7", swap["dropped"] == totals(inputs))
        require(path, "INL-7", swap["dropped_inline"] in (None, totals(inputs, inline=True)))
        known = {s["path"] for s in inputs}
        require(path, "INL-3", all(s["path"] in known for s in outputs if "@" in s["path"]))
        require(path, "LOG-7", totals(outputs)["records"] <= totals(inputs)["records"])

    def check_append(self, path: str, added: list[Record], protocol: Record) -> None:
        """Appended segments may have holes if offsets are given [LOG-11]."""
        is_given = "given-offsets" in announced(protocol)
        require(path, "LOG-2", is_given or all(s["records"] == s["claim"] for s in added))
        inline = [s["path"] for s in added if "@" in s["path"]]
        require(path, "INL-3", all(one.startswith(f"{path}@") for one in inline))
        floors = all(s["slack"] >= 0 if is_given else s["slack"] == 0 for s in added)
        require(path, "SEG-10", floors)

    def check_move(self, path: str, move: Record, gone: list[Record]) -> None:
        require(path, "LOG-6", move["dropped"] == totals(gone))
        require(path, "INL-7", move["dropped_inline"] in (None, totals(gone, inline=True)))

    # --- 5. to 10. Objects -------------------------------------------------------------------

    def check_topic(self, topic: Record, path: str) -> None:
        """What a topic object must say by itself. `values` are the columns that are all null in a
        tombstone [REC-3]."""
        fields, key, retired = topic["fields"], topic["key"], topic["retired"]
        renamed = {field["name"] for field in fields if field["stored_as"] is not None}
        super().check_topic(topic, path)
        types = {field["name"]: field["arrow"] for field in fields}
        policy = topic["config"].get("cleanup.policy", "").split(",")
        compacts = "compact" in map(str.strip, policy)  # the one setting that is looked at [CONF-3]
        require(path, "META-1", 0 < len(types) == len(fields) and not {*types} & {*LOG_NAMES})
        require(path, "META-1", types.get("headers", HEADERS) == HEADERS)  # [TYPE-3]
        require(path, "META-1", len({*key}) == len(key) and {*key} <= {*types})
        require(path, "META-1", all(types[name].id in KEY_TYPES for name in key))
        require(path, "META-1", key or not compacts)
        free = 16
        for field in fields:
            said = field["id"] or (0 if retired else free)
            require(path, "META-6", said >= free if retired else said == free)
            free = field["ids"][-1] + 1
        last = topic["last_field_id"] or (0 if retired else free - 1)
        require(path, "META-6", last >= free - 1 if retired else last == free - 1)
        require(path, "META-7", not renamed & {*key, "headers"})
        names = [*LOG_NAMES, *(field["stored_as"] for field in fields)]
        require(path, "META-7", len({*names}) == len(names))
        require(path, "META-8", len({*names, *retired}) == len(names) + len(retired))
        values = [field for field in fields if field["name"] not in (*key, "headers")]
        topic |= {"last_field_id": last, "is_mapped": bool(renamed or retired), "values": values}
        if retired and key:  # a drop must not make tombstones of records
            is_safe = not compacts or not all(field["nullable"] for field in values)
            require(path, "META-8", values and is_safe)

    def check_entry(self, entry: Record, source: str) -> None:
        """What an entry says about itself must be possible [SEG-10]. `slack` is how far the first
        record is above floor plus shift: 0 if the segment was appended, more if a compaction has
        dropped the first ones, or if offsets were given."""
        super().check_entry(entry, source)
        base, records, groups = entry["base_offset"], entry["records"], entry["row_groups"]
        entry["claim"], entry["slack"] = entry["end_offset"] - base, 0
        require(source, "SEG-10", 0 < entry["claim"] >= records >= entry["tombstones"])
        require(source, "SEG-10", entry["size_bytes"] <= 1 << 46)
        require(source, "SEG-10", entry["shift"] >= 0)
        require(source, "SEG-10", records or groups in ([], [0]))
        if records:
            require(source, "SEG-10", entry["min_timestamp_us"] <= entry["max_timestamp_us"])
            require(source, "SEG-10", 0 < len(groups) <= records)
            require(source, "SEG-10", grow([*groups, entry["claim"]]))
            require(source, "SEG-10", records < entry["claim"] or groups[0] == 0)
        if INLINE_PATH.fullmatch(entry["path"]):
            is_plain = entry["shift"] == 0 and groups == [0] and entry["footer_checksum"] is None
            require(source, "INL-1", is_plain and records == entry["claim"])
        elif records:
            floor = int(SEGMENT_PATH.fullmatch(entry["path"])[2])
            entry["slack"] = base + groups[0] - floor - entry["shift"]

    # --- 14. The index -----------------------------------------------------------------------

    def decode_root(self, data: bytes, version: int) -> Record:
        """The root, if it does not contradict itself [ROOT-6]."""
        root, path = super().decode_root(data, version), commit_name(version, "root.json")
        topic, parts, leaves = root["topic"], root["partitions"], root["leaves"]
        for number, part in enumerate(parts):
            require(path, "SEG-10", all(e["partition"] == number for e in part["tail"]))
        if topic:
            check_feature(topic, root["protocol"], path)
        runs = Counter(run[0] for part in parts for run in part["runs"])
        tails = [entry for part in parts for entry in part["tail"]]
        require(path, "ROOT-6", len(parts) == (topic["partitions"] if topic else 0))
        require(path, "ROOT-6", topic or not (root["txns"] or root["mirror"]))
        require(path, "ROOT-6", not root["mirror"] or "mirror" in announced(root["protocol"]))
        require(path, "ROOT-6", all(commit <= version for _, commit in root["txns"].values()))
        require(path, "ROOT-6", len({leaf for leaf, _ in leaves}) == len(leaves))
        require(path, "ROOT-6", all(1 <= runs[leaf] <= n for leaf, (_, n) in enumerate(leaves)))
        require(path, "ROOT-6", len({entry["path"] for entry in tails}) == len(tails))
        require(path, "ROOT-6", all(entry["slack"] >= 0 for entry in tails))
        listed = len(tails) + sum(entries for _, entries in leaves)
        require(path, "ROOT-6", sum(part["live"]["segments"] for part in parts) <= listed)
        for part in parts:
            self.check_root_partition(part, path)
        return root

    def check_root_partition(self, part: Record, path: str) -> None:
        runs = [run for run in part["runs"] if run[2] > part["log_start"]]  # [ROOT-3]
        tiles = [{"base_offset": low, "end_offset": high} for _, low, high, _ in runs]
        tiles = sorted([*tiles, *part["tail"]], key=BY_OFFSET)
        require(path, "ROOT-6", part["clean_end"] <= part["end"])
        require(path, "ROOT-6", tiles or part["log_start"] == part["end"])
        require(path, "ROOT-6", all(one["base_offset"] < one["end_offset"] for one in tiles))
        for first in tiles[:1]:
            require(path, "ROOT-6", first["base_offset"] <= part["log_start"] < first["end_offset"])
            require(path, "ROOT-6", tile(tiles, first["base_offset"], part["end"]))
        known, known_inline = totals(part["tail"]), totals(part["tail"], inline=True)
        left = minus(part["live"], known)  # for the runs
        offsets = sum(high - low for _, low, high, _ in runs)
        require(path, "ROOT-6", left["segments"] >= len(runs) and left["size_bytes"] >= 0)
        require(path, "ROOT-6", 0 <= left["records"] <= offsets)
        require(path, "ROOT-6", runs or not any(left.values()))
        if part["inline"] is not None:
            left_inline = minus(part["inline"], known_inline)
            left_in_files = minus(left, left_inline)
            require(path, "ROOT-6", min(left_inline.values()) >= 0 <= min(left_in_files.values()))

    def load_root(self, version: int) -> Record:
        root, path = super().load_root(version), commit_name(version, "root.json")
        for part in root["partitions"]:
            live, inline = totals(part["segments"]), totals(part["segments"], inline=True)
            require(path, "ROOT-5", part.pop("live") == live)
            require(path, "ROOT-5", part.pop("inline") in (None, inline))
        require(commit_name(version), "COMMIT-11", self.is_proven(root))
        return root

    def is_proven(self, root: Record) -> bool:
        """Whether no void commit follows the root, or its own commit is still there: otherwise the
        root may be of another topic [COMMIT-11]."""
        version = root["version"]
        try:
            following = self.read_object(commit_name(version + 1))
            after = following and self.apply(root, self.decode_commit(following, version + 1))
        except Corrupt:
            return True  # it is no void commit, and replay will say what is wrong with it
        if not after or after["commit_id"] != root["commit_id"]:
            return True
        try:
            own = self.decode_commit(self.read_object(commit_name(version)), version)
        except Corrupt:
            return False
        return bool(own["commit_id"] == root["commit_id"])

    def read_inline(self, data: bytes, entry: Record, topic: Record) -> pa.Table:
        path = entry["path"].partition("@")[0]
        commit = self.decode_commit(data, int(path[-25:-5]))
        require(path, "INL-3", commit["rows"] is not None)
        check_entries_of_rows(commit, path)  # a root may have spared us the commit
        return super().read_inline(data, entry, topic)

    def check_leaf(self, path: str, table: pa.Table, entries: list[Record]) -> None:
        columns = {*table.column_names, "footer_checksum"}  # older leaves lack it
        require(path, "LEAF-1", FIELDS["segment"].keys() <= columns)
        bounds = [(e["partition"], o) for e in entries for o in (e["base_offset"], e["end_offset"])]
        require(path, "LEAF-1", bounds == sorted(bounds))

    def check_run(self, path: str, inside: list[Record], latest_us: int) -> None:
        times = [entry["max_timestamp_us"] for entry in inside if entry["records"]]
        require(path, "LEAF-3", max(times, default=latest_us) <= latest_us)
        require(path, "SEG-10", all(entry["slack"] >= 0 for entry in inside))

    # --- 15. Reads ---------------------------------------------------------------------------

    def bounds(self, state: Record) -> dict[int, tuple[int, int]]:
        """The log start and the end of each partition."""
        return {n: (part["log_start"], part["end"]) for n, part in enumerate(state["partitions"])}

    def count(self, state: Record) -> int:
        """How many records can be read. Only a segment that a log start cuts is opened."""
        found = 0
        for number, part in enumerate(state["partitions"]):
            cut = [s for s in part["segments"] if s["base_offset"] < part["log_start"]]
            found += sum(s["records"] for s in part["segments"] if s not in cut)
            for entry in cut:
                tables = self.read(state, number, part["log_start"], entry["end_offset"])
                found += sum(table.num_rows for table in tables)
        return found

    def offset_for_time(self, state: Record, partition: int, time_us: int) -> int | None:
        """The smallest offset whose timestamp is at or after a time [READ-4]."""
        part = state["partitions"][partition]
        for entry in part["segments"]:
            if entry["records"] and entry["max_timestamp_us"] >= time_us:
                start = max(entry["base_offset"], part["log_start"])
                for table in self.read(state, partition, start, entry["end_offset"]):
                    late = pc.greater_equal(table["timestamp"].cast("int64"), time_us)
                    if found := table.filter(late)["offset"].to_pylist():
                        return int(found[0])
        return None

    # --- 17. Consumer groups -----------------------------------------------------------------

    def group_state(self, group: str, topic_id: str) -> Record | None:
        """The newest state of a group that counts [GRP-3], [GRP-5]; None if there is none."""
        for number in sorted(self.numbers(f"_groups/{group}", COMMIT_NAME), reverse=True):
            path = f"_groups/{group}/{number:020d}.json"
            state = self.decode_group(self.read_object(path) or b"", number, path)
            if state["topic_id"] == topic_id:
                return state
        return None

    def decode_group(self, data: bytes, number: int, path: str) -> Record:
        state = self.decode(data, "group", path, "GRP-2")
        require(path, "GRP-2", state["number"] == number)
        owned = [one for member in state["members"].values() for one in member["owned"]]
        require(path, "GRP-12", len({*owned}) == len(owned))
        return state


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    reader = Reader(Path(sys.argv[1]))
    try:
        found = reader.open(*map(int, sys.argv[2:]))
        if found["topic"] is None or found["topic_id"] != reader.open()["topic_id"]:
            raise InvalidRequest("that version is of a topic that was deleted [READ-5]")
        for row in reader.rows(found):
            print(json.dumps(row))
    except (Refusal, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
