"""Where a golden topic is made, and words for its records and for what a reader must find."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from pylogtable.format.model import COMBINED_APPENDS, INLINE_BATCHES, Change
from pylogtable.format.paths import group_path
from pylogtable.format.snapshot import Snapshot
from pylogtable.runtime import Runtime
from pylogtable.storage.local import LocalStore
from pylogtable.store import Store
from pylogtable.topic import Topic

T0_MS = 1_700_000_000_000
T0_US = T0_MS * 1000
UTC_US = pa.timestamp("us", tz="UTC")

Row = dict[str, Any]


class EarlierStore(Store):
    """Creates topics as the releases did that knew no records in commits and no combined appends,
    unless the setting is given [INL-5], [OFFER-1]."""

    def _create(self, name: str, plan: Callable[[Snapshot | None, str], Change]) -> Topic:
        def plan_earlier(snapshot: Snapshot | None, url: str) -> Change:
            change = plan(snapshot, url)
            assert change.topic is not None
            assert change.protocol is not None
            newer = set()
            if "inline.max.bytes" not in change.topic.config:
                newer.add(INLINE_BATCHES)
            if "combined.appends" not in change.topic.config:
                newer.add(COMBINED_APPENDS)
            protocol = change.protocol
            return replace(
                change,
                protocol=replace(
                    protocol,
                    reader_features=tuple(f for f in protocol.reader_features if f not in newer),
                    writer_features=tuple(f for f in protocol.writer_features if f not in newer),
                ),
            )

        return super()._create(name, plan_earlier)


@dataclass
class Place:
    """Where one case is made, with its own clock and ids."""

    folder: Path
    now_ms: int = T0_MS
    ids: count[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        runtime = Runtime(clock=lambda: self.now_ms, new_id=lambda: f"{next(self.ids):08x}")
        self.runtime = runtime
        self.store = EarlierStore(LocalStore(self.folder), runtime)

    @property
    def topic_folder(self) -> Path:
        return self.folder / "topic"

    def tick(self, ms: int = 1000) -> None:
        self.now_ms += ms

    def open(self) -> Topic:
        return self.store.topic("topic")

    def manifest(self, name: str) -> Path:
        return self.topic_folder / "_manifest" / name

    def group(self, group: str, number: int) -> Path:
        return self.topic_folder / group_path(group, number)

    def case(self, description: str, rules: Iterable[str], **more: object) -> None:
        body = {"description": description, "rules": sorted(rules), **more}
        _write_json(self.folder / "case.json", body)

    def expect(self, **body: object) -> None:
        _write_json(self.folder / "expected.json", body)


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def at(start: dict[int, int], end: dict[int, int], rows: Iterable[Row], **more: object) -> Row:
    """What a reader must find at one version."""
    return {"start_offsets": start, "end_offsets": end, "rows": [neutral(r) for r in rows], **more}


def neutral(value: Any) -> Any:
    """A value as expected.json writes it: bytes in hex, decimals and dates as text, a map as a list
    of pairs."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: neutral(part) for name, part in value.items()}
    if isinstance(value, list | tuple):  # a pair of a map is a tuple
        return [neutral(part) for part in value]
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, date) else value


def placed(partition: int, first_offset: int, rows: Iterable[Row]) -> list[Row]:
    """The rows as a reader sees them when they begin at this offset of the partition."""
    return [
        {"partition": partition, "offset": first_offset + index, **row}
        for index, row in enumerate(rows)
    ]


def kafka(rows: Iterable[Row], *, partition: int | None = None) -> pa.Table:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    types = {"timestamp": UTC_US, "key": pa.binary(), "value": pa.binary(), "headers": headers}
    return table_of(rows, types, partition)


def record(us: int, key: bytes | None, value: bytes | None, headers: Any = None) -> Row:
    return {"timestamp": T0_US + us, "key": key, "value": value, "headers": headers}


def table_of(rows: Iterable[Row], types: dict[str, pa.DataType], partition: int | None) -> pa.Table:
    rows = list(rows)
    if partition is not None:
        rows = [{**row, "partition": partition} for row in rows]
        types = {**types, "partition": pa.int32()}
    return pa.Table.from_pylist(rows, schema=pa.schema(list(types.items())))


def _write_json(path: Path, body: object) -> None:
    text = json.dumps(body, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def change_object(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest object as no writer would. It loses its checksum, which would differ."""
    body = json.loads(path.read_bytes())
    body.pop("checksum", None)
    change(body)
    path.write_bytes(json.dumps(body, separators=(",", ":")).encode())


def small(place: Place) -> list[Row]:
    topic = place.store.create_topic("topic", partitions=1)
    rows = [record(n, b"k", b"v%d" % n) for n in range(4)]
    for start in (0, 2):
        place.tick()
        topic.append(kafka(rows[start : start + 2]))
    return placed(0, 0, rows)
