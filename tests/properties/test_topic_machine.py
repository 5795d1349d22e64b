"""A topic compared with a plain list of rows after any sequence of operations, also maintenance.

The index is made small, so that a few dozen commits already write roots, fold leaves and merge
them; in some runs row groups, chunks and batches are a few rows, too.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from pylogtable.append.stager import Staged
from pylogtable.engine import Compaction, plan_append
from pylogtable.errors import (
    CommitConflictError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    SchemaMismatchError,
)
from pylogtable.format.leaf import segments_of
from pylogtable.format.model import Segment
from pylogtable.format.partition_state import inline_of
from pylogtable.format.partitioner import partition_for
from pylogtable.format.paths import parse_commit_path
from pylogtable.jobs.replace_plan import Swap, plan_swap_commit
from pylogtable.storage.memory import MemoryStore
from pylogtable.topic import Topic
from tests.builders import EPOCH, SMALL, T0, UTC_US, Clock, Row, make_store, write_sparse_segment
from tests.depth import rounds
from tests.reference import dump, reference_reader

DAY_MS = 86_400_000
KEYS = [b"a", b"b", b"c", b"dd", b"", b"\xff\x00"]
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NO_VALUES = ["key", "headers"]
#: Names of a column that is added, renamed and dropped again and again.
NUMBER_NAMES = ["n", "N", "m"]
#: Fewer than a row group has, so that row groups are read in several batches.
BATCH_ROWS = 2
POLICIES = ["delete", "compact", "compact,delete"]

TINY_FILES = replace(
    SMALL, row_group_rows=3, chunk_rows=5, batch_rows=BATCH_ROWS, key_lookup_rows=2
)


def murmur2(data: bytes) -> int:
    """Kafka's hash, written a second time, independently of the library."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def us(moment_ms: int) -> Any:
    return EPOCH + timedelta(milliseconds=moment_ms)


@dataclass(frozen=True)
class Log:
    """One partition of the model; what lies below `log_start` is forgotten."""

    log_start: int = 0
    end: int = 0
    rows: tuple[Row, ...] = ()

    def between(self, start: int, end: int) -> list[Row]:
        return [row for row in self.rows if start <= row["offset"] < end]


@dataclass(frozen=True)
class State:
    """The topic of the model at one version. Rows of the model have their values by what a column
    is, whatever it is called; `columns` has that for each name."""

    logs: tuple[Log, ...]
    columns: dict[str, str]
    committed_ms: int
    operation: str

    def shown(self, row: Row, names: Sequence[str]) -> Row:
        return {name: row.get(self.columns.get(name, name)) for name in names}

    @property
    def number_column(self) -> str | None:
        """The name of the one column that is not Kafka's."""
        return next((name for name in self.columns if name in NUMBER_NAMES), None)


@dataclass
class Pending:
    """Rows that are staged but not committed; partition None if the library chooses it."""

    rows: list[Row]
    staged: Staged
    at_ms: int
    null_keys: bool = field(default=False)


@st.composite
def written(draw: st.DrawFn) -> dict[str, Any]:
    """What to append, except for partition numbers, which depend on the topic."""
    count = draw(st.integers(0, 9))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    headers = st.none() | st.lists(
        st.tuples(st.sampled_from(["h", "g"]), st.none() | st.binary(max_size=2)), max_size=2
    )
    keys = st.sampled_from(KEYS)
    return {
        "keys": column(keys | st.none() if draw(st.booleans()) else keys),
        "tombstone": column(st.booleans()),
        "timestamps": column(st.none() | st.integers(-60, 60)) if draw(st.booleans()) else None,
        "headers": column(headers) if draw(st.booleans()) else None,
        "partitions": column(st.none() | st.integers(0, 9)) if draw(st.booleans()) else None,
        "numbers": column(st.none() | st.integers(-9, 9)) if draw(st.booleans()) else None,
        "cut": draw(st.integers(0, count)),
    }


class TopicMachine(RuleBasedStateMachine):
    @initialize(
        partitions=st.integers(1, 3),
        policy=st.sampled_from(POLICIES),
        tiny_files=st.booleans(),
        cached=st.sampled_from([1, 16]),
        number=st.none() | st.sampled_from(NUMBER_NAMES),
        begin=st.sampled_from([0, 0, 7]),
        inline=st.sampled_from([0, 600, 16384]),
    )
    def create(
        self,
        partitions: int,
        policy: str,
        tiny_files: bool,
        cached: int,
        number: str | None,
        begin: int,
        inline: int,
    ) -> None:
        self.small_batches = tiny_files and not inline  # a batch of a commit may be larger
        self.clock = Clock()
        limits = replace(TINY_FILES if tiny_files else SMALL, leaves_cached=cached)
        self.objects = MemoryStore().with_limits(limits)
        self.store = make_store(self.objects, self.clock)
        self.serial = itertools.count()
        self.config = {"cleanup.policy": policy, "inline.max.bytes": str(inline)}
        first = self.store.create_topic(
            "t", partitions=partitions, config=self.config, start_offsets={0: begin}
        )
        if number is not None:
            first.alter(add_columns={number: pa.int32()})
        self.handles = [first, self.store.topic("t")]
        self.below = self.objects.below("t")
        self.wide = False
        self.dropped = False
        self.txns: dict[str, dict[int, Any]] = {"x": {}, "y": {}}
        self.pending: list[Pending] = []
        self.given: Pending | None = None
        self.clean_ends: dict[int, int] = {}
        self.horizons: dict[tuple[int, int], int] = {}
        self.kept_from = 0
        self.lost_commits: set[int] = set()
        self.states = [
            State(
                (Log(begin, begin), *[Log()] * (partitions - 1)),
                {name: name for name in ("key", "value", "headers")},
                self.clock.now_ms,
                "create",
            )
        ]
        if number is not None:
            self.commit("alter", columns={**self.now.columns, number: "first number"})

    def teardown(self) -> None:
        if hasattr(self, "states"):
            self.check_that_everything_is_small()
            self.compare_with_the_reference_reader()

    def check_that_everything_is_small(self) -> None:
        """Otherwise this tests less than it says."""
        newest = self.store.topic("t").at()
        if newest.version >= SMALL.root_interval + SMALL.root_grace:
            # The newest state need not begin there: the hint may be wrong.
            assert any(info.key.endswith(".root.json") for info in self.below.list("_manifest/"))
        if self.objects.limits.row_group_rows == TINY_FILES.row_group_rows:
            for file in segments_of(newest.segments()):
                if not file.is_inline and "sparse" not in file.path:
                    assert file.records <= TINY_FILES.row_group_rows * len(file.row_groups)

    def compare_with_the_reference_reader(self) -> None:
        """It replays every commit from the first on, without roots, leaves and hint."""
        with TemporaryDirectory() as folder:
            reader = reference_reader().Reader(dump(self.below, Path(folder)))
            for version in {self.kept_from, len(self.states) - 1}:
                expected, state = self.states[version], reader.open(version)
                logs = dict(enumerate(expected.logs))
                assert reader.bounds(state) == {
                    n: (log.log_start, log.end) for n, log in logs.items()
                }
                names = ["partition", "offset", "timestamp", *expected.columns]
                for number, log in logs.items():
                    tables = reader.read(state, number)
                    found = [row for table in tables for row in table.to_pylist()]
                    assert found == [expected.shown(row, names) for row in log.rows]
                records = sum(len(log.rows) for log in logs.values())
                assert reader.count(state) == records

    # --- the model ---

    @property
    def now(self) -> State:
        return self.states[-1]

    @property
    def compacted(self) -> bool:
        return "compact" in self.config["cleanup.policy"]

    def commit(self, operation: str, **changes: Any) -> None:
        committed = max(self.clock.now_ms, self.now.committed_ms + 1)
        self.states.append(
            replace(self.now, committed_ms=committed, operation=operation, **changes)
        )

    def shaped(self, spec: dict[str, Any]) -> tuple[pa.Table, list[Row]]:
        """The table to append and the rows it should become."""
        by_append_time = self.config.get("message.timestamp.type") == "LogAppendTime"
        count = len(self.now.logs)
        number_column = self.now.number_column
        rows: list[Row] = []
        explicit: list[int | None] = []
        for number, key in enumerate(spec["keys"]):
            asked = spec["partitions"] and spec["partitions"][number]
            partition = None if asked is None else asked % count
            explicit.append(partition)
            if partition is None and key is not None:
                partition = (murmur2(key) & 0x7FFFFFFF) % count
            value = f"v{next(self.serial)}".encode()
            if key is not None and spec["tombstone"][number]:
                value = None  # type: ignore[assignment]
            given = spec["timestamps"] and spec["timestamps"][number]
            by_clock = given is None or by_append_time
            stamp = us(self.clock.now_ms if by_clock else T0 + given)
            headers = spec["headers"] and spec["headers"][number]
            numbers = spec["numbers"] if number_column is not None else None
            row = {
                "partition": partition,
                "timestamp": stamp,
                "timestampType": int(by_append_time),
                "key": key,
                "value": value,
                "headers": None
                if headers is None
                else [{"key": name, "value": v} for name, v in headers],
                self.now.columns.get(number_column or "", ""): numbers and numbers[number],
            }
            rows.append(row)
        columns = {
            "key": pa.array([row["key"] for row in rows], pa.binary()),
            "value": pa.array([row["value"] for row in rows], pa.binary()),
        }
        if spec["headers"] is not None:
            columns["headers"] = pa.array([row["headers"] for row in rows], HEADERS_TYPE)
        if spec["timestamps"] is not None:
            stamps = [None if ms is None else us(T0 + ms) for ms in spec["timestamps"]]
            columns["timestamp"] = pa.array(stamps, UTC_US)
        if spec["partitions"] is not None:
            columns["partition"] = pa.array(explicit, pa.int32())
        if number_column is not None and spec["numbers"] is not None:
            wide = pa.int64() if self.wide else pa.int16()
            columns[number_column] = pa.array(spec["numbers"], wide)
        return pa.table(columns), rows

    def place(self, rows: Sequence[Row], offsets: dict[int, tuple[int, int]]) -> None:
        """Append to the model, and compare with the offsets that the library returned."""
        loose = [row for row in rows if row["partition"] is None]
        if loose:
            where = {}
            for number, (start, end) in offsets.items():
                part = self.handles[0].read(number, start, end, columns=["value"]).read_all()
                where.update(dict.fromkeys(part["value"].to_pylist(), number))
            for row in loose:
                row["partition"] = where[row["value"]]
        logs = list(self.now.logs)
        firsts: dict[int, int] = {}
        for row in rows:
            log = logs[row["partition"]]
            placed = {"offset": log.end, **row}
            firsts.setdefault(row["partition"], placed["offset"])
            end = placed["offset"] + 1
            logs[row["partition"]] = Log(log.log_start, end, (*log.rows, placed))
        assert offsets == {number: (first, logs[number].end) for number, first in firsts.items()}
        self.commit("append", logs=tuple(logs))

    # --- what changes the topic ---

    @rule(which=st.integers(0, 1), spec=written(), batches=st.booleans())
    def append(self, which: int, spec: dict[str, Any], batches: bool) -> None:
        table, rows = self.shaped(spec)
        data: Any = table
        if batches:
            cut = spec["cut"]
            data = [*table.slice(0, cut).to_batches(), *table.slice(cut).to_batches()]
        if self.compacted and any(row["key"] is None for row in rows):
            with pytest.raises(InvalidRequestError, match="without a key"):
                self.handles[which].append(data)
            return
        result = self.handles[which].append(data)
        assert result.records == len(rows)
        if rows:
            self.place(rows, result.offsets)
        assert result.version == len(self.states) - 1
        assert not result.repeated

    @rule(which=st.integers(0, 1), specs=st.lists(written(), min_size=3, max_size=6))
    def append_often(self, which: int, specs: list[dict[str, Any]]) -> None:
        """Enough appends for roots, leaves and runs."""
        for spec in specs:
            self.append(which, spec, batches=False)
            which = 1 - which

    @rule(
        which=st.integers(0, 1),
        app=st.sampled_from(["x", "y"]),
        version=st.integers(0, 12),
        spec=written(),
    )
    def append_with_txn(self, which: int, app: str, version: int, spec: dict[str, Any]) -> None:
        known = self.txns[app]
        table, rows = self.shaped(spec)
        handle = self.handles[which]
        # What a search visits: it goes back from the last txn to the first that is not later.
        later = [number for number in known if number > version]
        before = [max((n for n in known if n <= version), default=version)]
        visited = [known[number][0] for number in (*later, *before) if number in known]
        if known and version <= max(known) and self.lost_commits & set(visited):
            with pytest.raises(InvalidRequestError, match="no longer known"):
                handle.append(table, txn=(app, version))
        elif version in known:
            first_version, first_offsets = known[version]
            again = handle.append(table, txn=(app, version))
            assert again.repeated
            assert (again.version, again.offsets) == (first_version, first_offsets)
        elif known and version < max(known):
            with pytest.raises(InvalidRequestError, match="never applied"):
                handle.append(table, txn=(app, version))
        elif self.compacted and any(row["key"] is None for row in rows):
            with pytest.raises(InvalidRequestError, match="without a key"):
                handle.append(table, txn=(app, version))
        else:
            result = handle.append(table, txn=(app, version))
            self.place(rows, result.offsets)
            known[version] = result.version, result.offsets

    @rule(which=st.integers(0, 1), spec=written())
    def stage(self, which: int, spec: dict[str, Any]) -> None:
        """The first half of an append; other operations may come before the second."""
        table, rows = self.shaped(spec)
        has_null = any(row["key"] is None for row in rows)
        if self.compacted and has_null:
            return
        staged = plan_append(self.handles[which]).stage(table)
        self.pending.append(Pending(rows, staged, self.clock.now_ms, has_null))

    @precondition(lambda self: self.pending)
    @rule(which=st.integers(0, 1))
    def commit_staged(self, which: int) -> None:
        parts, self.pending = self.pending, []
        handle = self.handles[which]
        staged = [part.staged for part in parts]
        rows = [row for part in parts for row in part.rows]
        if not rows:
            assert plan_append(handle, refresh=False).commit(staged).records == 0
        elif self.clock.now_ms - min(part.at_ms for part in parts) > 7 * DAY_MS // 2:
            with pytest.raises(CommitConflictError, match="vacuum may have removed"):
                plan_append(handle, refresh=False).commit(staged)
        elif self.compacted and any(part.null_keys for part in parts):
            with pytest.raises(InvalidRequestError, match="became compacted"):
                plan_append(handle, refresh=False).commit(staged)
        else:
            self.place(rows, plan_append(handle, refresh=False).commit(staged).offsets)

    def with_offsets(self, spec: dict[str, Any], gaps: list[int]) -> tuple[pa.Table, list[Row]]:
        """Rows that bring their partitions and offsets, and keep their timestamps."""
        count = len(spec["keys"])
        asked = [number or 0 for number in spec["partitions"] or [0] * count]
        table, rows = self.shaped({**spec, "partitions": asked})
        ends = [log.end for log in self.now.logs]
        for at, row in enumerate(rows):
            row["offset"] = ends[row["partition"]] + gaps[at % len(gaps)]
            ends[row["partition"]] = row["offset"] + 1
            given = spec["timestamps"] and spec["timestamps"][at]
            if given is not None:
                row["timestamp"] = us(T0 + given)
        offsets = pa.array([row["offset"] for row in rows], pa.int64())
        return table.append_column("offset", offsets), rows

    @rule(
        which=st.integers(0, 1),
        spec=written(),
        gaps=st.lists(st.sampled_from([0, 0, 0, 1, 5]), min_size=1, max_size=4),
    )
    def append_with_given_offsets(self, which: int, spec: dict[str, Any], gaps: list[int]) -> None:
        table, rows = self.with_offsets(spec, gaps)
        handle = self.handles[which]
        if self.compacted and any(row["key"] is None for row in rows):
            with pytest.raises(InvalidRequestError, match="without a key"):
                handle.append(table, keep_offsets=True)
            return
        result = handle.append(table, keep_offsets=True)
        if rows:
            self.place(rows, result.offsets)
            with pytest.raises(CommitConflictError, match="the end of the partition is"):
                handle.append(table, keep_offsets=True)

    @rule(
        which=st.integers(0, 1),
        spec=written(),
        gaps=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    )
    def stage_with_given_offsets(self, which: int, spec: dict[str, Any], gaps: list[int]) -> None:
        table, rows = self.with_offsets(spec, gaps)
        has_null = any(row["key"] is None for row in rows)
        if rows and not (self.compacted and has_null):
            staged = plan_append(self.handles[which], keep_offsets=True).stage(table)
            self.given = Pending(rows, staged, self.clock.now_ms, has_null)

    @precondition(lambda self: self.given)
    @rule(which=st.integers(0, 1))
    def commit_given_offsets(self, which: int) -> None:
        """The ends may have moved since, up to the first of them or beyond."""
        assert self.given is not None
        part, self.given = self.given, None
        firsts = {row["partition"]: row["offset"] for row in reversed(part.rows)}
        if self.clock.now_ms - part.at_ms > 7 * DAY_MS // 2:
            with pytest.raises(CommitConflictError, match="vacuum may have removed"):
                plan_append(self.handles[which], refresh=False).commit([part.staged])
        elif any(offset < self.now.logs[number].end for number, offset in firsts.items()):
            with pytest.raises((CommitConflictError, InvalidRequestError)):
                plan_append(self.handles[which], refresh=False).commit([part.staged])
        elif self.compacted and part.null_keys:
            with pytest.raises(InvalidRequestError, match="became compacted"):
                plan_append(self.handles[which], refresh=False).commit([part.staged])
        else:
            self.place(
                part.rows,
                plan_append(self.handles[which], refresh=False).commit([part.staged]).offsets,
            )
            return
        left = {entry.key for entry in self.below.list()}
        assert not {file.path for file in part.staged.files} & left

    @rule(which=st.integers(0, 1), more=st.integers(0, 2))
    def more_partitions(self, which: int, more: int) -> None:
        wanted = len(self.now.logs) + more
        if more == 0 or wanted > 5:
            with pytest.raises(InvalidRequestError, match="already has"):
                self.handles[which].alter(partitions=len(self.now.logs))
            return
        self.handles[which].alter(partitions=wanted)
        self.commit("alter", logs=(*self.now.logs, *[Log()] * more))

    @rule(
        which=st.integers(0, 1),
        setting=st.sampled_from(
            [
                *(("cleanup.policy", policy) for policy in POLICIES),
                ("segment.bytes", "14"),
                ("segment.bytes", None),
                ("message.timestamp.type", "LogAppendTime"),
                ("message.timestamp.type", None),
                ("retention.ms", "1000"),
                ("retention.ms", None),
                ("retention.bytes", "3000"),
                ("retention.bytes", None),
            ]
        ),
    )
    def other_config(self, which: int, setting: tuple[str, str | None]) -> None:
        name, value = setting
        if self.config.get(name) == value:
            with pytest.raises(InvalidRequestError, match="nothing to alter"):
                self.handles[which].alter(config={name: value})
            return
        if self.dropped and name == "cleanup.policy" and "compact" in str(value):
            with pytest.raises(InvalidRequestError, match="META-8"):
                self.handles[which].alter(config={name: value})
            return
        with warnings.catch_warnings():  # of records without a key, which compaction removes
            warnings.simplefilter("ignore")
            self.handles[which].alter(config={name: value})
        self.config.pop(name, None)
        if value is not None:
            self.config[name] = value
        self.commit("alter")

    @rule(which=st.integers(0, 1), name=st.sampled_from(NUMBER_NAMES))
    def add_or_widen_column(self, which: int, name: str) -> None:
        known = self.now.number_column
        if known is None:
            self.handles[which].alter(add_columns={name: pa.int32()})
            self.wide = False
            added = {name: f"number {next(self.serial)}"}
            self.commit("alter", columns={**self.now.columns, **added})
        elif not self.wide:
            self.handles[which].alter(widen_columns={known: pa.int64()})
            self.wide = True
            self.commit("alter")
        else:
            with pytest.raises(InvalidRequestError):
                self.handles[which].alter(widen_columns={known: pa.int32()})

    @precondition(lambda self: self.now.number_column is not None)
    @rule(which=st.integers(0, 1), name=st.sampled_from(NUMBER_NAMES))
    def rename_column(self, which: int, name: str) -> None:
        known = self.now.number_column
        if name == known:
            with pytest.raises(InvalidRequestError, match="already has this name"):
                self.handles[which].alter(rename_columns={known: name})
            return
        self.handles[which].alter(rename_columns={known: name})
        renamed = {name if n == known else n: is_ for n, is_ in self.now.columns.items()}
        self.commit("alter", columns=renamed)

    @precondition(lambda self: self.now.number_column is not None)
    @rule(
        which=st.integers(0, 1),
        again=st.none() | st.sampled_from(NUMBER_NAMES),
        sure=st.sampled_from([False, False, True]),
    )
    def drop_column(self, which: int, again: str | None, sure: bool) -> None:
        """Also with a column in its place, in the same call."""
        known = self.now.number_column
        if self.compacted:
            with pytest.raises(InvalidRequestError, match="META-8"):
                self.handles[which].alter(drop_columns=[known])
            return
        if not sure:  # afterwards there is no compaction any more
            return
        new = {} if again is None else {again: pa.int32()}
        self.handles[which].alter(drop_columns=[known], add_columns=new or None)
        self.dropped, self.wide = True, False
        left = {n: is_ for n, is_ in self.now.columns.items() if n != known}
        added = {name: f"number {next(self.serial)}" for name in new}
        self.commit("alter", columns={**left, **added})

    @rule(which=st.integers(0, 1), data=st.data())
    def delete_records(self, which: int, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.now.logs) - 1))
        log = self.now.logs[number]
        wanted = data.draw(st.none() | st.integers(0, log.end + 1))
        handle = self.handles[which]
        if "delete" not in self.config["cleanup.policy"]:
            with pytest.raises(InvalidRequestError, match=r"cleanup\.policy"):
                handle.delete_records({number: wanted})
            return
        if wanted is not None and wanted > log.end:
            with pytest.raises(OffsetOutOfRangeError):
                handle.delete_records({number: wanted})
            return
        start = max(log.log_start, log.end if wanted is None else wanted)
        assert handle.delete_records({number: wanted}) == {number: start}
        if start > log.log_start:
            logs = list(self.now.logs)
            logs[number] = Log(start, log.end, tuple(log.between(start, log.end)))
            self.commit("delete_records", logs=tuple(logs))

    @rule(which=st.integers(0, 1), data=st.data())
    def rewrite_with_holes(self, which: int, data: st.DataObject) -> None:
        """As compaction does: some neighbours become one segment with fewer records."""
        handle = self.handles[which]
        handle.version  # noqa: B018 - sees the newest commit
        live = [s for s in segments_of(handle.segments()) if s.end_offset > s.base_offset]
        if not live:
            return
        first = data.draw(st.integers(0, len(live) - 1))
        number = live[first].partition
        mine = [s for s in live[first:] if s.partition == number]
        inputs = mine[: data.draw(st.sampled_from([4, 3, 2, 1]))]
        start, end = inputs[0].base_offset, inputs[-1].end_offset
        log = self.now.logs[number]
        inside = log.between(start, end)
        drop = data.draw(st.sets(st.integers(0, max(0, len(inside) - 1))), label="drop")
        kept = [row for number, row in enumerate(inside) if number not in drop]
        modes = {row["timestampType"] for row in kept} | {int(s.append_time) for s in inputs}
        if len(modes) > 1:
            return
        self.swap(handle, inputs, kept, data.draw(st.integers(1, 5)))
        for row in kept:
            self.horizons.pop((number, row["offset"]), None)
        gone = {row["offset"] for row in inside} - {row["offset"] for row in kept}
        rows = tuple(row for row in log.rows if row["offset"] not in gone)
        logs = list(self.now.logs)
        logs[number] = replace(log, rows=rows)
        self.commit("compact", logs=tuple(logs))

    def swap(
        self, handle: Topic, inputs: Sequence[Segment], kept: Sequence[Row], group: int
    ) -> None:
        hashed = {segment.hashed_over for segment in inputs}
        output = write_sparse_segment(
            self.below,
            handle._log.known.info,
            partition=inputs[0].partition,
            base_offset=inputs[0].base_offset,
            end_offset=inputs[-1].end_offset,
            records=[self.now.shown(row, handle.schema.names) for row in kept],
            file_id=f"sparse{next(self.serial)}",
            row_group_rows=group,
            append_time=inputs[0].append_time,
            hashed_over=hashed.pop() if len(hashed) == 1 else None,
        )
        handle._log.change(
            lambda state: plan_swap_commit(state, "compact", [Swap(tuple(inputs), (output,))])
        )

    def new_commits(self, handle: Topic) -> list[Any]:
        """What a job committed, one commit for each partition it touched."""
        versions = range(len(self.states), handle.version + 1)
        return [handle._log.manifest.commits.read(version) for version in versions]

    @rule(
        which=st.integers(0, 1),
        force=st.booleans(),
        budget=st.sampled_from([1, 200, 1 << 29]),
    )
    def compact(self, which: int, force: bool, budget: int) -> None:
        handle = self.handles[which]
        if not self.compacted:
            with pytest.raises(InvalidRequestError, match=r"cleanup\.policy"):
                handle.compact(force=force)
            return
        dirty = {
            number
            for number, log in enumerate(self.now.logs)
            if log.end > max(log.log_start, self.clean_ends.get(number, 0))
        }
        report = handle.compact(force=force, budget_bytes=budget)
        assert report.skipped == 0
        touched = set()
        for commit in self.new_commits(handle):
            assert commit.operation == "compact"
            numbers = {swap.partition for swap in commit.replaced} | set(commit.cleaned)
            (number,) = numbers
            touched.add(number)
            log = self.now.logs[number]
            if number in dirty:
                self.clean_ends[number] = log.end
            assert commit.cleaned == ({number: log.end} if number in dirty else {})
            logs = list(self.now.logs)
            logs[number] = replace(log, rows=tuple(self.survivors(number, log)))
            self.commit("compact", logs=tuple(logs))
        if force:
            assert dirty <= touched
        for segment in segments_of(handle.segments()):
            if segment.partition in touched and segment.delete_horizon_ms is not None:
                rows = self.now.logs[segment.partition].between(
                    segment.base_offset, segment.end_offset
                )
                places = [(segment.partition, row["offset"]) for row in rows]
                times = {self.horizons[place] for place in places if place in self.horizons}
                assert times <= {segment.delete_horizon_ms}
        states = handle.at().snapshot.partitions
        assert {n: s.clean_end for n, s in enumerate(states) if s.clean_end} == self.clean_ends

    def survivors(self, number: int, log: Log) -> Iterator[Row]:
        """The rule in plain words [CLEAN-3], [CLEAN-4]."""
        newest = {row["key"]: row["offset"] for row in log.rows}
        now_ms = self.clock.now_ms
        retention = int(self.config.get("retention.ms", 7 * DAY_MS))
        deletes = "delete" in self.config["cleanup.policy"]
        for row in log.rows:
            if row["key"] is None or newest[row["key"]] != row["offset"]:
                continue
            if deletes and row["timestamp"] < us(now_ms - retention):
                continue
            values = [row.get(is_) for is_ in self.now.columns.values() if is_ not in NO_VALUES]
            if all(value is None for value in values):
                place = number, row["offset"]
                if self.horizons.get(place, now_ms + 1) <= now_ms:
                    continue
                self.horizons.setdefault(place, now_ms + DAY_MS)
            yield row

    @rule(
        which=st.integers(0, 1),
        keys=st.lists(st.sampled_from(KEYS), max_size=2),
        condition=st.sampled_from(["keys", "tombstones", "offsets", "old", "numbers"]),
        offset=st.integers(0, 20),
    )
    def erase(self, which: int, keys: list[bytes], condition: str, offset: int) -> None:
        handle = self.handles[which]
        number_column = self.now.number_column
        asked: dict[str, Any]
        if condition == "keys" or (condition == "numbers" and number_column is None):
            asked = {"keys": keys}
            chosen = lambda row: row["key"] in keys  # noqa: E731
        elif condition == "tombstones":
            asked = {"where": pc.field("value").is_null() & (pc.field("partition") == offset % 3)}
            chosen = lambda row: row["value"] is None and row["partition"] == offset % 3  # noqa: E731
        elif condition == "offsets":
            asked = {"where": pc.field("offset").isin([offset, offset + 2])}
            chosen = lambda row: row["offset"] in (offset, offset + 2)  # noqa: E731
        elif condition == "old":
            oldest = us(T0 + offset - 60)
            asked = {"where": pc.field("timestamp") < pa.scalar(oldest, UTC_US)}
            chosen = lambda row: row["timestamp"] < oldest  # noqa: E731
        else:
            asked = {"where": pc.field(number_column) > offset % 9}
            number = self.now.columns[str(number_column)]
            chosen = lambda row: (row.get(number) or 0) > offset % 9  # noqa: E731
        logs = [
            replace(log, rows=tuple(row for row in log.rows if not chosen(row)))
            for log in self.now.logs
        ]
        gone = {
            partition: len(old.rows) - len(new.rows)
            for partition, (old, new) in enumerate(zip(self.now.logs, logs, strict=True))
        }
        assert handle.erase(**asked, dry_run=True).records_erased == sum(gone.values())
        report = handle.erase(**asked)
        assert report.records_erased == sum(gone.values())
        assert {n: count for n, count in report.partitions.items() if count} == {
            n: count for n, count in gone.items() if count
        }
        for commit in self.new_commits(handle):
            assert commit.operation == "erase"
            (partition,) = {swap.partition for swap in commit.replaced}
            mine = list(self.now.logs)
            mine[partition] = logs[partition]
            self.commit("erase", logs=tuple(mine))
        assert self.now.logs == tuple(logs)
        assert handle.erase(**asked).old_files == ()

    @rule(which=st.integers(0, 1))
    def merge(self, which: int) -> None:
        handle = self.handles[which]
        report = handle.merge()
        assert report.skipped == 0
        for commit in self.new_commits(handle):
            assert commit.operation == "merge"
            self.commit("merge")
        left: dict[int, int] = {}
        if "compact" in self.config["cleanup.policy"]:
            due = Compaction().plan(handle._maintained)
            left = {unit.partition: unit.inputs[-1].end_offset for unit in due}
        starts = handle.start_offsets()
        for segment in segments_of(handle.segments()):
            if segment.base_offset >= left.get(segment.partition, 0):
                assert not segment.shift
                assert not segment.has_below(starts[segment.partition])
        if "segment.bytes" not in self.config:
            assert handle.merge().units == 0

    @rule(which=st.integers(0, 1), data=st.data())
    def retention(self, which: int, data: st.DataObject) -> None:
        handle = self.handles[which]
        segments = segments_of(handle.segments())
        numbers = st.integers(0, len(self.now.logs) - 1)
        keep = data.draw(st.none() | st.dictionaries(numbers, st.integers(0, 20), max_size=2))
        logs = list(self.now.logs)
        if "delete" in self.config["cleanup.policy"]:
            for number, log in enumerate(logs):
                mine = [segment for segment in segments if segment.partition == number]
                start = self.first_kept(log, mine)
                if keep is not None and number in keep:
                    ends = [s.end_offset for s in mine if s.end_offset <= min(start, keep[number])]
                    start = max([log.log_start, *ends])
                logs[number] = Log(start, log.end, tuple(log.between(start, log.end)))
        moved = {
            number: log.log_start
            for number, log in enumerate(logs)
            if log.log_start > self.now.logs[number].log_start
        }
        report = handle.apply_retention(keep)
        assert report.log_starts == moved
        if moved:
            self.commit("retention", logs=tuple(logs))

    def first_kept(self, log: Log, segments: Sequence[Segment]) -> int:
        """As Kafka has it: first by size, then by time."""
        left = list(segments)
        limit = int(self.config.get("retention.bytes", -1))
        if limit >= 0:
            excess = sum(segment.size_bytes for segment in left) - limit
            while left and excess - left[0].size_bytes >= 0:
                excess -= left.pop(0).size_bytes
        oldest_ms = self.clock.now_ms - int(self.config.get("retention.ms", 7 * DAY_MS))
        while left and left[0].max_timestamp_us < oldest_ms * 1000:
            left.pop(0)
        if len(left) == len(segments):
            return log.log_start
        return left[0].base_offset if left else log.end

    @rule(which=st.integers(0, 1), keep_ms=st.sampled_from([0, 1000, 5 * DAY_MS, None]))
    def vacuum(self, which: int, keep_ms: int | None) -> None:
        """Objects age by the machine's clock. What is older than 7 days goes, also staged files."""
        handle = self.handles[which]
        before = {entry.key for entry in self.below.list()}
        dry = handle.vacuum(retention_ms=keep_ms)
        assert {entry.key for entry in self.below.list()} == before
        assert handle.version == len(self.states) - 1
        report = handle.vacuum(dry_run=False, retention_ms=keep_ms, force=True)
        assert report.files == dry.files
        after = {entry.key for entry in self.below.list()}
        assert before - after == set(report.files)
        parts = [*self.pending, *([self.given] if self.given else [])]
        young = [part for part in parts if self.clock.now_ms - part.at_ms <= 7 * DAY_MS]
        staged = (file for part in young for file in part.staged.files)
        assert not {file.path for file in staged if not file.is_inline} - after
        self.lost_commits.update(
            version for key in report.files if (version := parse_commit_path(key)) is not None
        )
        if report.files:
            since = self.clock.now_ms - (7 * DAY_MS if keep_ms is None else keep_ms)
            old = [v for v, state in enumerate(self.states) if state.committed_ms <= since]
            self.kept_from = max([self.kept_from, *old[-1:]])
            self.commit("vacuum")
        report_of = handle.verify(data=True)
        assert report_of, str(report_of)

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.handles[which] = self.store.topic("t")

    @rule(lost=st.sampled_from(["missing", "corrupt", "stale"]))
    def lose_the_hint(self, lost: str) -> None:
        """Everything must be found without it [HINT-1]."""
        if lost == "missing":
            self.below.delete("_manifest/_head.json")
        else:
            hint = b"{" if lost == "corrupt" else b'{"root_version": null}'
            self.below.write("_manifest/_head.json", hint)

    @rule(ms=st.sampled_from([-5000, -1, 1, 20, 1000, DAY_MS * 5 // 6, 4 * DAY_MS, 8 * DAY_MS]))
    def time_passes(self, ms: int) -> None:
        self.clock.tick(ms)

    # --- what only looks ---

    def asked_version(self, data: st.DataObject) -> tuple[int | None, State]:
        kept = st.integers(self.kept_from, len(self.states) - 1)
        version = data.draw(st.none() | kept, label="version")
        return version, self.now if version is None else self.states[version]

    @rule(which=st.integers(0, 1), data=st.data())
    def read_a_range(self, which: int, data: st.DataObject) -> None:
        version, state = self.asked_version(data)
        number = data.draw(st.integers(0, len(state.logs) - 1))
        log = state.logs[number]
        start = data.draw(st.none() | st.integers(0, log.end + 1), label="start")
        end = data.draw(st.none() | st.integers(0, log.end + 1), label="end")
        names = ["partition", "offset", "timestamp", *state.columns, "timestampType"]
        columns = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        low = log.log_start if start is None else start
        high = log.end if end is None else end
        handle = self.handles[which]

        def read() -> pa.Table:
            return handle.read(number, start, end, columns, version).read_all()

        if not (log.log_start <= low <= log.end and log.log_start <= high <= log.end):
            with pytest.raises(OffsetOutOfRangeError):
                read()
        elif low > high:
            with pytest.raises(InvalidRequestError, match="greater than end"):
                read()
        else:
            found = read()
            assert found.column_names == columns
            wanted = [state.shown(row, columns) for row in log.between(low, high)]
            assert found.to_pylist() == wanted

    @rule(
        which=st.integers(0, 1),
        data=st.data(),
        keys=st.lists(st.sampled_from([*KEYS, b"never"]), max_size=4),
        some_partitions=st.none() | st.sets(st.integers(0, 4)),
    )
    def read_keys(
        self, which: int, data: st.DataObject, keys: list[bytes], some_partitions: set[int] | None
    ) -> None:
        version, state = self.asked_version(data)
        chosen = [n for n in range(len(state.logs)) if n in (some_partitions or {n})]
        ranges = {
            n: data.draw(st.tuples(*[st.integers(log.log_start, log.end)] * 2).map(sorted))
            for n, log in enumerate(state.logs)
            if n in chosen
        }
        names = ["partition", "offset", "timestamp", *state.columns, "timestampType"]
        columns = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        found = self.handles[which].read(
            chosen,
            {n: start for n, (start, _) in ranges.items()},
            {n: end for n, (_, end) in ranges.items()},
            columns,
            version,
            keys,
        )
        wanted = [
            state.shown(row, columns)
            for n, (start, end) in ranges.items()
            for row in state.logs[n].between(start, end)
            if row["key"] in keys
        ]
        assert found.schema.names == columns
        assert found.read_all().to_pylist() == wanted

    @rule(which=st.integers(0, 1), data=st.data())
    def read_everything(self, which: int, data: st.DataObject) -> None:
        version, state = self.asked_version(data)
        names = ["partition", "offset", "timestamp", *state.columns]
        reader = self.handles[which].read(version=version)
        batches = list(reader)
        if self.small_batches:
            assert all(batch.num_rows <= BATCH_ROWS for batch in batches)
        found = pa.Table.from_batches(batches, reader.schema)
        wanted = [state.shown(row, names) for log in state.logs for row in log.rows]
        assert found.column_names == names
        assert found.to_pylist() == wanted

    @rule(which=st.integers(0, 1), data=st.data(), spans=st.tuples(*[st.integers(-80, 80)] * 2))
    def look_up_times(self, which: int, data: st.DataObject, spans: tuple[int, int]) -> None:
        version, state = self.asked_version(data)
        early, late = (us(T0 + ms) for ms in sorted(spans))

        def first(log: Log, when: Any) -> int | None:
            return next((row["offset"] for row in log.rows if row["timestamp"] >= when), None)

        handle = self.handles[which]
        expected = {number: first(log, early) for number, log in enumerate(state.logs)}
        assert handle.offsets_for_time(early, version=version) == expected
        found = handle.read(start=early, end=late, columns=["partition", "offset"], version=version)
        wanted = []
        for number, log in enumerate(state.logs):
            low, high = first(log, early), first(log, late)
            if low is not None:
                bounds = log.between(low, log.end if high is None else high)
                wanted += [(number, row["offset"]) for row in bounds]
        table = found.read_all()
        pairs = list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        assert pairs == wanted

    @rule(
        which=st.integers(0, 1),
        data=st.data(),
        keys=st.none() | st.lists(st.sampled_from([*KEYS, b"never"]), max_size=4),
    )
    def latest_per_key(self, which: int, data: st.DataObject, keys: list[bytes] | None) -> None:
        version, state = self.asked_version(data)
        newest: dict[bytes, Row] = {}

        def rank(row: Row) -> tuple[Any, bool, int]:
            own = partition_for(pa.array([row["key"]], pa.binary()), len(state.logs))[0]
            return row["timestamp"], bool(own == row["partition"]), row["partition"]

        for log in state.logs:
            here = {row["key"]: row for row in log.rows if row["key"] is not None}
            for key, row in here.items():
                if key not in newest or rank(row) > rank(newest[key]):
                    newest[key] = row
        if keys is not None:
            newest = {key: row for key, row in newest.items() if key in keys}
        names = ["partition", "offset", "timestamp", *state.columns]
        found = self.handles[which].latest(keys, version=version)
        assert found.column_names == names
        by_key = {row["key"]: row for row in found.to_pylist()}
        assert found.num_rows == len(by_key)
        assert by_key == {key: state.shown(row, names) for key, row in newest.items()}

    @rule(which=st.integers(0, 1), data=st.data())
    def count(self, which: int, data: st.DataObject) -> None:
        version, state = self.asked_version(data)
        assert self.handles[which].count(version) == sum(len(log.rows) for log in state.logs)

    @rule(which=st.integers(0, 1), ago=st.integers(-2, 3000))
    def look_into_the_past(self, which: int, ago: int) -> None:
        handle = self.handles[which]
        when = self.now.committed_ms - ago
        known = [v for v, state in enumerate(self.states) if state.committed_ms <= when]
        if not known or known[-1] in self.lost_commits:
            with pytest.raises(InvalidRequestError, match="no version as old"):
                handle.version_at(when)
            return
        assert handle.version_at(when) == known[-1]
        if known[-1] < self.kept_from:
            return
        assert handle.count(us(when)) == sum(len(log.rows) for log in self.states[known[-1]].logs)

    @rule(which=st.integers(0, 1), limit=st.none() | st.integers(0, 5))
    def look_at_the_history(self, which: int, limit: int | None) -> None:
        table = self.handles[which].history(limit)
        expected = [
            (version, state.operation, us(state.committed_ms))
            for version, state in reversed(list(enumerate(self.states)))
            if version > max(self.lost_commits, default=-1)
        ][:limit]
        columns = (table[n].to_pylist() for n in ("version", "operation", "committed_at"))
        assert list(zip(*columns, strict=True)) == expected

    @rule(which=st.integers(0, 1))
    def verify(self, which: int) -> None:
        report = self.handles[which].verify(data=True)
        assert report, str(report)

    @rule(which=st.integers(0, 1))
    def refuse_a_wrong_column(self, which: int) -> None:
        with pytest.raises(SchemaMismatchError, match="did you mean 'value'"):
            self.handles[which].append(pa.table({"key": [b"a"], "valeu": [b"b"]}))

    @invariant()
    def offsets_agree(self) -> None:
        if not hasattr(self, "states"):
            return
        for handle in self.handles:
            assert handle.version == len(self.states) - 1
            assert handle.start_offsets() == dict(enumerate(log.log_start for log in self.logs()))
            assert handle.end_offsets() == dict(enumerate(log.end for log in self.logs()))
            state = handle.at().state
            assert state.snapshot.inline == inline_of(segments_of(state.entries()))

    def logs(self) -> Iterator[Log]:
        return iter(self.now.logs)


TopicMachine.TestCase.settings = settings(
    max_examples=rounds(20, deep=1000), stateful_step_count=40
)
TestTopicMachine = TopicMachine.TestCase
