"""What the reference reader says about a topic in memory: the oracle of the mutation tests."""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from pylogtable.format.partitioner import key_bytes, partition_for
from tests.faults.mutation_bases import base
from tests.faults.mutations import kind_of
from tests.reference import light_reader, reference_reader

light = light_reader()
LARGE_BYTES = 2**20

_kept: dict[Any, Any] = {}


def _remembered(key: Any, make: Callable[[], Any]) -> Any:
    """Most objects of a mutant are those of its base: what was made of them is kept."""
    if key not in _kept:
        if len(_kept) > 15_000:
            _kept.clear()
        made = make()
        if isinstance(made, pa.Table) and made.nbytes > LARGE_BYTES:
            return made
        _kept[key] = made
    return _kept[key]


class RememberingReader(reference_reader().Reader):  # type: ignore[name-defined, misc]
    """The reference reader, for many topics with the same objects."""

    def decode_commit(self, data: bytes, version: int) -> Any:
        decode = super().decode_commit
        return _remembered((data, version), lambda: decode(data, version))

    def read_segment(self, entry: Any, topic: Any) -> Any:
        # The records may be in a commit [INL-1].
        data = self.read_object(entry["path"].partition("@")[0])
        read = super().read_segment
        fields = [{**field, "arrow": str(field["arrow"])} for field in topic["fields"]]
        key = data, json.dumps(entry), json.dumps(fields), json.dumps(topic["key"])
        return _remembered(key, lambda: read(entry, topic))

    def load_leaf(self, leaf: str, *rest: Any) -> Any:
        data, load = self.read_object(f"_manifest/leaf-{leaf}.parquet"), super().load_leaf
        return _remembered((data, leaf, rest), lambda: load(leaf, *rest))


Answers = dict[str, Any]  # by question: the answer, or the exception instead of it


class Objects:
    """Objects in memory, as the reference reader wants to see a folder."""

    def __init__(self, objects: Mapping[str, bytes], at: str = "") -> None:
        self.objects, self.at = objects, at
        self.name = at.rpartition("/")[2]

    def __truediv__(self, name: str) -> Objects:
        return Objects(self.objects, f"{self.at}/{name}" if self.at else name)

    def read_bytes(self) -> bytes:
        if self.at not in self.objects:
            raise FileNotFoundError(self.at)
        return self.objects[self.at]

    def is_file(self) -> bool:
        return self.at in self.objects

    def glob(self, pattern: str) -> Iterator[Objects]:
        assert pattern == "*"
        start = f"{self.at}/"
        below = [key for key in self.objects if key.startswith(start)]
        return (Objects(self.objects, key) for key in below if "/" not in key[len(start) :])


@dataclass(frozen=True)
class Questions:
    """What is asked of a sound topic, and of all its mutants."""

    ranges: dict[int, tuple[int, int]]
    times: list[int]
    groups: list[str]
    version: int  # an older one


@cache
def questions(name: str) -> Questions:
    objects = Objects(base(name).objects)
    topic = RememberingReader(objects)
    state = topic.open()
    entries = [entry for part in state["partitions"] for entry in part["segments"]]
    times = sorted(entry["max_timestamp_us"] for entry in entries)
    ranges = {
        number: (low + (high - low) // 3, high - (high - low) // 4)
        for number, (low, high) in topic.bounds(state).items()
    }
    groups = {key.split("/")[1] for key in objects.objects if kind_of(key) == "group"}
    asked = [times[0] - 10, times[len(times) // 2], times[-1], times[-1] + 1]
    return Questions(ranges, asked, sorted(groups), _older(topic, state))


def _older(topic: RememberingReader, newest: Any) -> int:
    """A version of the same topic, three before the newest if there is one."""
    for version in range(max(0, newest["version"] - 3), newest["version"]):
        before = _tried(lambda v=version: topic.open(v))
        same = not isinstance(before, Exception) and before["topic_id"] == newest["topic_id"]
        if same and before["topic"] is not None:
            return version
    return int(newest["version"])


@cache
def sound_id(name: str) -> str:
    return str(RememberingReader(Objects(base(name).objects)).open()["topic_id"])


@cache
def sound_answers(name: str) -> Answers:
    return answers(name, base(name).objects)


def answers(name: str, objects: Mapping[str, bytes], root: int | None = None) -> Answers:
    """All answers, from the commits, or from the root of this version and the commits after it."""
    topic, asked = RememberingReader(Objects(objects)), questions(name)

    def rows(of: Any, partition: int, *bounds: int) -> list[Any]:
        tables = list(topic.read(of, partition, *bounds))
        return plain(pa.concat_tables(tables)) if tables else []

    def rows_before() -> list[Any]:
        if root is None:
            before = topic.open(asked.version)
        else:
            before = _from_root(topic, root, asked.version)
        if before["topic"] is None or before["topic_id"] != newest_id:
            raise light.InvalidRequest("that version is of another topic")
        numbers = range(len(before["partitions"]))
        return [row for number in numbers for row in rows(before, number)]

    newest_id = sound_id(name)
    try:
        state = topic.open() if root is None else _from_root(topic, root)
        if state["topic"] is None:
            raise light.NoTopic("the topic is deleted")
    except light.Refusal as error:
        return {"open": error, "rows of before": _tried(rows_before)}
    newest_id = state["topic_id"]

    def offsets_at(time_us: int) -> dict[int, int | None]:
        numbers = topic.bounds(state)
        return {n: topic.offset_for_time(state, n, time_us) for n in numbers}

    every = range(len(state["partitions"]))
    found: Answers = {
        "open": None,
        "version": state["version"],
        "bounds": topic.bounds(state),
        "segments": [entry_of(e) for part in state["partitions"] for e in part["segments"]],
        "rows": _tried(lambda: [row for number in every for row in rows(state, number)]),
        "rows of before": _tried(rows_before),
        "count": _tried(lambda: topic.count(state)),
        "times": _tried(lambda: [offsets_at(time) for time in asked.times]),
    }
    for number, (low, high) in asked.ranges.items():
        if number in every:
            found[f"partition {number}"] = _tried(lambda n=number: rows(state, n))
            found[f"range of {number}"] = _tried(
                lambda n=number, lo=low, hi=high: rows(state, n, lo, hi)
            )
    for group in asked.groups:
        found[f"positions of {group}"] = _tried(lambda g=group: _positions(topic, g, state))
    found["latest"] = _tried(lambda: _latest(found["rows"], state["topic"]))
    return found


def root_decodes(objects: Mapping[str, bytes], version: int) -> bool:
    """False if every reader has to pass over this root, whatever it says."""
    try:
        RememberingReader(Objects(objects)).load_root(version)
    except light.Corrupt as error:
        return error.rule not in ("ROOT-1", "META-1")
    except light.Unsupported:
        return True
    return True


def _from_root(topic: RememberingReader, version: int, last: int | None = None) -> Any:
    state = topic.load_root(version)
    commits = topic.numbers("_manifest", light.COMMIT_NAME)
    if last is None:
        last = light.end_of_run({*commits}, version + 1)
    elif last < version:
        raise light.InvalidRequest("the root is of a later version")
    for number in range(version + 1, last + 1):
        data = topic.read_object(light.commit_name(number))
        state = topic.apply(state, topic.decode_commit(data, number))
    return state


def _positions(topic: RememberingReader, group: str, state: Any) -> dict[int, int]:
    found = topic.group_state(group, state["topic_id"])
    return {} if found is None else {n: at["offset"] for n, at in found["positions"].items()}


def _latest(rows: Any, topic: Any) -> Any:
    """The newest record of each key [READ-6]; None if the topic has no key."""
    if isinstance(rows, Exception):
        raise rows
    if not topic["key"] or not rows:
        return [] if topic["key"] else None
    types = {field["name"]: field["arrow"] for field in topic["fields"]}
    keys = key_bytes([pa.array([row[name] for row in rows], types[name]) for name in topic["key"]])
    home = partition_for(keys, topic["partitions"])
    newest: dict[bytes, tuple[Any, Any]] = {}
    for row, key, own in zip(rows, keys.to_pylist(), home.tolist(), strict=True):
        rank = (row["timestamp"], row["partition"] == own, row["partition"])
        before = newest.get(key)
        same_log = before is not None and before[1]["partition"] == row["partition"]
        if key is not None and (before is None or same_log or rank > before[0]):
            newest[key] = rank, row
    return sorted((row for _, row in newest.values()), key=place_of_row)


def _tried(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except light.Refusal as error:
        return without_frames(error)


def without_frames(error: Exception) -> Exception:
    """The error, without what its functions held: a trial keeps some twenty errors at a time."""
    traceback.clear_frames(error.__traceback__)
    return error


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python has them; times as numbers, since a mutant's may be beyond the year 9999.
    A digest stands for a large value: a trial keeps the rows of some twenty answers at a time."""
    columns = [
        column.cast("int64") if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    rows: list[dict[str, Any]] = pa.table(columns, names=table.column_names).to_pylist()
    if table.nbytes > LARGE_BYTES:
        return [{name: _brief(value) for name, value in row.items()} for row in rows]
    return rows


def _brief(value: Any) -> Any:
    """A large value as its length and digest, of the same type."""
    if not isinstance(value, (bytes, str)) or len(value) <= LARGE_BYTES:
        return value
    is_text = isinstance(value, str)
    digest = hashlib.sha256(value.encode() if is_text else value).hexdigest()
    brief = f"{len(value)} with digest {digest}"
    return brief if is_text else brief.encode()


def place_of_row(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["partition"], row["offset"]


def entry_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    names = ("partition", "base_offset", "end_offset", "shift", "records", "size_bytes", "path",
             "min_timestamp_us", "max_timestamp_us", "row_groups", "tombstones")  # fmt: skip
    return {name: entry[name] for name in names}
