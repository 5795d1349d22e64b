"""`verify` names each kind of damage: the broken rule and the object it is in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable import CorruptTopicError, Topic
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import ints, kafka, limited, make_store, replace_file, rows, times
from tests.tamper import edited

pytestmark = pytest.mark.records_in("files")

LAST = f"_manifest/{3:020d}.json"


@pytest.fixture
def topic(store: Store) -> Topic:
    """Two partitions; partition 0 has two segments of 3 and 2 records with a tombstone each."""
    topic = store.create_topic("t", partitions=2)
    for values in (["a", None, "c"], ["d", None]):
        count = len(values)
        stamps = times(*range(count))
        topic.append(kafka(["k"] * count, values, partition=ints(*[0] * count), timestamp=stamps))
    topic.append(kafka(["k"], partition=ints(1)))
    return topic


@pytest.fixture
def below(objects: MemoryStore) -> ObjectStore:
    return objects.below("t")


def edit_json(store: ObjectStore, path: str, change: Callable[[Any], None]) -> None:
    store.write(path, edited(store.read(path), change))


def edit_file(
    objects: MemoryStore,
    topic: Topic,
    change: Callable[[pa.Table], pa.Table],
    groups: int | None = None,
) -> str:
    """Rewrite partition 0's first segment, and its entry."""
    path = rows(topic.segments(), "path")[0]
    table = change(pq.read_table(pa.BufferReader(objects.read(f"t/{path}"))))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=groups)
    replace_file(objects, "t", path, sink.getvalue().to_pybytes())
    return str(path)


def problems(objects: MemoryStore, *, data: bool = False) -> list[tuple[str, str]]:
    report = make_store(objects).topic("t").verify(data=data)
    assert bool(report) == (not report.problems)
    for problem in report.problems:
        assert f"breaks [{problem.rule}]" in str(report)
        assert problem.path in str(report)
    return [(problem.rule, problem.path) for problem in report.problems]


def test_sound_topic_has_no_problems_and_a_count_of_what_was_checked(topic: Topic) -> None:
    report = topic.verify(data=True)
    assert report
    assert (report.commits, report.leaves, report.segments, report.records) == (4, 0, 3, 6)
    assert str(report).startswith("sound: 4 commits, ")
    assert str(report).endswith(" 6 records read")
    assert str(topic.verify()).endswith(" 0 records read")


def test_missing_file_is_reported(topic: Topic, objects: MemoryStore, below: ObjectStore) -> None:
    path = rows(topic.segments(), "path")[1]
    below.delete(path)
    assert problems(objects) == [("SEG-1", path)]


def test_file_of_wrong_size_is_reported(
    topic: Topic, objects: MemoryStore, below: ObjectStore
) -> None:
    path = rows(topic.segments(), "path")[1]
    below.write(path, (below.read(path) or b"") + b"x")
    assert problems(objects) == [("SEG-5", path)]


def test_file_that_is_not_parquet_is_reported(
    topic: Topic, objects: MemoryStore, below: ObjectStore
) -> None:
    path = rows(topic.segments(), "path")[1]
    below.write(path, b"x" * len(below.read(path) or b""))
    assert problems(objects) == []
    assert problems(objects, data=True) == [("SEG-2", path)]
    with pytest.raises(CorruptTopicError, match=r"breaks \[SEG-2\]"):
        rows(topic.read(0))


def replaced(name: str, values: list[Any]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        return table.set_column(at, field, pa.array(values, field.type))

    return change


@pytest.mark.parametrize(
    ("change", "groups", "rule"),
    [
        (replaced("offset", [0, 2, 1]), None, "SEG-11"),
        (replaced("offset", [0, 1, 9]), None, "SEG-11"),
        (replaced("offset", [1, 2, 3]), None, "SEG-11"),
        (replaced("offset", [0, 1, 1]), None, "SEG-11"),
        (replaced("timestamp", [0, 0, 0]), None, "SEG-5"),
        (replaced("value", [b"a", b"b", b"c"]), None, "SEG-5"),
        (replaced("value", [None, None, None]), None, "SEG-5"),
        (lambda table: table.slice(0, 2), None, "SEG-5"),
        (lambda table: table, 1, "SEG-5"),
        (lambda table: table.append_column("stray", pa.array([1, 2, 3])), None, "SEG-3"),
    ],
    ids=[
        "order",
        "beyond the end",
        "not at the base",
        "twice",
        "time bounds",
        "fewer tombstones",
        "more tombstones",
        "fewer records",
        "row groups",
        "columns",
    ],
)
def test_file_that_contradicts_the_manifest_is_reported(
    topic: Topic,
    objects: MemoryStore,
    below: ObjectStore,
    change: Callable[[pa.Table], pa.Table],
    groups: int | None,
    rule: str,
) -> None:
    path = edit_file(objects, topic, change, groups)
    assert problems(objects, data=True) == [(rule, path)]


@pytest.mark.parametrize("second", [1, 2])
def test_row_group_that_begins_at_another_offset_is_reported(
    topic: Topic, objects: MemoryStore, below: ObjectStore, second: int
) -> None:
    path = edit_file(objects, topic, lambda table: table, groups=2)

    def claim(commit: Any) -> None:
        commit["add"][0]["row_groups"] = [0, second]

    edit_json(below, f"_manifest/{1:020d}.json", claim)
    assert problems(objects, data=True) == ([] if second == 2 else [("SEG-11", path)])


def test_commit_beyond_a_missing_one_is_reported(
    topic: Topic, objects: MemoryStore, below: ObjectStore
) -> None:
    for _ in range(3):
        topic.append(kafka(["x"]))
    below.delete(f"_manifest/{4:020d}.json")
    below.delete(f"_manifest/{5:020d}.json")
    assert ("COMMIT-3", f"_manifest/{4:020d}.json") in problems(objects)


Edit = Callable[[Any], None]
COMMITS: list[tuple[str, str, Edit]] = [
    ("COMMIT-1", "not an int", lambda c: c.update(committed_at_ms="soon")),
    ("COMMIT-2", "version", lambda c: c.update(version=7)),
    ("COMMIT-6", "time", lambda c: c.update(committed_at_ms=1)),
    ("COMMIT-10", "parent", lambda c: c.update(parent="another")),
    ("META-2", "created twice", lambda c: c.update(operation="create")),
    ("META-3", "partition", lambda c: c["add"][0].update(partition=5, path=f"partition=5/{0:020d}-a.parquet")),  # noqa: E501
    ("SEG-10", "more records than offsets", lambda c: c["add"][0].update(base_offset=1)),
    ("LOG-2", "records", lambda c: c["add"][0].update(records=0)),
    ("LOG-2", "end", lambda c: c.update(ends={})),
    ("LOG-2", "wrong end", lambda c: c.update(ends={"1": 9})),
    ("LOG-6", "log start", lambda c: c.update(log_starts=[{"partition": 0, "offset": 99}])),
    ("PATH-4", "outside", lambda c: c["add"][0].update(path="../../etc/passwd")),
    ("PATH-4", "of another partition", lambda c: c["add"][0].update(path=f"partition=0/{0:020d}-a.parquet")),  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize(("rule", "what", "change"), COMMITS, ids=[c[1] for c in COMMITS])
def test_commit_that_cannot_be_applied_stops_every_reader(
    topic: Topic, objects: MemoryStore, below: ObjectStore, rule: str, what: str, change: Edit
) -> None:
    edit_json(below, LAST, change)
    with pytest.raises(CorruptTopicError) as raised:
        make_store(objects).topic("t")
    assert (raised.value.rule, raised.value.path) == (rule, LAST)


@pytest.fixture
def indexed(store: Store) -> Topic:
    """A topic with a root at version 64 and leaves."""
    store = limited(store, tail_max=10)
    topic = store.create_topic("t")
    for _ in range(66):
        topic.append(kafka(["k"]))
    return topic


def leaf_of(below: ObjectStore) -> str:
    return next(info.key for info in below.list() if "leaf-" in info.key)


@pytest.mark.parametrize(
    ("damage", "has_sum", "rule"),
    [
        ("missing", True, "LEAF-1"),
        ("garbage", True, "SUM-2"),
        ("garbage", False, "LEAF-1"),
        ("order", True, "SUM-2"),
        ("order", False, "LEAF-1"),
    ],
)
def test_damaged_leaf_is_reported(
    indexed: Topic, objects: MemoryStore, below: ObjectStore, damage: str, has_sum: bool, rule: str
) -> None:
    path = leaf_of(below)
    if not has_sum:  # as an older writer leaves it
        root = next(info.key for info in below.list() if info.key.endswith(".root.json"))
        edit_json(below, root, lambda body: body.pop("leaf_checksums"))
    if damage == "missing":
        below.delete(path)
    elif damage == "garbage":
        below.write(path, b"garbage")
    else:
        table = pq.read_table(pa.BufferReader(below.read(path)))
        sink = pa.BufferOutputStream()
        pq.write_table(table.take(list(range(table.num_rows))[::-1]), sink)
        below.write(path, sink.getvalue().to_pybytes())
    assert (rule, path) in problems(objects)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: root["partitions"][0]["live"].update(records=1),
        lambda root: root["topic"].update(partitions=1, config={"retention.ms": "1"}),
        lambda root: root["txns"].update(app=[1, 1]) if "txns" in root else root.update(txns={"app": [1, 1]}),  # noqa: E501
    ],
    ids=["totals", "topic", "txns"],
)  # fmt: skip
def test_index_that_disagrees_with_the_commits_is_reported(
    indexed: Topic, objects: MemoryStore, below: ObjectStore, change: Edit
) -> None:
    edit_json(below, f"_manifest/{64:020d}.root.json", change)
    assert {rule for rule, _ in problems(objects)} == {"ROOT-5"}


def test_verify_changes_nothing(indexed: Topic, objects: MemoryStore) -> None:
    before = [(info.key, info.modified_ms) for info in objects.list()]
    assert indexed.verify(data=True)
    assert [(info.key, info.modified_ms) for info in objects.list()] == before


@pytest.fixture
def changelog(store: Store) -> Topic:
    """A compacted topic. Offsets 1 and 2 remain, and 3 is dirty."""
    topic = store.create_topic("t", config={"cleanup.policy": "compact"})
    topic.append(kafka(["a", "a", "b"], ["1", "2", None]))
    topic.compact()
    topic.append(kafka(["a"], ["3"]))
    assert topic.verify(data=True)
    return topic


COMPACTED = f"_manifest/{2:020d}.json"


def test_clean_end_beyond_the_end_is_reported(
    changelog: Topic, objects: MemoryStore, below: ObjectStore
) -> None:
    changelog._log.manifest.write_root(changelog.at().snapshot, lambda: "r")

    def too_far(root: Any) -> None:
        root["partitions"][0]["clean_end"] = 9

    edit_json(below, f"_manifest/{3:020d}.root.json", too_far)
    assert problems(objects) == [("ROOT-6", f"_manifest/{3:020d}.root.json")]


def test_clean_end_that_differs_from_the_commits_is_reported(
    changelog: Topic, objects: MemoryStore, below: ObjectStore
) -> None:
    changelog._log.manifest.write_root(changelog.at().snapshot, lambda: "r")

    def less(root: Any) -> None:
        root["partitions"][0]["clean_end"] = 1

    edit_json(below, f"_manifest/{3:020d}.root.json", less)
    assert problems(objects) == [("ROOT-5", f"_manifest/{3:020d}.root.json")]


def test_delete_horizon_without_tombstones_is_reported(
    changelog: Topic, objects: MemoryStore, below: ObjectStore
) -> None:
    def forget(commit: Any) -> None:
        del commit["add"][0]["tombstones"]

    edit_json(below, COMPACTED, forget)
    path = rows(changelog.segments(), "path")[0]
    assert problems(objects) == [("CLEAN-4", path)]


def test_repeated_key_in_the_clean_part_is_reported(
    changelog: Topic, objects: MemoryStore, below: ObjectStore
) -> None:
    def claim(commit: Any) -> None:
        commit["cleaned"] = {"0": 4}

    edit_json(below, LAST, claim)
    assert problems(objects) == []
    assert problems(objects, data=True) == [("LOG-9", "partition=0")]


def test_record_without_a_key_in_the_clean_part_is_reported(
    store: Store, objects: MemoryStore, below: ObjectStore
) -> None:
    topic = store.create_topic("t")
    topic.append(kafka([None, "a"]))

    def claim(commit: Any) -> None:
        commit["cleaned"] = {"0": 2}

    edit_json(below, f"_manifest/{1:020d}.json", claim)
    assert problems(objects, data=True) == [("LOG-9", "partition=0")]


def test_same_key_in_two_partitions_is_allowed(store: Store) -> None:
    topic = store.create_topic("t", partitions=2, config={"cleanup.policy": "compact"})
    topic.append(kafka(["a", "a", "a"], partition=ints(0, 1, 1)))
    topic.compact()
    assert topic.verify(data=True)
