"""Damages objects of a topic, one mutant for each number: the same seed gives the same mutants.

A mutation of bytes is what disks and transfers do. A mutation of a JSON object, a leaf or a segment
is what a wrong program does. There the checksum is left as it was, taken away, or made to fit: a
liar that only the other rules can catch.
"""

from __future__ import annotations

import io
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.faults.mutation_bases import Base

INTEGERS = (-(2**63) - 1, -(2**63), -1, 0, 1, 2, 64, 10_001, 2**31, 2**53, 2**63 - 1, 2**63, 2**70)
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1.5,
    1e300,
    "",
    "x",
    "../x",
    "\ud800",
    [],
    {},
    [[]],
)
FITTINGS = ("stale", "removed", "fitted")


@dataclass
class Mutant:
    """A topic with a damaged object. `told` are the words for people."""

    number: int
    base: Base
    kind: str
    key: str
    objects: dict[str, bytes]
    told: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"mutant {self.number} of {self.base.name}: {self.key}: {'; '.join(self.told)}"

    def put(self, key: str, data: bytes | None) -> None:
        if data is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = data


def kind_of(key: str) -> str:
    folder, _, name = key.partition("/")
    if folder == "_groups":
        return "group" if name.endswith(".json") else "other"
    if folder != "_manifest":
        return "segment" if folder.startswith("partition=") else "other"
    if name == "_head.json":
        return "hint"
    if name.startswith("leaf-"):
        return "leaf"
    return "root" if name.endswith(".root.json") else "commit"


# --- bytes ----------------------------------------------------------------------------------


def change_bytes(rng: random.Random, made: Mutant) -> None:
    data = made.objects[made.key]
    same_kind = sorted(k for k in made.objects if kind_of(k) == made.kind and k != made.key)
    how = rng.choice(["flip", "flip", "flip", "cut", "extend", "empty", "swap", "delete", "noise"])
    if how == "flip":
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        low = footer if made.key.endswith(".parquet") and rng.random() < 0.5 and footer > 0 else 0
        new = bytearray(data)
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            at = rng.randrange(low, len(data))
            new[at] ^= rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 255])
            made.told.append(f"flipped byte {at}")
        made.put(made.key, bytes(new))
        return
    made.told.append(how)
    if how == "cut":
        made.put(made.key, data[: rng.randrange(len(data))])
    elif how == "extend":
        made.put(made.key, data + rng.choice([b"\n", b" ", b"}", b"\0" * 9, rng.randbytes(40)]))
    elif how == "noise":
        noise = [rng.randbytes(len(data)), b"\xff" + data[1:], b"[" * 100_000, b"null", b"[]"]
        made.put(made.key, rng.choice(noise))
    elif how == "swap" and same_kind:
        other = rng.choice(same_kind)
        made.told.append(f"with {other}")
        made.put(made.key, made.objects[other])
        made.put(other, data)
    else:
        made.put(made.key, b"" if how == "empty" else None)


# --- JSON -----------------------------------------------------------------------------------


def change_json(rng: random.Random, made: Mutant) -> None:
    body = json.loads(made.objects[made.key])
    for _ in range(rng.choice([1, 1, 1, 2])):
        made.told.append(_change_json(rng, body))
    made.put(made.key, encoded(rng, made, body))


def encoded(rng: random.Random, made: Mutant, body: Any) -> bytes:
    """The object's bytes, with its checksum as it was, without it, or with one that fits."""
    fitting = rng.choice(FITTINGS) if "checksum" in body or rng.random() < 0.2 else "stale"
    made.told.append(f"checksum {fitting}")
    if fitting != "stale":
        body.pop("checksum", None)
    data = json.dumps(body, separators=(",", ":")).encode()
    odd = rng.random()
    if odd < 0.03:
        made.told.append("a byte that is not UTF-8")
        data = data.replace(b'":"', b'":"\xff', 1)
    elif odd < 0.06 and body:
        name = rng.choice(list(body))
        made.told.append(f"the member {name} twice")
        data = b'{"%s":%s,' % (name.encode(), rng.choice([b"0", b"null", b'"x"'])) + data[1:]
    elif odd < 0.09:
        depth = rng.choice([99, 100, 101, 2000, 100_000])
        made.told.append(f"{depth} levels deep")
        data = b'{"unknown":' + b"[" * depth + b"]" * depth + b"," + data[1:]
    return fit_json(data) if fitting == "fitted" else data


def fit_json(data: bytes) -> bytes:
    """The object without a checksum, with one that fits [SUM-1]."""
    body = data[:-1]
    return body + b',"checksum":"%08x"}' % zlib.crc32(body)


def _change_json(rng: random.Random, body: Any) -> str:
    """Change one value somewhere in the object; what was done."""
    places = [place for place in _places(body) if place[1] != "checksum"]
    if not places:
        body["unknown"] = 0
        return "a member that is not known"
    holder, name, path = rng.choice(places)
    old = holder[name]
    how = rng.random()
    if isinstance(holder, list) and how < 0.3:
        if how < 0.1:
            holder.insert(rng.randrange(len(holder) + 1), old)
            return f"{path} twice"
        if how < 0.2 or len(holder) < 2:
            del holder[name]
            return f"{path} removed"
        other = rng.randrange(len(holder))
        holder[name], holder[other] = holder[other], old
        return f"{path} and [{other}] swapped"
    if isinstance(holder, dict) and how < 0.15:
        del holder[name]
        return f"{path} removed"
    holder[name] = _other_value(rng, old)
    return f"{path}: {json.dumps(old)[:60]} -> {json.dumps(holder[name])[:60]}"


def _places(value: Any, path: str = "") -> list[tuple[Any, Any, str]]:
    found: list[tuple[Any, Any, str]] = []
    names = value if isinstance(value, dict) else range(len(value))
    for name in names:
        here = f"{path}.{name}"
        found.append((value, name, here))
        if isinstance(value[name], dict | list):
            found += _places(value[name], here)
    return found


def _other_value(rng: random.Random, old: Any) -> Any:
    if rng.random() < 0.2:
        return rng.choice(OTHERS)
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        near = [old - 1, old + 1, old - 1, old + 1, old + 2, old // 2, old * 2, -old]
        return rng.choice([*near, *INTEGERS, float(min(old, 2**60))])
    if isinstance(old, str):
        signs = list(old) or ["a"]
        signs[rng.randrange(len(signs))] = rng.choice("0123456789abcxyz._-/\\\"'\n\0é😀")
        return rng.choice(["".join(signs), "".join(signs), old + "0", old[:-1], old * 400])
    if isinstance(old, list):
        return rng.choice([[], [*old, *old], old[::-1], old[1:], old[:-1]])
    if isinstance(old, dict):
        return rng.choice([{}, {"0": 0}, {**old, "7": 0}, {"9" * 30: 1}])
    return rng.choice([0, "x", [], {}])


# --- leaves and segments --------------------------------------------------------------------


def change_leaf(rng: random.Random, made: Mutant) -> None:
    table = pq.read_table(io.BytesIO(made.objects[made.key]))
    entries = table.to_pylist()
    for _ in range(rng.choice([1, 1, 2])):
        made.told.append(change_rows(rng, entries))
    data = _written(entries, table.schema, len(entries) or 1)
    if data is None:
        made.told.append("one column left out")
        data = _written(entries, table.schema.remove(rng.randrange(1, len(table.schema))), 1) or b""
    made.put(made.key, data)
    if rng.random() < 0.5:
        made.told.append("its roots fit")
        leaf_id = made.key.removeprefix("_manifest/leaf-").removesuffix(".parquet")
        refit_roots(made, leaf_id, data, len(entries) if rng.random() < 0.7 else None)


def refit_roots(made: Mutant, leaf_id: str, data: bytes, entries: int | None) -> None:
    """Every root that names the leaf gets its new checksum and, if given, its entry count."""
    for key in [key for key in made.objects if kind_of(key) == "root"]:
        body = json.loads(made.objects[key])
        for index, (name, _) in enumerate(body.get("leaves", [])):
            if name == leaf_id and entries is not None:
                body["leaves"][index][1] = entries
            if name == leaf_id and "leaf_checksums" in body:
                body["leaf_checksums"][index] = f"{zlib.crc32(data):08x}"
        made.put(key, refitted(body))


def refitted(body: Any) -> bytes:
    had = body.pop("checksum", None)
    data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    return data if had is None else fit_json(data)


def change_segment(rng: random.Random, made: Mutant) -> None:
    """The file is written anew with other rows, another shape of row groups, or a bomb."""
    table = pq.read_table(io.BytesIO(made.objects[made.key]))
    records, schema = table.to_pylist(), table.schema
    groups = max(1, rng.choice([len(records), len(records) // 2, 1]))
    how = rng.random()
    if how < 0.02:
        made.told.append("a value of 64 MiB that packs well")
        made.put(made.key, _bomb(table, records))
        _refit_entries(made, made.key, rng)
        return
    if how < 0.1:
        made.told.append(f"row groups of {groups}")
    elif how < 0.18:
        column = rng.randrange(len(schema))
        made.told.append(f"without column {schema.field(column).name}")
        schema = schema.remove(column)
    elif how < 0.26:
        column = rng.randrange(len(schema))
        kind = rng.choice([pa.int32(), pa.int64(), pa.string(), pa.float64(), pa.binary()])
        made.told.append(f"column {schema.field(column).name} of type {kind}")
        schema = schema.set(column, pa.field(schema.field(column).name, kind))
    else:
        for _ in range(rng.choice([1, 1, 2])):
            made.told.append(change_rows(rng, records))
        groups = rng.choice([len(records) or 1, groups])
    data = _written(records, schema, groups)
    if data is None:
        made.told.append("as far as it can be written")
        kept = [field.name for field in schema if field.type in (pa.int64(), pa.binary())]
        data = _written([], schema, 1) or _written(records, pa.schema([schema.field(0)]), 1)
        made.told.append(f"kept {kept}")
    made.put(made.key, data or b"")
    _refit_entries(made, made.key, rng)


def copy_segment(rng: random.Random, made: Mutant) -> None:
    others = [k for k in sorted(made.objects) if kind_of(k) == "segment" and k != made.key]
    if not others:
        change_bytes(rng, made)
        return
    other = rng.choice(others)
    made.told.append(f"a copy of {other}")
    made.put(made.key, made.objects[other])
    _refit_entries(made, made.key, rng)


def _refit_entries(made: Mutant, path: str, rng: random.Random) -> None:
    """The entries that name the file may be left as they are, or get its new size and checksum."""
    if rng.random() < 0.3:
        made.told.append("its entries stay")
        return
    made.told.append("its entries fit")
    data = made.objects[path]
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
    fitted = {"size_bytes": len(data), "footer_checksum": f"{zlib.crc32(footer):08x}"}
    refit(made, path, fitted, len(data) - len(made.base.objects[path]))


def refit(made: Mutant, path: str, fitted: dict[str, Any], growth: int) -> None:
    """All entries with this path get these values, if they have such, and totals grow by that many
    bytes. Checksums fit."""

    def fit(entry: Any) -> bool:
        if entry["path"] != path:
            return False
        entry.update({name: fitted[name] for name in fitted if name in entry})
        return True

    leaves: dict[str, bytes] = {}
    entries: dict[str, Any] = {}  # by leaf
    for key in [key for key in made.objects if kind_of(key) == "leaf"]:
        table = pq.read_table(io.BytesIO(made.objects[key]))
        rows = table.to_pylist()
        if found := [entry for entry in rows if fit(entry)]:
            entries[key.removeprefix("_manifest/leaf-").removesuffix(".parquet")] = found[0]
            leaves[key] = _written(rows, table.schema, len(rows)) or b""
            made.put(key, leaves[key])
    live: list[Any] = []  # the entry, while it is live: totals count its size
    named = [key for key in made.objects if kind_of(key) in ("commit", "root")]
    for key in sorted(named, key=lambda key: (key[10:30], kind_of(key))):
        body = json.loads(made.objects[key])
        if kind_of(key) == "commit":
            live = _fit_commit(body, live, fit, growth)
        else:
            _fit_root(body, entries, fit, growth)
        made.put(key, refitted(body))
    for key, new in leaves.items():
        leaf_id = key.removeprefix("_manifest/leaf-").removesuffix(".parquet")
        refit_roots(made, leaf_id, new, None)


def _fit_commit(body: Any, live: list[Any], fit: Callable[[Any], bool], growth: int) -> list[Any]:
    for entry in live:
        moves = [(r["start"], r["end"], r) for r in body.get("replaced", [])]
        moves += [(0, move["offset"], move) for move in body.get("log_starts", [])]
        for low, high, move in moves:
            same = move["partition"] == entry["partition"]
            if same and low <= entry["base_offset"] and entry["end_offset"] <= high:
                dropped = move.setdefault("dropped", {})
                dropped["size_bytes"] = dropped.get("size_bytes", 0) + growth
                live = []
    added = [entry for entry in body.get("add", []) if fit(entry)]
    return added or ([] if body["operation"] == "delete_topic" else live)


def _fit_root(body: Any, entries: dict[str, Any], fit: Callable[[Any], bool], growth: int) -> None:
    for number, part in enumerate(body.get("partitions", [])):
        live = sum(fit(entry) for entry in part.get("tail", []))
        for leaf, low, high, _ in part.get("runs", []):
            entry = entries.get(body["leaves"][leaf][0])
            if entry is not None and entry["partition"] == number:
                inside = low <= entry["base_offset"] < high
                live += inside and entry["end_offset"] > part.get("log_start", 0)
        if live:
            part["live"]["size_bytes"] += growth


def change_rows(rng: random.Random, rows: list[dict[str, Any]]) -> str:
    how = rng.random()
    if not rows:
        return "nothing to change"
    at = rng.randrange(len(rows))
    if how < 0.15:
        del rows[at]
        return f"row {at} removed"
    if how < 0.3:
        rows.insert(rng.randrange(len(rows) + 1), dict(rows[at]))
        return f"row {at} twice"
    if how < 0.4:
        other = rng.randrange(len(rows))
        rows[at], rows[other] = rows[other], rows[at]
        return f"rows {at} and {other} swapped"
    if how < 0.5 and "offset" in rows[0]:
        by = rng.choice([-1, 1, 2, 1000, -1000])
        for row in rows:
            row["offset"] = (row["offset"] or 0) + by
        return f"all offsets moved by {by}"
    name = rng.choice(sorted(rows[at]))
    if how > 0.8:
        name = next((n for n in ("offset", "end_offset") if n in rows[at]), name)
    old = rows[at][name]
    rows[at][name] = _other_cell(rng, old)
    return f"row {at}, {name}: {old!r:.40} -> {rows[at][name]!r:.40}"


def _other_cell(rng: random.Random, old: Any) -> Any:
    if isinstance(old, bool):
        return not old
    if isinstance(old, datetime):
        return old + timedelta(microseconds=rng.choice([-1, 1, -(10**6), 10**6, 10**15]))
    if isinstance(old, int):
        return rng.choice([old - 1, old + 1, old + 2, 0, -1, -old, 2**31 - 1, None])
    if isinstance(old, str):
        return _other_value(rng, old)
    if isinstance(old, list):
        return rng.choice([[], [*old, *old], old[::-1], [1], [0, 1], None])
    return rng.choice([b"", old + b"0", old[::-1], None]) if isinstance(old, bytes) else None


def _bomb(table: pa.Table, records: list[dict[str, Any]]) -> bytes:
    field = next((f for f in table.schema if f.type in (pa.binary(), pa.string())), None)
    if field is None or not records:
        return b""
    records[0][field.name] = b"\0" * 2**26 if field.type == pa.binary() else "0" * 2**26
    return _written(records, table.schema, len(records)) or b""


def _written(rows: list[dict[str, Any]], schema: pa.Schema, row_group_size: int) -> bytes | None:
    """A Parquet file of these rows; None if they do not fit the schema."""
    sink = io.BytesIO()
    try:
        if any(not field.nullable for field in schema):
            _check_no_nulls(rows, schema)
        pq.write_table(
            pa.Table.from_pylist(rows, schema=schema),
            sink,
            row_group_size=row_group_size,
            compression="zstd",
            store_schema=False,
            write_page_checksum=True,
        )
    except (pa.ArrowException, OverflowError, TypeError, ValueError, OSError):
        return None
    return sink.getvalue()


def _check_no_nulls(rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    required = [field.name for field in schema if not field.nullable]
    if any(row.get(name) is None for row in rows for name in required):
        raise ValueError("a required value is null")
