"""Reads published Iceberg tables with pyiceberg, for tests; or hides pyiceberg."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import StaticTable

from pylogtable import Topic

ORDER = [("partition", "ascending"), ("offset", "ascending")]


def open_table(folder: Path, number: int | None = None) -> StaticTable:
    """The table in a topic's folder, at its newest metadata file or at another."""
    metadata = folder / "metadata"
    chosen = (metadata / "version-hint.text").read_text() if number is None else str(number)
    return StaticTable.from_metadata(str(metadata / f"v{chosen}.metadata.json"))


def numbers_of(folder: Path) -> list[int]:
    """The numbers of the metadata files, in order."""
    names = (path.name for path in (folder / "metadata").glob("v*.metadata.json"))
    return sorted(int(name[1:].partition(".")[0]) for name in names)


def rows(found: pa.Table, schema: pa.Schema) -> list[dict[str, Any]]:
    """All rows in partition and offset order. Iceberg has fewer types than a topic."""
    assert found.column_names == schema.names
    return found.cast(_nullable(schema)).sort_by(ORDER).to_pylist()


def expected_rows(topic: Topic, version: int) -> tuple[pa.Schema, list[dict[str, Any]]]:
    table = topic.read(version=version).read_all().sort_by(ORDER)
    return table.schema, table.to_pylist()


def check_newest(topic: Topic, folder: Path) -> None:
    """pyiceberg reads what the newest version of the topic has, by the number in the hint."""
    assert int((folder / "metadata" / "version-hint.text").read_text()) == numbers_of(folder)[-1]
    check_rows(topic, folder)


def check_rows(topic: Topic, folder: Path) -> None:
    schema, expected = expected_rows(topic, topic.version)
    assert rows(open_table(folder).scan().to_arrow(), schema) == expected


def metadata(folder: Path, number: int) -> Path:
    return folder / "metadata" / f"v{number}.metadata.json"


def with_state(path: Path, **fields: object) -> None:
    body = json.loads(path.read_text())
    summary = body["snapshots"][-1]["summary"]
    state = json.loads(summary["pylogtable.state"]) | fields
    summary["pylogtable.state"] = json.dumps(state)
    path.write_text(json.dumps(body))


def places_added(table: StaticTable, snapshot: Any) -> list[tuple[int, int]]:
    """Partition and offset of every record in the files that a snapshot added."""
    found = []
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            if entry.status == ManifestEntryStatus.ADDED:
                with table.io.new_input(entry.data_file.file_path).open() as source:
                    offsets = pq.read_table(source, columns=["offset"])["offset"]
                number = entry.data_file.partition[0]
                found += [(number, offset) for offset in offsets.to_pylist()]
    return found


def hide_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, pyiceberg cannot be imported, as if it was not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == "pyiceberg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])
