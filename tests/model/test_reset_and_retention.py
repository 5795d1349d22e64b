"""A group that is reset back and a retention that protects it never miss each other, in any order
of their requests."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pyarrow as pa
import pytest

import pylogtable.groups.group
from pylogtable.append.plan import plan_append
from pylogtable.format.group_model import GroupChange, GroupPosition
from pylogtable.format.json_codec import encode
from pylogtable.format.model import Change, Hint, StagedSegment
from pylogtable.format.paths import HINT_PATH, segment_path
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.job import MaintainedTopic
from pylogtable.log.group_log import GroupLog
from pylogtable.log.manifest import Manifest
from pylogtable.log.topic_log import attempt_commit
from pylogtable.storage.base import ObjectStore
from pylogtable.topic import Topic
from pylogtable.topics.column_types import make_fields
from pylogtable.topics.plan import new_topic_info, plan_create
from tests.model.checker import Checker, Faults, Outcome, Told, Writer
from tests.model.replay import Objects, ObjectsStore
from tests.model.writers import LocalTime

GROUP = "g"
SEGMENTS, EACH = 3, 2
END = SEGMENTS * EACH
LATER_MS = 1_000


def open_at(store: ObjectStore, ids: str) -> Topic:
    time = LocalTime()
    time.now_ms = LATER_MS
    return Topic("t", store, time.runtime(ids, 100.0))


def retaining(store: ObjectStore, told: list[Told]) -> None:
    report = open_at(store, "retain").apply_retention(groups=[GROUP])
    told.append(("retention", tuple(report.log_starts.items())))


def resetting(store: ObjectStore, told: list[Told]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (move,) = open_at(store, "reset").group(GROUP).reset(1)
    told.append(("reset", (move.new, tuple(str(w.message) for w in caught))))


def appending(store: ObjectStore, told: list[Told]) -> None:
    """Any other commit, which makes the two lose races."""
    topic = open_at(store, "append")
    topic._log.change(lambda _: Change(operation="anything"))


def start() -> Objects:
    """A topic of three expired segments, all of them read by the group."""
    objects: dict[str, bytes] = {HINT_PATH: encode(Hint(root_version=None))}
    store = ObjectsStore(objects)
    manifest, runtime = Manifest(store), LocalTime().runtime("start", 100.0)
    info = new_topic_info(make_fields({"n": pa.int64()}), [], 1, {"retention.ms": 1}, 0)
    landed = attempt_commit(manifest, runtime, None, plan_create(None, info, "t", {}), "c", "topic")
    assert landed is not None
    for number in range(SEGMENTS):
        file = StagedSegment(
            partition=0,
            predicted_base=number * EACH,
            records=EACH,
            size_bytes=1,
            min_timestamp_us=0,
            max_timestamp_us=0,
            path=segment_path(0, number * EACH, f"s{number}"),
        )
        change = plan_append(landed[1], [file], None)
        assert isinstance(change, Change)
        landed = attempt_commit(manifest, runtime, landed[1], change, f"a{number}", "topic")
        assert landed is not None
    at_end = {0: GroupPosition(offset=END, committed_at_ms=0)}
    GroupLog(store, runtime, GROUP, "topic").change(
        lambda state, now_ms: GroupChange(operation="commit", positions=at_end)
    )
    return dict(store.objects)


def wrong(objects: Objects, told: tuple[Told, ...]) -> str | None:
    store = ObjectsStore(objects)
    snapshot = Manifest(store).load()
    assert snapshot is not None
    log_start = snapshot.partitions[0].log_start
    position = Topic("t", store, LocalTime().runtime("look", 100.0)).group(GROUP).positions()[0]
    reported, warned = dict(told)["reset"]
    if position != reported:
        return f"the reset reported {reported}, and the group is at {position}"
    if log_start > position:
        return f"records from {position} on were removed, and the log starts at {log_start}"
    if position != 1 and not warned:
        return f"the reset moved the group to {position} instead of 1 without a word"
    if position == 1 and warned:
        return f"the reset warned of nothing: {warned}"
    return None


def explore(*more: Writer, faults: Faults | None = None) -> Outcome:
    writers = (Writer("retention", retaining), Writer("reset", resetting), *more)
    outcome = Checker(start(), writers, faults or Faults(0), wrong).explore()
    print(f"{outcome.schedules} schedules, {outcome.ends} ends, {len(outcome.violations)} wrong")
    return outcome


def test_reset_and_retention_do_not_miss_each_other_in_any_order() -> None:
    outcome = explore()
    assert not outcome.violations, outcome.violations[0]
    assert outcome.schedules >= 10_000


def test_the_same_beside_another_writer() -> None:
    outcome = explore(Writer("append", appending))
    assert not outcome.violations, outcome.violations[0]


def test_the_same_with_a_late_or_lost_put() -> None:
    faults = Faults(1, frozenset({"lost", "late", "self_retry"}))
    outcome = explore(faults=faults)
    assert not outcome.violations, outcome.violations[0]


def test_a_reset_without_its_commit_would_miss_a_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pylogtable.groups.group, "plan_reset_notice", lambda snapshot, moves: None)
    outcome = explore()
    assert outcome.violations
    assert "records from 1 on were removed" in outcome.violations[0]


def test_a_retention_that_looks_only_once_would_miss_a_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look: Callable[..., dict[int, int]] = MaintainedTopic.unread_from
    seen: dict[int, dict[int, int]] = {}

    def once(
        topic: MaintainedTopic, groups: list[str] | None, snapshot: Snapshot
    ) -> dict[int, int]:
        if id(topic) not in seen:
            seen[id(topic)] = look(topic, groups, snapshot)
        return dict(seen[id(topic)])

    def run(store: ObjectStore, told: list[Told]) -> None:
        seen.clear()
        retaining(store, told)

    monkeypatch.setattr(MaintainedTopic, "unread_from", once)
    writers = (Writer("retention", run), Writer("reset", resetting))
    outcome = Checker(start(), writers, Faults(0), wrong).explore()
    assert outcome.violations
