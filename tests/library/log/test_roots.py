"""Roots and leaves are believed only if they agree with themselves and with the commits."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable import CorruptTopicError, Store, Topic
from pylogtable.format.model import (
    Field,
    LeafRef,
    Protocol,
    Root,
    RootPartition,
    RootRun,
    TopicInfo,
    Totals,
)
from pylogtable.format.partition_state import LeafRun
from pylogtable.format.paths import HINT_PATH, commit_path, leaf_path, root_path
from pylogtable.format.roots import from_root
from pylogtable.limits import Limits
from pylogtable.log.manifest import Manifest
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import contents, ints, kafka, make_store
from tests.stores import CountingStore
from tests.tamper import edited

pytestmark = pytest.mark.records_in("commits", "files")

Edit = Callable[[dict[str, Any]], object]
OLD, NEW = 12, 24


@pytest.fixture
def objects() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def below(objects: MemoryStore) -> ObjectStore:
    return objects.below("t")


@pytest.fixture
def store(objects: MemoryStore, in_files: bool) -> Store:
    """A topic with a record in each of 28 versions, and roots with a leaf at versions 12 and 24."""
    made = make_store(objects, limits=Limits(tail_max=4), in_files=in_files)
    topic = made.create_topic("t", partitions=2)
    for number in range(28):
        topic.append(kafka([f"k{number}"], partition=ints(number % 2)))
        if topic.version in (OLD, NEW):
            fresh = made.topic("t")
            fresh._log.manifest.write_root(fresh._log.known, lambda: f"leaf{topic.version}")
    return made


def tamper(below: ObjectStore, path: str, change: Edit) -> None:
    below.write(path, edited(below.read(path), change))


def part(root: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = root["partitions"][0]
    return found


def rows_of(topic: Topic) -> list[tuple[int, int]]:
    table = topic.read(columns=["partition", "offset"]).read_all()
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


EVERYTHING = [(partition, offset) for partition in (0, 1) for offset in range(14)]

LIES: dict[str, Edit] = {
    "a run twice": lambda root: part(root)["runs"].append(part(root)["runs"][0]),
    "a run that ends early": lambda root: part(root)["runs"][0].__setitem__(2, 3),
    "no runs": lambda root: part(root).update(runs=[]),
    "an end too far": lambda root: part(root).update(end=30),
    "a log start too far": lambda root: part(root).update(log_start=40),
    "a clean end too far": lambda root: part(root).update(clean_end=40),
    "too many records": lambda root: part(root)["live"].update(records=99),
    "too few segments": lambda root: part(root)["live"].update(segments=1),
    "one partition": lambda root: root["partitions"].pop(),
    "a leaf that nobody uses": lambda root: root["leaves"].append(["other", 1]),
    "a txn of the future": lambda root: root.update(txns={"a": [1, 99]}),
    "no key for a compacted topic": lambda root: root["topic"].update(key=["nothing"]),
    "another checksum": lambda root: root.update(checksum="00000000"),
}
CONTRADICTIONS: dict[str, Edit] = {
    "an empty partition at another end": lambda root: part(root).update(
        log_start=40, end=40, live={}, inline={}, runs=[], tail=[]
    ),
    "another commit": lambda root: root.update(commit_id="other"),
    "another topic": lambda root: root.update(topic_id="other"),
    "another time": lambda root: root.update(committed_at_ms=10**14),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=list(LIES))
def test_root_that_contradicts_itself_is_ignored_and_reported(
    store: Store, below: ObjectStore, lie: Edit, caplog: pytest.LogCaptureFixture
) -> None:
    tamper(below, root_path(NEW), lie)
    topic = store.topic("t")
    assert rows_of(topic) == EVERYTHING
    assert topic.count() == 28
    assert topic.append(kafka(["x"], partition=ints(0))).offsets == {0: (14, 15)}
    assert "a root of" in caplog.text
    assert [problem.path for problem in topic.verify().problems] == [root_path(NEW)]


@pytest.mark.parametrize("lie", CONTRADICTIONS.values(), ids=list(CONTRADICTIONS))
def test_root_that_contradicts_later_commits_is_ignored_and_reported(
    store: Store, below: ObjectStore, lie: Edit
) -> None:
    tamper(below, root_path(NEW), lie)
    topic = store.topic("t")
    assert rows_of(topic) == EVERYTHING
    assert rows_of(store.topic("t")) == EVERYTHING
    assert topic.at(26).count() == 26
    problems = [(problem.rule, problem.path) for problem in topic.verify().problems]
    assert problems == [("ROOT-5", root_path(NEW))]


def test_read_of_a_whole_partition_finds_segments_that_do_not_add_up(
    store: Store, below: ObjectStore
) -> None:
    def one_less(root: Any) -> None:
        for totals in filter(None, (part(root)["live"], part(root).get("inline"))):
            totals["records"] -= 1

    tamper(below, root_path(NEW), one_less)
    topic = store.topic("t")
    with pytest.raises(CorruptTopicError, match=r"ROOT-5.*add up"):
        topic.read(0).read_all()
    assert topic.read(0, 1, 4).read_all().num_rows == 3


def test_all_roots_may_be_wrong(store: Store, below: ObjectStore) -> None:
    for version in (OLD, NEW):
        tamper(below, root_path(version), LIES["a run twice"])
    assert rows_of(store.topic("t")) == EVERYTHING


def test_unusable_root_without_its_commits_is_an_error_and_not_a_missing_topic(
    store: Store, below: ObjectStore
) -> None:
    below.delete(root_path(OLD))
    for version in range(NEW + 1):
        below.delete(commit_path(version))
    assert rows_of(store.topic("t")) == EVERYTHING
    tamper(below, root_path(NEW), LIES["a run twice"])
    with pytest.raises(CorruptTopicError) as caught:
        store.topic("t")
    assert (caught.value.rule, caught.value.path) == ("COMMIT-3", commit_path(0))
    assert f"{root_path(NEW)} breaks [ROOT-6]" in str(caught.value)
    assert store.topics() == ["t"]


@pytest.mark.records_in("files")
def test_root_without_its_commit_is_not_used_if_a_void_commit_follows(
    store: Store, below: ObjectStore
) -> None:
    """It may be the root of another topic [COMMIT-11]. Then nothing is left to begin at."""
    tamper(below, commit_path(NEW + 1), lambda commit: commit.update(topic_id="another"))
    below.delete(root_path(OLD))
    for version in range(NEW + 1):
        below.delete(commit_path(version))
    with pytest.raises(CorruptTopicError, match="COMMIT-11") as caught:
        store.topic("t")
    assert (caught.value.rule, caught.value.path) == ("COMMIT-3", commit_path(0))


@pytest.mark.records_in("files")
def test_damaged_commit_of_the_newest_root_stops_nobody_and_is_reported(
    store: Store, below: ObjectStore
) -> None:
    topic = store.topic("t")
    topic._log.manifest.write_root(topic.at().snapshot, lambda: "leaf")
    damaged = commit_path(topic.at().version)
    below.write(damaged, b'{"operation":"app')
    before = topic.count()
    for opened in (topic, store.topic("t")):
        assert opened.read().read_all().num_rows == before
    assert topic.append(kafka(["k"])).records == 1
    for opened in (topic, store.topic("t")):
        assert opened.read().read_all().num_rows == before + 1
        assert ("COMMIT-1", damaged) in [(p.rule, p.path) for p in opened.verify().problems]


def test_state_that_ends_before_an_unusable_root_is_not_the_newest(
    store: Store, below: ObjectStore
) -> None:
    """An older root leads to a version that is long gone if the commits after it are missing."""
    for version in range(OLD + 1, NEW + 1):
        below.delete(commit_path(version))
    tamper(below, root_path(NEW), LIES["a run twice"])
    with pytest.raises(CorruptTopicError, match=f"there is a root of version {NEW}") as caught:
        store.topic("t")
    assert (caught.value.rule, caught.value.path) == ("COMMIT-3", commit_path(OLD + 1))


def test_old_hint_finds_the_root_if_the_first_commits_are_gone(
    store: Store, below: ObjectStore
) -> None:
    below.write(HINT_PATH, b'{"root_version":null}')
    for version in range(OLD + 1):
        below.delete(commit_path(version))
    assert rows_of(store.topic("t")) == EVERYTHING


def test_version_below_an_unusable_root_is_read_from_an_older_one(
    store: Store, below: ObjectStore
) -> None:
    tamper(below, root_path(NEW), LIES["an end too far"])
    topic = store.topic("t")
    assert [topic.at(version).count() for version in (3, OLD, 20, NEW, 26)] == [3, 12, 20, 24, 26]


def test_vacuum_stops_at_a_root_that_it_cannot_use(store: Store, below: ObjectStore) -> None:
    tamper(below, root_path(NEW), LIES["a run twice"])
    before = contents(below)
    with pytest.raises(CorruptTopicError, match="remove it") as caught:
        store.topic("t").vacuum(dry_run=True)
    assert (caught.value.rule, caught.value.path) == ("VAC-2", root_path(NEW))
    assert contents(below) == before


def test_damaged_commit_is_not_searched_for_in_older_roots(
    store: Store, objects: MemoryStore, below: ObjectStore
) -> None:
    below.write(commit_path(26), b"{")
    counting = CountingStore(objects)
    with pytest.raises(CorruptTopicError) as caught:
        make_store(counting).topic("t")
    assert caught.value.path == commit_path(26)
    assert counting.counts["list"] == 0


def test_sound_topic_is_opened_without_a_listing(store: Store, objects: MemoryStore) -> None:
    counting = CountingStore(objects)
    make_store(counting).topic("t")
    assert counting.counts["list"] == 0
    assert counting.by_key["read", f"t/{root_path(NEW)}"] == 1
    assert counting.by_key["read", f"t/{root_path(OLD)}"] == 0


def test_writer_that_meets_an_unusable_root_writes_a_new_one(
    store: Store, below: ObjectStore
) -> None:
    tamper(below, root_path(NEW), LIES["a run twice"])
    topic = store.topic("t")
    for _ in range(80):
        topic.append(kafka(["x"]))
    hint = json.loads(below.read(HINT_PATH) or b"")
    assert hint["root_version"] > NEW
    assert store.topic("t").count() == 108


def test_handle_that_was_opened_at_a_wrong_root_recovers(store: Store, below: ObjectStore) -> None:
    """Nothing contradicts the root until somebody commits."""
    sound = store.topic("t")
    sound._log.manifest.write_root(sound._log.known, lambda: "leaf28")
    kept = below.read(root_path(28)) or b""
    tamper(below, root_path(28), CONTRADICTIONS["an empty partition at another end"])
    deceived = store.topic("t")
    assert deceived.end_offsets()[0] == 40
    below.write(root_path(28), kept)
    store.topic("t").append(kafka(["x"], partition=ints(0)))
    assert rows_of(deceived) == sorted([*EVERYTHING, (0, 14)])
    assert deceived.append(kafka(["y"], partition=ints(0))).offsets == {0: (15, 16)}


# --- leaves --------------------------------------------------------------------------------------


def leaf_name(below: ObjectStore) -> str:
    root = json.loads(below.read(root_path(NEW)) or b"")
    return leaf_path(root["leaves"][-1][0])


def change_leaf(below: ObjectStore, change: Callable[[pa.Table], pa.Table]) -> str:
    path = leaf_name(below)
    table = change(pq.read_table(pa.BufferReader(below.read(path))))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    below.write(path, sink.getvalue().to_pybytes())
    return path


def with_value(column: str, row: int, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row] = value
        at = table.schema.get_field_index(column)
        field = table.schema.field(column)
        return table.set_column(at, field, pa.array(values, field.type))

    return change


def use_everything(topic: Topic) -> list[Exception]:
    errors = []
    uses: list[Callable[[], object]] = [
        lambda: rows_of(topic),
        topic.segments,
        lambda: topic.read(partition=0, start=7, end=8).read_all(),
        lambda: topic.latest(),
        lambda: topic.delete_records({0: 8}),
    ]
    for use in uses:
        with pytest.raises(CorruptTopicError) as caught:
            use()
        errors.append(caught.value)
    return errors


def test_leaf_that_was_changed_is_refused(store: Store, below: ObjectStore) -> None:
    path = change_leaf(below, with_value("size_bytes", 0, 1))
    topic = store.topic("t")
    for error in use_everything(topic):
        assert isinstance(error, CorruptTopicError)
        assert (error.rule, error.path) == ("SUM-2", path)


@pytest.mark.records_in("files")
def test_listing_of_segments_finds_a_shift_that_a_floor_contradicts(
    store: Store, below: ObjectStore
) -> None:
    change_leaf(below, with_value("shift", 2, 2))
    tamper(below, root_path(NEW), lambda root: root.pop("leaf_checksums"))
    with pytest.raises(CorruptTopicError, match=r"SEG-10.*with a shift of 2"):
        store.topic("t").segments()


LEAVES: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "an entry is gone": (lambda t: pa.concat_tables([t.slice(0, 2), t.slice(3)]), "LEAF-3"),
    "the first entry is gone": (lambda t: t.slice(1), "LEAF-3"),
    "all entries are gone": (lambda t: t.slice(0, 0), "LEAF-3"),
    "another end": (with_value("end_offset", 2, 10), "LEAF-1"),
    "an empty claim": (with_value("end_offset", 2, 0), "SEG-10"),
    "a negative number of records": (with_value("records", 2, -1), "SEG-10"),
    "too many records": (with_value("records", 2, 9), "SEG-10"),
    "no row groups": (with_value("row_groups", 2, []), "SEG-10"),
    "a late row group": (with_value("row_groups", 2, [1]), "SEG-10"),
    "a negative row group": (with_value("row_groups", 2, [-1]), "SEG-10"),
    "a null row group": (with_value("row_groups", 2, [None]), "SEG-10"),
    "a negative shift": (with_value("shift", 2, -1), "SEG-10"),
    "too many tombstones": (with_value("tombstones", 2, 2), "SEG-10"),
    "times that go back": (with_value("min_timestamp_us", 2, 2**62), "SEG-10"),
    "a late record": (with_value("max_timestamp_us", 2, 2**62), "LEAF-3"),
    "a partition too many": (with_value("partition", 2, 5), "LEAF-1"),
    "a negative horizon": (with_value("delete_horizon_ms", 2, -5), "SEG-10"),
    "hashed over nothing": (with_value("hashed_over", 2, 0), "SEG-10"),
}


@pytest.mark.parametrize(("change", "rule"), LEAVES.values(), ids=list(LEAVES))
def test_leaf_that_is_wrong_is_refused_without_a_checksum(
    store: Store,
    below: ObjectStore,
    change: Callable[[pa.Table], pa.Table],
    rule: str,
) -> None:
    path = change_leaf(below, change)
    tamper(below, root_path(NEW), lambda root: root.pop("leaf_checksums"))
    topic = store.topic("t")
    for error in use_everything(topic):
        assert isinstance(error, CorruptTopicError)
        assert error.path == path
        assert error.rule in {rule, "LEAF-3"}
    assert [problem.path for problem in topic.verify().problems] == [path]


def test_leaf_without_a_known_checksum_is_read(store: Store, below: ObjectStore) -> None:
    """Roots of older writers have no checksums of their leaves."""
    tamper(below, root_path(NEW), lambda root: root.pop("leaf_checksums"))
    topic = store.topic("t")
    assert rows_of(topic) == EVERYTHING
    for _ in range(80):
        topic.append(kafka(["x"]))
    hint = json.loads(below.read(HINT_PATH) or b"")
    root = json.loads(below.read(root_path(hint["root_version"])) or b"")
    known = dict(zip([leaf for leaf, _ in root["leaves"]], root["leaf_checksums"], strict=True))
    assert None in known.values()
    assert any(known.values())
    assert store.topic("t").verify()


def test_ignored_root_is_named_in_the_log(
    store: Store, below: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="pylogtable")
    tamper(below, root_path(NEW), LIES["a run twice"])
    store.topic("t")
    assert root_path(NEW) in caplog.text
    assert "ROOT-6" in caplog.text


def test_run_that_the_log_start_has_passed_means_nothing() -> None:
    """Writers before this check left such runs in roots, so the roots must still be used."""
    root = Root(
        version=64,
        commit_id="c",
        topic_id="t",
        committed_at_ms=1,
        protocol=Protocol(format=1),
        topic=TopicInfo(fields=(Field(name="n", type="long"),), partitions=1, created_at_ms=1),
        partitions=(
            RootPartition(
                log_start=5,
                end=9,
                live=Totals(segments=1, records=4, size_bytes=10),
                runs=(RootRun(0, 0, 5, 1), RootRun(0, 5, 9, 1)),
            ),
        ),
        leaves=(LeafRef("leaf", 2),),
    )
    assert from_root(root).partitions[0].tiles == (LeafRun("leaf", 5, 9, 1),)


def test_who_asks_for_a_leaf_that_is_being_loaded_waits_for_it(
    store: Store, below: ObjectStore
) -> None:
    class Asking(CountingStore):
        """While a leaf is read, another thread asks for it."""

        def read(self, key: str) -> bytes | None:
            if "leaf-" in key and not others:
                others.append(Thread(target=look))
                others[0].start()
            return super().read(key)

    def look() -> None:
        assert state.segment_at(0, 0) is not None

    others: list[Thread] = []
    counting = Asking(below)
    manifest = Manifest(counting)
    newest = manifest.load()
    assert newest is not None
    state = manifest.state(newest)
    look()
    others[0].join()
    leaves = [count for (_, key), count in counting.by_key.items() if "leaf-" in key]
    assert leaves == [1]


def test_a_root_leaves_out_what_a_partition_does_not_have(
    store: Store, objects: MemoryStore
) -> None:
    """In every version of Python."""
    topic = store.create_topic("u", partitions=2)
    topic.append(kafka(["k"], partition=ints(0)))
    topic._log.manifest.write_root(topic._log.known, lambda: "leaf")
    root = json.loads(objects.below("u").read(root_path(topic.version)))
    assert ["tail" in partition for partition in root["partitions"]] == [True, False]
    assert ["runs" in partition for partition in root["partitions"]] == [False, False]
