"""A Delta table whose log was damaged, removed in part, or no longer fits to the topic: readers
never see wrong rows for long, and errors say what to do."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from pylogtable import (
    CorruptTopicError,
    InvalidRequestError,
    LogTableError,
    Store,
    Topic,
)
from pylogtable.limits import DEFAULT_LIMITS
from tests.builders import Clock
from tests.publish.damage import (
    delete_number,
    disturbed,
    each_time_restored,
    publish,
)
from tests.publish.plain_delta import check_newest, check_table, edit, entry, with_state
from tests.stores import AgingDisk, Fault, SimulatedCrash

DAY = 86_400_000
FORMATS = ["delta"]
WAY_OUT = r"PUB-1.*unpublish the topic and publish it again"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "t" / "_delta_log"


def checkpoint(log: Path, number: int) -> Path:
    return log / f"{number:020d}.checkpoint.parquet"


@pytest.mark.parametrize("lost", [[3], [3, 4], [10], [10, 11], [11]])
def test_missing_entry_is_noticed_and_nothing_is_written(
    topic: Topic, store: Store, log: Path, lost: list[int]
) -> None:
    publish(topic, FORMATS, 11 if lost == [10] else 13 if lost[0] > 9 else 8)
    for number in lost:
        entry(log, number).unlink()
    if lost == [3] or lost == [3, 4]:
        checkpoint(log, 0).unlink()  # it does not bridge the gap
    before = sorted(log.iterdir())
    topic = store.topic("t")
    topic.append(pa.table({"k": ["c"], "v": [1]}))
    for use in (topic.publish, lambda: topic.vacuum(dry_run=False)):
        with pytest.raises(CorruptTopicError, match=WAY_OUT):
            use()
    assert sorted(log.iterdir()) == before
    topic.unpublish()
    topic.publish()
    check_newest(topic, log.parent)


def test_missing_entry_is_noticed_after_a_while_by_one_that_knew_the_table(
    topic: Topic, clock: Clock, log: Path
) -> None:
    publish(topic, FORMATS, 8)
    entry(log, 3).unlink()
    checkpoint(log, 0).unlink()
    clock.tick(DEFAULT_LIMITS.table_known_ms + 1)
    topic.append(pa.table({"k": ["c"], "v": [1]}))
    with pytest.raises(CorruptTopicError, match=WAY_OUT):
        topic.publish()
    assert not entry(log, 8).exists()


def test_entries_below_a_checkpoint_are_not_needed(topic: Topic, log: Path) -> None:
    publish(topic, FORMATS, 12)
    entry(log, 4).unlink()
    publish(topic, FORMATS)
    check_newest(topic, log.parent)


def old_log(topic: Topic, clock: Clock) -> None:
    """A log of which vacuum has removed the oldest entries: it begins at checkpoint 10."""
    publish(topic, FORMATS, 13)
    clock.tick(8 * DAY)
    topic.vacuum(dry_run=False)


def test_unpublish_that_was_killed_at_any_step_leaves_a_right_or_a_known_wreck(
    topic: Topic, disk: AgingDisk, clock: Clock, log: Path, tmp_path: Path
) -> None:
    old_log(topic, clock)
    rows = topic.read(columns=["offset"]).read_all().num_rows
    wrecks: list[str] = []
    for at in each_time_restored(log):
        dying = disturbed(disk, clock, delete_number(at), lambda: Fault.CRASH_AFTER)
        with pytest.raises(SimulatedCrash):
            dying.unpublish()
        if list(log.iterdir()):
            offsets = deltalake.DeltaTable(log.parent).to_pyarrow_table(columns=["offset"])
            assert offsets.num_rows <= rows
        try:
            topic.publish()
        except CorruptTopicError as error:
            wrecks.append(str(error))
            topic.unpublish()
            topic.publish()
        check_newest(topic, log.parent)
        topic.unpublish()
    (wreck,) = wrecks  # the checkpoint without its entry
    assert "unpublish the topic and publish it again" in wreck


def test_publication_beside_an_unpublish_at_any_step_leaves_no_table_or_a_right_one(
    topic: Topic, disk: AgingDisk, clock: Clock, log: Path
) -> None:
    old_log(topic, clock)
    wrecks: list[CorruptTopicError] = []

    def happen() -> None:
        try:
            topic.publish()
        except CorruptTopicError as error:
            wrecks.append(error)

    for at in each_time_restored(log):
        topic.append(pa.table({"k": ["c"], "v": [at]}))
        disturbed(disk, clock, delete_number(at), happen).unpublish()
        assert not list(log.iterdir())
        topic.publish()
        check_newest(topic, log.parent)
        topic.unpublish()
    assert len(wrecks) == 1  # it met the checkpoint without its entry


def test_lost_hint_is_written_again_and_the_checkpoint_is_found_without_it(
    topic: Topic, store: Store, clock: Clock, log: Path
) -> None:
    old_log(topic, clock)
    (log / "_last_checkpoint").unlink()
    assert topic.publish().tables[0].steps == 0
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 12
    topic.publish()
    (log / "_last_checkpoint").unlink()
    publish(store.topic("t"), FORMATS)
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 13
    topic.vacuum(dry_run=False)
    check_newest(topic, log.parent)


@pytest.mark.records_in("files")
@pytest.mark.parametrize("size", [None, 0, 100])
def test_damaged_checkpoint_is_written_again_if_the_entries_are_there(
    topic: Topic, log: Path, clock: Clock, size: int | None
) -> None:
    publish(topic, FORMATS, 13)
    damage(checkpoint(log, 10), size)
    clock.tick(8 * DAY)
    assert topic.vacuum(dry_run=False).table_files == 0
    topic.publish()
    assert checkpoint(log, 12).exists()
    check_newest(topic, log.parent)


@pytest.mark.parametrize("size", [None, 0, 100])
def test_lost_checkpoint_is_named_if_the_entries_below_are_gone(
    topic: Topic, log: Path, clock: Clock, size: int | None
) -> None:
    old_log(topic, clock)
    damage(checkpoint(log, 10), size)
    with pytest.raises(CorruptTopicError, match=WAY_OUT):
        topic.publish()
    topic.unpublish()
    publish(topic, FORMATS)
    check_newest(topic, log.parent)


def damage(path: Path, size: int | None) -> None:
    path.unlink() if size is None else path.write_bytes(path.read_bytes()[:size])


def test_version_beyond_the_newest_is_not_believed(topic: Topic, log: Path) -> None:
    publish(topic, FORMATS, 2)
    with_state(entry(log, 1), version=999)
    publish(topic, FORMATS)
    check_newest(topic, log.parent)


@pytest.mark.records_in("files")
def test_state_without_a_commit_id_is_believed(topic: Topic, log: Path) -> None:
    publish(topic, FORMATS, 2)
    edit(entry(log, 1), lambda a: a.get("commitInfo", {}).get("pylogtable", {}).pop("commit_id", 0))
    assert topic.publish().tables[0].steps == 0
    publish(topic, FORMATS)
    check_newest(topic, log.parent)


@pytest.mark.parametrize("copies", [{"x": []}, {"x": 5}, []])
def test_copies_that_are_wrong_are_an_error_of_ours(
    topic: Topic, log: Path, copies: object
) -> None:
    publish(topic, FORMATS)
    with_state(entry(log, 0), copies=copies)
    topic.append(pa.table({"k": ["c"], "v": [1]}))
    with pytest.raises(CorruptTopicError, match="PUB-5"):
        topic.publish()


def test_copy_of_a_partition_that_does_not_exist_is_dropped(topic: Topic, log: Path) -> None:
    publish(topic, FORMATS)
    copy = {
        "path": "partition=77/x.parquet",
        "partition": 77,
        "base_offset": 0,
        "end_offset": 1,
        "records": 1,
        "size_bytes": 9,
        "min_timestamp_us": 0,
        "max_timestamp_us": 0,
    }
    with_state(entry(log, 0), copies={"partition=77/y.parquet": [copy]})
    publish(topic, FORMATS)
    check_newest(topic, log.parent)


@pytest.mark.parametrize(
    "wrong",
    [
        {"add": None},
        {"add": {}},
        {"add": {"path": 5}},
        {"add": {"path": ["x"]}},
        {"add": {"path": None}},
        {"add": {"path": "x", "size": "many"}},
        {"add": {"path": "x", "size": 2**70}},
        {"add": {"path": "x", "size": 1}},
        {"add": {"path": "x", "size": 1, "partitionValues": {"partition": "five"}}},
        {"add": {"path": "x", "size": 1, "partitionValues": 7}},
        {"remove": []},
        {"metaData": None},
        {"protocol": 5},
    ],
)
def test_wrong_action_is_an_error_of_ours(
    topic: Topic, log: Path, wrong: dict[str, object]
) -> None:
    publish(topic, FORMATS, 2)
    with entry(log, 1).open("a") as file:
        file.write(f"{json.dumps(wrong)}\n")
    with pytest.raises(CorruptTopicError, match=WAY_OUT):
        topic.vacuum(dry_run=False)
    publish(topic, FORMATS)  # needs only the state
    topic.unpublish()
    topic.publish()
    check_newest(topic, log.parent)


@pytest.mark.parametrize("data", [b"", b"\n", b"\n  \n"])
def test_empty_entry_is_damaged_and_not_somebody_elses(
    topic: Topic, log: Path, data: bytes
) -> None:
    publish(topic, FORMATS, 2)
    entry(log, 1).write_bytes(data)
    with pytest.raises(CorruptTopicError, match=WAY_OUT):
        topic.publish()
    topic.unpublish()
    topic.publish()
    check_newest(topic, log.parent)


def test_log_of_somebody_else_that_was_cleaned_up_stays(topic: Topic, log: Path) -> None:
    log.mkdir()
    entry(log, 25).write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    for use in (topic.publish, topic.unpublish):
        with pytest.raises(InvalidRequestError, match="move it away"):
            use()
    assert entry(log, 25).exists()


def test_bounds_of_early_years_have_four_digits(topic: Topic, log: Path) -> None:
    early = pa.array([-46_388_678_400_000_000], pa.timestamp("us", "UTC"))
    topic.append(pa.table({"k": ["a"], "v": [1], "timestamp": early}))
    topic.publish()
    adds = [json.loads(line).get("add") for line in entry(log, 0).read_text().splitlines()]
    (stats,) = [json.loads(add["stats"]) for add in adds if add]
    assert stats["minValues"]["timestamp"] == "0500-01-01T00:00:00.000Z"


def problems(topic: Topic) -> list[tuple[str, str]]:
    return [(problem.rule, problem.path) for problem in topic.verify().problems]


def test_verify_names_files_that_the_table_shows_and_that_are_missing(
    topic: Topic, tmp_path: Path
) -> None:
    publish(topic, FORMATS, 3)
    shown = topic.segments()["path"].to_pylist()
    topic.merge()
    assert problems(topic) == []
    (tmp_path / "t" / shown[1]).unlink()  # the topic no longer needs it, but the table does
    assert problems(topic) == [("PUB-1", shown[1])]
    topic.publish()
    assert problems(topic) == []


def test_verify_names_a_table_that_cannot_be_read(topic: Topic, log: Path) -> None:
    publish(topic, FORMATS, 3)
    entry(log, 1).unlink()
    assert problems(topic) == [("PUB-1", f"_delta_log/{1:020d}.json")]
    with_state(entry(log, 2), format=3)
    assert problems(topic) == [("PUB-5", "_delta_log/")]
    entry(log, 2).write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    assert problems(topic) == []  # of somebody else


def test_any_lost_object_of_the_log_is_an_error_of_ours_or_no_matter(
    topic: Topic, log: Path, clock: Clock
) -> None:
    old_log(topic, clock)
    kept = {path: path.read_bytes() for path in log.iterdir()}
    for lost in kept:
        log.mkdir(exist_ok=True)
        for path, data in kept.items():
            path.write_bytes(data)
        lost.unlink()
        try:
            publish(topic, FORMATS)
        except LogTableError:
            topic.unpublish()
            topic.publish()
        check_newest(topic, log.parent)
        topic.unpublish()


def test_entry_that_follows_one_of_a_removed_table_is_refused(topic: Topic, log: Path) -> None:
    """Its publisher died before it could remove it [PUB-1]."""
    publish(topic, FORMATS, times=2)
    stray = entry(log, 1).read_bytes()
    topic.unpublish(FORMATS)
    publish(topic, FORMATS)
    entry(log, 1).write_bytes(stray)
    with pytest.raises(CorruptTopicError, match=WAY_OUT):
        topic.publish(FORMATS)
    topic.unpublish(FORMATS)
    topic.publish(FORMATS)
    check_table(topic, topic._store)
