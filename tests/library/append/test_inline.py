"""Small appends: their records are in the commit, and everything works on them as on files."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import (
    CorruptTopicError,
    InvalidRequestError,
    SegmentGoneError,
    Topic,
    UnsupportedFormatError,
)
from pylogtable.engine import plan_append
from pylogtable.format import inline, json_codec
from pylogtable.format.json_bytes import checksum
from pylogtable.format.paths import commit_path
from pylogtable.storage import object_cache
from pylogtable.storage.memory import MemoryStore
from tests.builders import IN_FILES, Clock, data_files, limited, make_store
from tests.stores import FaultyStore
from tests.tamper import edited

LIMIT = 16 << 10
DAY_MS = 86_400_000


def table(start: int, count: int, size: int = 10) -> pa.Table:
    keys = [b"k%d" % n for n in range(start, start + count)]
    values = [(b"%d-" % n).ljust(size, b"x") for n in range(start, start + count)]
    return pa.table({"key": keys, "value": values})


def noise(count: int, seed: int = 0) -> pa.Table:
    """Records that cannot be packed: a kilobyte each."""
    values = [
        b"".join(checksum(b"%d %d %d" % (seed, n, m)).encode() for m in range(128))
        for n in range(count)
    ]
    return pa.table({"key": [b"n%d" % n for n in range(count)], "value": values})


@pytest.fixture
def objects() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def topic(objects: MemoryStore, clock: Clock) -> Topic:
    store = make_store(objects, clock=clock)
    return store.create_topic("orders", 3, config={"inline.max.bytes": LIMIT, "retention.ms": -1})


def manifest(objects: MemoryStore) -> list[str]:
    return [entry.key for entry in objects.list("orders/_manifest/")]


def values(topic: Topic, **how: object) -> list[bytes]:
    return sorted(topic.read(**how).read_all()["value"].to_pylist())  # type: ignore[arg-type]


def test_a_small_append_is_one_object(topic: Topic, objects: MemoryStore) -> None:
    before = manifest(objects)
    result = topic.append(table(0, 100, size=100))
    assert [*set(manifest(objects)) - set(before)] == [f"orders/{commit_path(1)}"]
    assert not data_files(objects)
    assert (result.records, sum(e - s for s, e in result.offsets.values())) == (100, 100)
    assert values(topic) == sorted(table(0, 100, size=100)["value"].to_pylist())
    assert topic.verify(data=True)


def test_a_large_append_has_files(topic: Topic, objects: MemoryStore) -> None:
    topic.append(noise(64))
    assert data_files(objects)
    commit = json_codec.decode_commit(objects.read(f"orders/{commit_path(1)}") or b"", 1)
    assert commit.rows is None
    assert commit.protocol is None  # the feature is announced by the commit that needs it


def test_packed_rows_never_have_more_than_the_setting(topic: Topic, objects: MemoryStore) -> None:
    topic.alter(config={"inline.max.bytes": 2000})
    for count in range(1, 6):
        version = topic.append(noise(count)).version
        commit = json_codec.decode_commit(
            objects.read(f"orders/{commit_path(version)}") or b"", version
        )
        size = sum(segment.size_bytes for segment in commit.add)
        assert (commit.rows is not None) == (size <= 2000)
    assert data_files(objects)


def test_with_0_every_append_has_files(topic: Topic, objects: MemoryStore) -> None:
    topic.alter(config={"inline.max.bytes": 0})
    topic.append(table(0, 1))
    assert data_files(objects)


@pytest.mark.parametrize("value", [-1, (1 << 20) + 1, "x"])
def test_a_limit_that_a_commit_cannot_have_is_refused(topic: Topic, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"inline\.max\.bytes"):
        topic.alter(config={"inline.max.bytes": value})


def test_a_lost_race_changes_numbers_and_not_rows(objects: MemoryStore, topic: Topic) -> None:
    slow = make_store(objects).topic("orders")
    staged = plan_append(slow).stage(table(10, 5))
    topic.append(table(0, 5))
    result = plan_append(slow).commit([staged])
    one, other = (
        json.loads(objects.read(f"orders/{commit_path(version)}") or b"") for version in (1, 2)
    )
    assert result.version == 2
    assert {e["path"].partition("@")[0] for e in other["add"]} == {commit_path(2)}
    assert all("shift" not in entry for entry in (*one["add"], *other["add"]))
    assert values(topic) == sorted([*values(topic, version=1), *table(10, 5)["value"].to_pylist()])


def test_staged_rows_go_to_another_process_as_bytes(topic: Topic, objects: MemoryStore) -> None:
    parts = [
        pickle.loads(pickle.dumps(plan_append(topic).stage(table(n * 10, 10)))) for n in range(4)
    ]
    result = plan_append(topic).commit(parts)
    assert not data_files(objects)
    assert result.segments <= 3  # the rows of four processes are one part for each partition
    for number in range(3):
        keys = topic.read(partition=number).read_all()["key"].to_pylist()
        assert keys == sorted(keys, key=lambda key: int(key[1:]))  # in the order of the tasks


def test_rows_of_many_processes_become_files_if_they_are_too_many(
    topic: Topic, objects: MemoryStore
) -> None:
    parts = [plan_append(topic).stage(noise(10, n)) for n in range(5)]
    assert all(part.rows for part in parts)
    result = plan_append(topic).commit(parts)
    assert len(data_files(objects)) == result.segments == 3
    assert values(topic) == sorted(v for n in range(5) for v in noise(10, n)["value"].to_pylist())
    assert topic.verify(data=True)


def test_rows_and_files_of_several_processes_keep_their_order(
    topic: Topic, objects: MemoryStore
) -> None:
    parts = [
        plan_append(topic).stage(table(0, 3)),
        plan_append(topic).stage(noise(64)),
        plan_append(topic).stage(table(3, 3)),
    ]
    assert [part.rows is None for part in parts] == [False, True, False]
    plan_append(topic).commit(parts)
    for number in range(3):
        keys = topic.read(partition=number).read_all()["key"].to_pylist()
        kinds = [key[:1] for key in keys]
        assert kinds == [
            *[b"k"] * kinds.index(b"n"),
            *[b"n"] * kinds.count(b"n"),
            *[b"k"] * (kinds[::-1].index(b"n")),
        ]
    assert topic.verify(data=True)


def test_files_that_rows_became_are_removed_if_the_commit_fails(
    topic: Topic, objects: MemoryStore
) -> None:
    parts = [plan_append(topic).stage(noise(10, n)) for n in range(5)]
    topic.alter(config={"cleanup.policy": "compact"})
    keyless = pa.table({"key": pa.array([None], pa.binary()), "value": [b"x"]})
    topic.alter(config={"cleanup.policy": "delete"})
    parts.append(plan_append(topic).stage(keyless))
    topic.alter(config={"cleanup.policy": "compact"})
    with pytest.raises(InvalidRequestError, match="no key"):
        plan_append(topic).commit(parts)
    assert not data_files(objects)


def test_a_repeated_txn_appends_nothing(topic: Topic, objects: MemoryStore) -> None:
    first = topic.append(table(0, 5), txn=("etl", 1))
    again = topic.append(table(0, 5), txn=("etl", 1))
    assert again.repeated
    assert again.offsets == first.offsets
    assert topic.count() == 5


def test_merge_turns_rows_into_files(topic: Topic, objects: MemoryStore) -> None:
    for n in range(6):
        topic.append(table(n * 10, 10))
    before = values(topic)
    topic.merge()
    assert len(data_files(objects)) == 3
    assert values(topic) == before
    assert topic.verify(data=True)


def test_lookups_by_offset_time_and_key(topic: Topic, clock: Clock) -> None:
    for n in range(5):
        clock.tick(1000)
        topic.append(table(n * 10, 10))
    ends = topic.end_offsets()
    third = {number: topic.offsets_for_time(clock.now_ms - 2000)[number] for number in ends}
    assert sum(ends[number] - (third[number] or 0) for number in ends) == 30
    newest = topic.latest(keys=[b"k7", b"k41"])
    assert sorted(newest["value"].to_pylist()) == sorted(
        [*table(7, 1)["value"].to_pylist(), *table(41, 1)["value"].to_pylist()]
    )
    assert topic.read(partition=0, start=2, end=4).read_all()["offset"].to_pylist() == [2, 3]


def test_compaction_drops_records_in_commits(topic: Topic, objects: MemoryStore) -> None:
    for n in range(4):
        topic.append(table(0, 10 + n, size=20 + n))
    topic.alter(config={"cleanup.policy": "compact"})
    topic.compact(force=True)
    assert topic.count() == 13
    assert [len(value) for value in values(topic)].count(23) == 13  # all are of the last append
    assert topic.verify(data=True)


def test_columns_that_were_added_renamed_and_dropped(objects: MemoryStore) -> None:
    store = make_store(objects)
    topic = store.create_topic(
        "t", schema={"id": "string", "a": "int", "b": "int"}, key="id",
        config={"inline.max.bytes": LIMIT},
    )  # fmt: skip
    topic.append(
        pa.table({"id": ["x"], "a": pa.array([1], pa.int32()), "b": pa.array([2], pa.int32())})
    )
    topic.alter(add_columns={"c": "string"}, rename_columns={"a": "first"}, drop_columns=["b"])
    topic.append(pa.table({"id": ["y"], "first": pa.array([3], pa.int32()), "c": ["z"]}))
    rows = topic.read(columns=["id", "first", "c"]).read_all().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": "x", "first": 1, "c": None},
        {"id": "y", "first": 3, "c": "z"},
    ]
    assert not data_files(objects)
    assert topic.verify(data=True)


def test_vacuum_keeps_a_commit_that_has_live_records(
    topic: Topic, objects: MemoryStore, clock: Clock
) -> None:
    topic.append(pa.table({"key": [b"a"], "value": [b"in partition a"]}))
    topic.append(pa.table({"key": [b"b"], "value": [b"in partition b"]}))
    topic.append(table(0, 10))
    topic.merge()
    topic.append(pa.table({"key": [b"a"], "value": [b"kept"]}))
    kept = f"orders/{commit_path(topic.version)}"
    for n in range(80):
        topic.append(pa.table({"value": [b"other %d" % n], "partition": pa.array([n % 3])}))
    expected = values(topic)
    clock.tick(8 * DAY_MS)
    removed = topic.vacuum(dry_run=False).files
    assert commit_path(1) in removed  # a merge has made files of its records
    assert commit_path(0) in removed
    assert kept in manifest(objects)
    fresh = make_store(objects, clock=clock).topic("orders")
    assert values(fresh) == expected
    assert fresh.verify(data=True)
    fresh.append(table(0, 1))
    fresh.merge()
    clock.tick(8 * DAY_MS)
    fresh.append(noise(64))
    clock.tick(8 * DAY_MS)
    fresh.vacuum(dry_run=False)
    assert kept not in manifest(objects)
    assert fresh.verify(data=True)


def test_a_missing_commit_is_named(topic: Topic, objects: MemoryStore) -> None:
    topic.append(table(0, 3))
    view = make_store(objects).topic("orders")
    reader = view.read()
    objects.delete(f"orders/{commit_path(1)}")
    object_cache._objects.pop(view._store.origin)
    with pytest.raises(SegmentGoneError, match=commit_path(1)):
        reader.read_all()


def test_process_that_has_read_a_commit_reads_the_one_in_its_place_after_a_restore(
    tmp_path: Path,
) -> None:
    """Otherwise it would publish records that nobody else has."""
    ours = pylogtable.open(tmp_path, clock=Clock()).create_topic("orders")
    ours.append(table(0, 1))
    shutil.copytree(tmp_path / "orders" / "_manifest", tmp_path / "backup")
    ours.append(pa.table({"key": [b"k"], "value": [b"was lost"]}))
    assert values(ours)[-1] == b"was lost"
    shutil.rmtree(tmp_path / "orders" / "_manifest")
    shutil.copytree(tmp_path / "backup", tmp_path / "orders" / "_manifest")
    others = pylogtable.open(tmp_path, clock=Clock()).topic("orders")
    others.append(pa.table({"key": [b"k"], "value": [b"came instead"]}))
    assert values(ours) == values(others)
    assert values(others)[-1] == b"came instead"


def test_verify_names_a_lost_commit_and_not_those_below_it(
    topic: Topic, objects: MemoryStore
) -> None:
    topic = limited(topic, tail_max=10)
    for number in range(70):
        topic.append(table(number, 1))
    topic.alter(config={"retention.ms": 10})
    objects.delete(f"orders/{commit_path(20)}")
    problems = make_store(objects).topic("orders").verify().problems
    assert {(problem.rule, problem.path.partition("@")[0]) for problem in problems} == {
        ("SEG-1", commit_path(20))
    }


def test_verify_finds_rows_that_do_not_unpack(topic: Topic, objects: MemoryStore) -> None:
    topic.append(table(0, 3))
    key = f"orders/{commit_path(1)}"
    body = json.loads(objects.read(key) or b"")
    del body["checksum"]
    body["rows"] = "A" * len(body["rows"].rstrip("=")) + "=" * body["rows"].count("=")
    text = json.dumps(body)[:-1]
    objects.write(key, f'{text},"checksum":"{checksum(text.encode())}"}}'.encode())
    problems = topic.verify(data=True).problems
    assert {problem.rule for problem in problems} == {"INL-2"}
    with pytest.raises(CorruptTopicError, match="INL-2"):
        make_store(objects).topic("orders").read().read_all()


def with_rows(data: bytes | None, rows: bytes, *, fits: bool) -> bytes:
    """A commit with other packed rows. The sizes of its entries are made to fit, if wanted."""
    body = json.loads(data or b"")
    del body["checksum"]
    body["rows"] = inline.to_text(rows)
    if fits:
        for entry, size in zip(body["add"], (len(rows), 0, 0), strict=False):
            entry["size_bytes"] = size
    text = json.dumps(body)[:-1]
    return f'{text},"checksum":"{checksum(text.encode())}"}}'.encode()


@pytest.mark.parametrize("name", [b"value", b"headers"])
def test_column_name_that_is_no_text_is_corrupt(
    topic: Topic, objects: MemoryStore, name: bytes
) -> None:
    """Arrow finds it out only when somebody asks for the name: an error that is not ours."""
    topic.append(table(0, 3, size=4))
    key = f"orders/{commit_path(1)}"
    body = json.loads(objects.read(key) or b"")
    with pa.CompressedInputStream(
        pa.BufferReader(inline.from_text(body["rows"], key)), "zstd"
    ) as packed:
        stream = packed.read()
    assert name in stream
    broken = pa.compress(stream.replace(name, b"\xff" * len(name)), "zstd", asbytes=True)
    objects.write(key, with_rows(objects.read(key), broken, fits=True))
    with pytest.raises(CorruptTopicError, match="INL-2"):
        make_store(objects).topic("orders").read().read_all()


def test_rows_of_another_size_than_their_entries_say_are_corrupt_below_a_root(
    topic: Topic, objects: MemoryStore
) -> None:
    """Who begins at a root does not replay the commit, and reads its rows all the same."""
    topic.append(table(0, 3))
    key = f"orders/{commit_path(1)}"
    topic._log.manifest.write_root(topic.at().snapshot, lambda: "leaf")
    assert values(make_store(objects).topic("orders")) == sorted(table(0, 3)["value"].to_pylist())
    body = json.loads(objects.read(key) or b"")
    rows = inline.unpack(inline.from_text(body["rows"], key), key)
    without_values = inline.pack_rows(rows.drop_columns(["value"]))
    objects.write(key, with_rows(objects.read(key), without_values, fits=False))
    with pytest.raises(CorruptTopicError, match="INL-3"):
        make_store(objects).topic("orders").read().read_all()


def test_rows_that_entries_do_not_take_in_order_are_corrupt_below_a_root(
    topic: Topic, objects: MemoryStore
) -> None:
    topic.append(table(0, 20))
    key = f"orders/{commit_path(1)}"
    topic._log.manifest.write_root(topic.at().snapshot, lambda: "leaf")
    body = json.loads(objects.read(key) or b"")
    body["add"][0]["path"] = body["add"][0]["path"].replace("@0", "@1")
    other = body["add"][1]["partition"]
    del body["checksum"]
    text = json.dumps(body)[:-1]
    objects.write(key, f'{text},"checksum":"{checksum(text.encode())}"}}'.encode())
    with pytest.raises(CorruptTopicError, match="INL-3"):
        make_store(objects).topic("orders").read(partition=other).read_all()


def test_who_does_not_know_the_feature_refuses_and_writes_nothing(
    topic: Topic, objects: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.append(table(0, 3))
    before = [entry.key for entry in objects.list()]
    known = frozenset({"column-mapping"})
    monkeypatch.setattr(json_codec, "READER_FEATURES", known)
    monkeypatch.setattr(json_codec, "WRITER_FEATURES", known)
    with pytest.raises(UnsupportedFormatError, match="inline-batches"):
        make_store(objects).topic("orders")
    with pytest.raises(UnsupportedFormatError, match="inline-batches"):
        topic.append(table(3, 3))
    assert [entry.key for entry in objects.list()] == before


def test_files_of_an_append_that_lost_its_race_to_a_newer_release_are_removed(
    objects: MemoryStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot decode the commit that has won, so that one is not its own."""
    newer = make_store(objects, clock)
    config = {**IN_FILES, "combined.appends": "false"}
    topic = newer.create_topic("orders", 3, config=config)
    topic.append(table(0, 1))
    known = json_codec.READER_FEATURES, json_codec.WRITER_FEATURES
    steps = [
        lambda: topic.alter(config={"inline.max.bytes": LIMIT}),
        lambda: topic.append(table(1, 1)),
    ]

    def know(reading: frozenset[str], writing: frozenset[str]) -> None:
        monkeypatch.setattr(json_codec, "READER_FEATURES", reading)
        monkeypatch.setattr(json_codec, "WRITER_FEATURES", writing)

    def meanwhile(verb: str, key: str) -> None:
        if verb == "create" and "_manifest/" in key and steps:
            know(*known)
            steps.pop(0)()
            know(*(features - {"inline-batches"} for features in known))

    older = make_store(FaultyStore(objects, meanwhile), clock).topic("orders")
    clock.tick(DAY_MS // 24)  # it asks for the newest state first
    with pytest.raises(UnsupportedFormatError, match="inline-batches") as refused:
        older.append(table(2, 1))
    know(*known)
    assert not steps
    assert not refused.value.may_have_landed
    live = {f"orders/{path}" for path in topic.segments()["path"].to_pylist() if "@" not in path}
    assert {*data_files(objects)} == live


def test_a_root_is_written_when_the_tail_has_many_bytes(topic: Topic, objects: MemoryStore) -> None:
    topic.alter(config={"inline.max.bytes": 1 << 20})
    for n in range(50):
        topic.append(noise(64, n))
    roots = [key for key in manifest(objects) if key.endswith(".root.json")]
    sizes = [
        entry.size_bytes for entry in objects.list("orders/_manifest/") if ".root" not in entry.key
    ]
    assert len(roots) >= sum(sizes) // (3 << 19) >= 1
    assert all(b'"rows"' not in (objects.read(key) or b"") for key in roots)
    assert topic.verify(data=True)


class TestByDefault:
    def test_a_new_topic_announces_the_feature_and_a_small_append_is_one_object(
        self, objects: MemoryStore
    ) -> None:
        topic = make_store(objects).create_topic("orders", 6)
        first = json_codec.decode_commit(objects.read(f"orders/{commit_path(0)}") or b"", 0)
        assert first.protocol is not None
        assert first.protocol.reader_features == ("inline-batches",)
        topic.append(table(0, 100, size=100))
        assert not data_files(objects)

    def test_a_topic_of_an_earlier_release_stays_readable_for_it_until_somebody_asks(
        self, objects: MemoryStore
    ) -> None:
        make_store(objects).create_topic("orders", config=IN_FILES)
        first = f"orders/{commit_path(0)}"
        objects.write(first, edited(objects.read(first), lambda c: c["topic"].pop("config")))
        topic = make_store(objects).topic("orders")
        topic.append(table(0, 3))
        assert len(data_files(objects)) == 1
        assert not topic._log.known.protocol.reader_features
        assert topic.describe().config["inline.max.bytes"] == "0"
        topic.alter(config={"inline.max.bytes": LIMIT})
        assert topic.describe().config["inline.max.bytes"] == str(LIMIT)
        topic.append(table(3, 3))
        assert len(data_files(objects)) == 1
        assert topic.count() == 6

    def test_a_topic_created_with_0_has_no_feature(self, objects: MemoryStore) -> None:
        topic = make_store(objects).create_topic("orders", config={"inline.max.bytes": 0})
        topic.append(table(0, 3))
        assert not topic._log.known.protocol.reader_features
        assert data_files(objects)


@pytest.mark.parametrize("how", ["erase", "delete_records", "merge", "compact"])
def test_a_vacuum_removes_records_in_commits_that_are_no_longer_live(
    topic: Topic, objects: MemoryStore, clock: Clock, how: str
) -> None:
    """Also in a topic of few commits, which had no root before."""
    secret = pa.table({"key": [b"p"], "value": [b"SECRET"]})
    at = topic.append(secret)
    topic.append(table(0, 3))
    if how == "erase":
        topic.erase(keys=[b"p"])
    elif how == "delete_records":
        topic.delete_records({number: end for number, (_, end) in at.offsets.items()})
    elif how == "merge":
        topic.merge()
        topic.erase(keys=[b"p"])
    else:
        topic.append(pa.table({"key": [b"p"], "value": [b"newer"]}))
        topic.alter(config={"cleanup.policy": "compact"})
        topic.compact(force=True)
    left = values(topic)
    assert b"SECRET" not in left
    clock.tick(8 * DAY_MS)
    removed = topic.vacuum(dry_run=False).files
    assert commit_path(at.version) in removed
    for entry in objects.list():
        assert not entry.key.endswith(commit_path(at.version))
    fresh = make_store(objects, clock=clock).topic("orders")
    assert values(fresh) == left
    assert fresh.verify(data=True)
