"""What tests are made of: a clock to move, a store that never waits, tables, files with holes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pylogtable.format.field_ids import stored_schema
from pylogtable.format.leaf import segments_of
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.paths import commit_path, parse_commit_path, segment_path
from pylogtable.format.schema import file_schema, value_columns
from pylogtable.format.tombstones import count_tombstones
from pylogtable.jobs.replace_plan import Swap, plan_swap_commit
from pylogtable.limits import Limits
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.tamper import edited

T0 = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
UTC_US = pa.timestamp("us", tz="UTC")
MOST_WAITED_SECONDS = 600

#: Settings of a topic whose small appends are files, for tests of files.
IN_FILES: dict[str, object] = {"inline.max.bytes": 0}

#: A few commits then write roots, leaves and runs.
SMALL = Limits(root_interval=4, root_grace=1, tail_max=3, leaf_max=8, merge_width=2, runs_max=3)

Row = dict[str, Any]
Opened = TypeVar("Opened", Store, Topic)

_ids = itertools.count(1)


class Clock:
    """Milliseconds since the epoch, moved by hand."""

    def __init__(self, now_ms: int = T0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def tick(self, ms: int = 1) -> int:
        self.now_ms += ms
        return self.now_ms


def clock_of_servers() -> Clock:
    """A clock that begins now. A server tells its own time, and a clock far behind is refused
    [COMMIT-12]."""
    return Clock(time.time_ns() // 1_000_000)


def runtime(clock: Callable[[], int] | None = None) -> Runtime:
    """A runtime that never waits, with ids that count up."""
    waited = 0.0

    def pause(seconds: float) -> None:
        # Patience is measured in real seconds: without this, a test would spin for all of them.
        nonlocal waited
        waited += seconds
        assert waited < MOST_WAITED_SECONDS, "give the test a clock that moves, or less patience"

    return Runtime(
        clock=clock or Clock(),
        new_id=lambda: f"{next(_ids):032x}",
        pause=pause,
        chance=lambda: 0.5,
        later=lambda work: work(),
        beside=lambda work: None,
    )


class StoreInFiles(Store):
    """A store whose topics have no records in commits, unless a topic is given the setting."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        schema: Any = None,
        key: Any = None,
        config: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Topic:
        settings = {**IN_FILES, **(config or {})}
        return super().create_topic(name, partitions, schema, key, settings, **options)


def make_store(
    objects: ObjectStore | None = None,
    clock: Callable[[], int] | None = None,
    limits: Limits | None = None,
    *,
    in_files: bool = False,
) -> Store:
    """A store whose objects age by the same clock, if they are in memory and have none yet."""
    clock = clock or Clock()
    objects = objects or MemoryStore()
    keep_time(objects, clock)
    objects = objects if limits is None else objects.with_limits(limits)
    return (StoreInFiles if in_files else Store)(objects, runtime(clock))


def limited(opened: Opened, **limits: int) -> Opened:
    """The same store or topic, opened with other limits."""
    objects = opened._store.with_limits(replace(opened._store.limits, **limits))
    if isinstance(opened, Store):
        return type(opened)(objects, opened._runtime)
    return Topic(opened.name, objects, opened._log.runtime)


def keep_time(objects: ObjectStore, clock: Callable[[], int]) -> None:
    """Let a store in memory take its time from `clock`, unless it has a clock."""
    while isinstance(inner := getattr(objects, "_inner", None), ObjectStore):
        objects = inner
    if isinstance(objects, MemoryStore) and objects._space.clock is None:
        objects._space.clock = clock


def appends_in(topic: Topic) -> int:
    """How many appends the commits of a topic have. One may have several [OFFER-4]."""
    history = topic.history().to_pylist()
    return sum(len(row["appends"]) or 1 for row in history if row["operation"] == "append")


def at(ms: float) -> datetime:
    """The moment `ms` after T0."""
    return EPOCH + timedelta(milliseconds=T0 + ms)


def kafka(
    keys: Sequence[bytes | str | None],
    values: Sequence[bytes | str | None] | None = None,
    **columns: Any,
) -> pa.Table:
    """A table of Kafka's shape; values count up unless given."""
    if values is None:
        values = [str(number).encode() for number in range(len(keys))]
    table = pa.table(
        {
            "key": pa.array([k.encode() if isinstance(k, str) else k for k in keys], pa.binary()),
            "value": pa.array(
                [v.encode() if isinstance(v, str) else v for v in values], pa.binary()
            ),
        }
    )
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def times(*ms: float | None) -> pa.Array:
    """A `timestamp` column, in milliseconds after T0."""
    return pa.array([None if m is None else at(m) for m in ms], UTC_US)


def ints(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int32())


def rows(read: pa.RecordBatchReader | pa.Table, *columns: str) -> list[Any]:
    """All rows: dicts, or values if one column is named, or tuples if several are."""
    table = read if isinstance(read, pa.Table) else read.read_all()
    if not columns:
        return table.to_pylist()
    picked = [table[name].to_pylist() for name in columns]
    return picked[0] if len(columns) == 1 else list(zip(*picked, strict=True))


def contents(objects: ObjectStore) -> dict[str, bytes | None]:
    """Every object there is."""
    return {info.key: objects.read(info.key) for info in objects.list()}


def put_back(objects: ObjectStore, backup: Mapping[str, bytes | None]) -> None:
    """Put an older state of all objects in the place of what is there."""
    for info in list(objects.list()):
        if info.key not in backup:
            objects.delete(info.key)
    for key, data in backup.items():
        assert data is not None
        objects.write(key, data)


def data_files(objects: ObjectStore) -> list[str]:
    return [info.key for info in objects.list() if "partition=" in info.key]


def write_sparse_segment(
    store: ObjectStore,
    info: TopicInfo,
    *,
    partition: int,
    base_offset: int,
    end_offset: int,
    records: Iterable[Mapping[str, Any]],
    file_id: str,
    row_group_rows: int = 4,
    append_time: bool = False,
    hashed_over: int | None = None,
) -> Segment:
    """A sealed segment that claims `[base_offset, end_offset)` and holds only `records`, dicts with
    `offset`, `timestamp` and the topic's columns: what compaction leaves behind."""
    rows = [dict(record) for record in records]
    table = pa.Table.from_pylist(rows, schema=file_schema(info.fields))
    schema = stored_schema(info)
    offsets = table["offset"].to_numpy()
    assert np.all(np.diff(offsets) > 0)
    assert not len(offsets) or base_offset <= offsets[0] <= offsets[-1] < end_offset
    path = segment_path(partition, base_offset, file_id)
    firsts = range(0, table.num_rows, row_group_rows)
    with store.open_output(path) as sink:
        with pq.ParquetWriter(sink, schema, compression="zstd", store_schema=False) as writer:
            for first in firsts:
                part = table.slice(first, row_group_rows)
                writer.write_table(pa.Table.from_arrays(part.columns, schema=schema))
        size = sink.tell()
    stamps = pc.min_max(table["timestamp"].cast(pa.int64()))
    return Segment(
        partition=partition,
        base_offset=base_offset,
        end_offset=end_offset,
        records=table.num_rows,
        size_bytes=size,
        min_timestamp_us=stamps["min"].as_py() or 0,
        max_timestamp_us=stamps["max"].as_py() or 0,
        path=path,
        row_groups=tuple(int(offsets[first]) - base_offset for first in firsts),
        tombstones=count_tombstones(table, info.key, value_columns(info)) if table.num_rows else 0,
        append_time=append_time,
        hashed_over=hashed_over,
    )


def replace_file(objects: ObjectStore, name: str, path: str, data: bytes) -> Topic:
    """Put other bytes in a segment's place, with a size that fits and without a checksum, as a
    writer that gives none would have it. Returns the topic, opened anew."""
    store = objects.below(name)
    store.write(path, data)

    def fit(commit: dict[str, Any]) -> None:
        for entry in commit.get("add", ()):
            if entry["path"] == path:
                entry["size_bytes"] = len(data)
                entry.pop("footer_checksum", None)

    for info in store.list("_manifest/"):
        if parse_commit_path(info.key) is not None:
            store.write(info.key, edited(store.read(info.key), fit))
    return make_store(objects).topic(name)


def topic_of_older_writer(
    store: Store, name: str, columns: Mapping[str, pa.DataType], partitions: int = 1
) -> Topic:
    """A topic whose columns have names that no writer gives any more [TYPE-5]."""
    made = {f"c{at}": t for at, t in enumerate(columns.values())}
    store.create_topic(name, partitions, made, config=IN_FILES)
    objects = store._store.below(name)

    def rename(commit: dict[str, Any]) -> None:
        for field, column in zip(commit["topic"]["fields"], columns, strict=True):
            field["name"] = column

    first = commit_path(0)
    objects.write(first, edited(objects.read(first), rename))
    return store.topic(name)


def make_holes(topic: Topic, kept: Container[int], row_group_rows: int = 4) -> None:
    """Leave these offsets alone, segment by segment, as compaction would."""
    for old in segments_of(topic.segments()):
        inside = topic.read(old.partition, old.base_offset, old.end_offset).read_all().to_pylist()
        new = write_sparse_segment(
            topic._store,
            topic.at().snapshot.info,
            partition=old.partition,
            base_offset=old.base_offset,
            end_offset=old.end_offset,
            records=[row for row in inside if row["offset"] in kept],
            file_id=f"sparse{old.base_offset}",
            row_group_rows=row_group_rows,
        )
        topic._log.change(
            lambda s, old=old, new=new: plan_swap_commit(s, "compact", [Swap((old,), (new,))])
        )


def fill(topic: Topic, appends: int = 4, **columns: Any) -> None:
    for number in range(appends):
        topic.append(kafka(["a", "b", f"c{number}"], [f"{number}"] * 3, **columns))


def damage(folder: Path) -> None:
    """Of all the damage there can be: a commit that is not JSON."""
    max((folder / "_manifest").glob("0*.json")).write_bytes(b"{")


def until_all_is_past(topic: Topic) -> None:
    """Wait until the store's clock is past the last commit, some milliseconds: a vacuum keeps what
    is of this very moment, whatever its retention is."""
    last_ms = topic.at().snapshot.committed_at_ms
    while topic._store.now_ms() <= last_ms:
        pass
