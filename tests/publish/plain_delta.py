"""A Delta reader of a few lines, for what the engines cannot be asked: single entries of the log.

It reads files as they are, as an engine does: it knows nothing of shifts and log starts.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from pylogtable import Topic
from pylogtable.storage.base import ObjectStore

Entry = list[dict[str, Any]]


def entries(folder: ObjectStore) -> list[Entry]:
    """The log entries of the table in a topic's folder, oldest first."""
    keys = [info.key for info in folder.list("_delta_log/") if info.key.endswith(".json")]
    return [[json.loads(line) for line in _read(folder, key).splitlines()] for key in keys]


def _read(folder: ObjectStore, key: str) -> bytes:
    data = folder.read(key)
    assert data is not None, f"{key} is shown, but it is not there"
    return data


def action(entry: Entry, name: str) -> Any:
    return next((line[name] for line in entry if name in line), None)


def actions(entry: Entry, name: str) -> list[dict[str, Any]]:
    return [line[name] for line in entry if name in line]


def shown_version(entry: Entry) -> int:
    """The version of the topic that an entry shows."""
    return int(action(entry, "txn")["version"])


def files_at(log: list[Entry]) -> list[str]:
    """The files that the table shows after these entries."""
    return list(vectors_at(log))


def vectors_at(log: list[Entry]) -> dict[str, Any]:
    """The deletion vector of each file that the table shows after these entries, or None."""
    shown: dict[str, Any] = {}
    for entry in log:
        for gone in actions(entry, "remove"):
            assert gone["path"] in shown, f"{gone['path']} is removed, but it is not there"
            vector = shown.pop(gone["path"])
            assert gone.get("deletionVector") == vector, "it is removed with another vector"
        for new in actions(entry, "add"):
            assert new["path"] not in shown, f"{new['path']} is added twice"
            shown[new["path"]] = vector = new.get("deletionVector")
            assert json.loads(new["stats"]).get("tightBounds") is (False if vector else None)
    return shown


def hidden(folder: ObjectStore, vector: Any) -> list[int]:
    """The rows in a deletion vector, read as Delta's protocol describes it."""
    if vector is None:
        return []
    size, place = vector["sizeInBytes"], vector["pathOrInlineDv"]
    if vector["storageType"] == "i":
        data = _base85(place)[:size]
    else:
        prefix, name = place[:-20], uuid.UUID(bytes=_base85(place[-20:]))
        stored = _read(folder, f"{prefix}/deletion_vector_{name}.bin")
        assert stored[0] == 1
        at = vector["offset"]
        data = stored[at + 4 : at + 4 + size]
        frame = stored[at : at + 4] + stored[at + 4 + size : at + 8 + size]
        assert struct.unpack(">II", frame) == (size, zlib.crc32(data))
    assert struct.unpack("<I", data[:4]) == (1681511377,)
    rows = list(BitMap64.deserialize(data[4:]))
    assert len(rows) == vector["cardinality"]
    return rows


def _base85(text: str) -> bytes:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    blocks = [text[at : at + 5] for at in range(0, len(text), 5)]
    values = (sum(digits.index(d) * 85 ** (4 - n) for n, d in enumerate(one)) for one in blocks)
    return b"".join(struct.pack(">I", value) for value in values)


def places(folder: ObjectStore, paths: list[str]) -> list[tuple[int, int]]:
    """Partition and offset of every record in these files, sorted."""
    found = []
    for path in paths:
        file = pa.BufferReader(_read(folder, path))
        offsets = pq.read_table(file, columns=["offset"])["offset"]
        partition = int(path.split("/")[0].partition("=")[2])
        found += [(partition, offset) for offset in offsets.to_pylist()]
    return sorted(found)


def rows(folder: ObjectStore, log: list[Entry], schema: pa.Schema) -> list[dict[str, Any]]:
    """All rows after these entries, in partition and offset order, with the table's names."""
    metadata = next(m for entry in reversed(log) if (m := action(entry, "metaData")))
    stored = {
        field["name"]: field["metadata"].get("delta.columnMapping.physicalName", field["name"])
        for field in json.loads(metadata["schemaString"])["fields"]
    }
    tables = []
    for path, vector in vectors_at(log).items():
        found = pq.read_table(pa.BufferReader(_read(folder, path)))
        gone = hidden(folder, vector)
        assert all(row < found.num_rows for row in gone)
        if gone:
            found = found.filter(pa.array([row not in {*gone} for row in range(found.num_rows)]))
        partition = int(path.split("/")[0].partition("=")[2])
        columns = [
            pa.nulls(found.num_rows, field.type)
            if field.name != "partition" and stored[field.name] not in found.column_names
            else pa.repeat(partition, found.num_rows).cast(field.type)
            if field.name == "partition"
            else found[stored[field.name]].cast(field.type)
            for field in schema
        ]
        tables.append(pa.table(columns, schema=schema))
    if not tables:
        return []
    order = [("partition", "ascending"), ("offset", "ascending")]
    return pa.concat_tables(tables).sort_by(order).to_pylist()


def check_table(topic: Topic, folder: ObjectStore) -> list[Entry]:
    """Every entry of the table shows exactly the version of the topic that it names."""
    log = entries(folder)
    for number, entry in enumerate(log):
        order = [("partition", "ascending"), ("offset", "ascending")]
        expected = topic.read(version=shown_version(entry)).read_all().sort_by(order)
        assert rows(folder, log[: number + 1], expected.schema) == expected.to_pylist()
    return log


def check_newest(topic: Topic, folder: Path) -> None:
    """delta-rs reads what the newest version of the topic has."""
    columns = ["partition", "offset", "k", "v"]
    found = deltalake.DeltaTable(folder).to_pyarrow_table(columns=columns).sort_by("offset")
    assert found.to_pylist() == topic.read(columns=columns).read_all().to_pylist()


def entry(log: Path, number: int) -> Path:
    return log / f"{number:020d}.json"


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the actions of an entry."""
    changed = [json.loads(line) for line in path.read_text().splitlines()]
    for line in changed:
        change(line)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in changed))


def with_state(path: Path, **fields: object) -> None:
    def change(line: dict[str, Any]) -> None:
        if "commitInfo" in line:
            line["commitInfo"]["pylogtable"] |= fields

    edit(path, change)
