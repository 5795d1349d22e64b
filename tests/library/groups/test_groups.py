"""Consumer groups: positions, fencing, removal of old states, several topics."""

from __future__ import annotations

import pickle
from datetime import timedelta

import msgspec
import pytest

import pylogtable
from pylogtable import (
    CommitConflictError,
    Group,
    InvalidRequestError,
    Store,
    Topic,
    TopicNotFoundError,
)
from pylogtable.format.group_model import GroupChange, GroupMember, GroupState
from pylogtable.format.json_codec import decode_group, encode
from pylogtable.format.paths import group_path, parse_group_path
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.log.group_log import GroupLog
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, ints, kafka, make_store
from tests.stores import CountingStore, FarStore, Fault, FaultyStore

DAY = 86_400_000

KEPT, KEPT_MS = DEFAULT_LIMITS.group_states_kept, DEFAULT_LIMITS.group_kept_ms


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = store.create_topic("t", partitions=3)
    topic.append(kafka(["k"] * 9, partition=ints(*[0, 1, 2] * 3)))
    return topic


def states(objects: MemoryStore, group: str = "g", topic: str = "t") -> list[GroupState]:
    """The states in the store, in order."""
    found = []
    below = objects.below(topic)
    for entry in below.list(f"_groups/{group}/"):
        parsed = parse_group_path(entry.key)
        data = below.read(entry.key)
        assert parsed is not None
        assert data is not None
        found.append(decode_group(data, *parsed))
    return found


def with_member(topic: Topic, lease_until_ms: int, group: str = "g") -> None:
    """The state after a member joined."""
    log = log_of(topic, group)

    def join(state: GroupState | None, now_ms: int) -> GroupChange:
        return GroupChange(
            operation="join",
            positions={} if state is None else state.positions,
            generation=1 if state is None else state.generation + 1,
            members={"worker-a": GroupMember(lease_until_ms=lease_until_ms, owned=(0, 2))},
        )

    log.change(join)


# --- positions -----------------------------------------------------------------------------------


def test_opening_a_group_writes_nothing(topic: Topic, objects: MemoryStore) -> None:
    before = list(objects.list())
    group = topic.group("g")
    assert (group.name, group.topic_name) == ("g", "t")
    assert group.positions() == {}
    assert list(objects.list()) == before
    assert topic.groups() == []


def test_position_has_next_offset_metadata_and_time(
    topic: Topic, objects: MemoryStore, clock: Clock
) -> None:
    group = topic.group("g")
    assert group.commit({0: 2}) == {0: 2}
    clock.tick(5)
    assert group.commit({2: 0, 1: 3}, metadata="a note") == {0: 2, 1: 3, 2: 0}
    assert topic.group("g").positions() == {0: 2, 1: 3, 2: 0}
    newest = states(objects)[-1]
    assert newest.positions[1].metadata == "a note"
    assert newest.positions[1].committed_at_ms == newest.positions[0].committed_at_ms + 5
    assert topic.groups() == ["g"]


def test_position_may_go_back_or_beyond_the_log(topic: Topic) -> None:
    group = topic.group("g")
    group.commit({0: 3})
    assert group.commit({0: 1}) == {0: 1}
    assert group.commit({0: 1000}) == {0: 1000}


@pytest.mark.parametrize(
    ("offsets", "metadata", "complaint"),
    [
        ({3: 0}, "", "there is no partition 3; the topic has 3"),
        ({-1: 0}, "", "there is no partition -1"),
        ({0: -1}, "", r"must be 0 to 2\*\*63 - 1, not -1"),
        ({0: 2**63}, "", r"must be 0 to 2\*\*63 - 1"),
        ({0: True}, "", "True is not a position of partition 0"),
        ({0: 1.5}, "", "1.5 is not a position"),
        ({0: None}, "", "None is not a position"),
        ({0: 1}, "x" * 4097, "metadata has 4,097 characters; at most 4,096"),
        ({0: 1}, b"x", "metadata must be a string"),
    ],
)
def test_invalid_position_is_refused_and_writes_nothing(
    topic: Topic, objects: MemoryStore, offsets: dict[int, int], metadata: str, complaint: str
) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        topic.group("g").commit({1: 1, **offsets}, metadata)
    assert states(objects) == []


def test_metadata_of_4096_characters_is_kept(topic: Topic) -> None:
    topic.group("g").commit({0: 1}, metadata="é" * 4096)
    assert topic.group("g").describe().rows[0].metadata == "é" * 4096


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "é", None, 7])
def test_group_names_follow_the_rules_of_topic_names(topic: Topic, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="group name"):
        topic.group(name)


def test_empty_commit_writes_nothing(topic: Topic, objects: MemoryStore) -> None:
    assert topic.group("g").commit({}) == {}
    assert states(objects) == []


def test_pickled_topic_can_open_a_group(tmp_path: object) -> None:
    topic = pylogtable.open(str(tmp_path)).create_topic("t")
    topic.group("g").commit({0: 4})
    assert pickle.loads(pickle.dumps(topic)).group("g").positions() == {0: 4}


def test_commit_on_a_far_store_is_one_put(clock: Clock) -> None:
    """A state that was the newest within the last minute needs no proof, and the topic is not
    looked at again."""
    counting = CountingStore(FarStore(clock))
    topic = make_store(counting, clock).create_topic("t")
    group = topic.group("g")
    group.commit({0: 0})
    for _ in range(3):
        clock.tick(19_000)
        counting.reset()
        group.commit({0: 1})
        assert counting.counts == {"create": 1}
    counting.reset()
    assert group.positions() == {0: 1}
    assert counting.counts == {"read": 2}  # the next commit of the topic, the next of the group


def test_commit_after_a_minute_is_proven(clock: Clock) -> None:
    counting = CountingStore(FarStore(clock))
    group = make_store(counting, clock).create_topic("t").group("g")
    group.commit({0: 0})
    clock.tick(60_000)
    counting.reset()
    group.commit({0: 1})
    assert counting.by_key["read", f"t/{group_path('g', 0)}"] == 1


def test_partition_that_was_just_added_can_be_committed(clock: Clock) -> None:
    store = make_store(FarStore(clock), clock)
    group = store.create_topic("t").group("g")
    store.topic("t").alter(partitions=3)
    assert group.commit({2: 5}) == {2: 5}
    with pytest.raises(InvalidRequestError, match="3"):
        group.commit({3: 0})


def far_groups(clock: Clock, count: int) -> tuple[MemoryStore, list[Group]]:
    """The same group, opened by several processes."""
    far = FarStore(clock)
    make_store(far, clock).create_topic("t", partitions=2)
    stores = [make_store(FarStore(clock, far._name), clock) for _ in range(count)]
    return far, [store.topic("t").group("g") for store in stores]


def test_states_on_a_far_store_are_kept_for_two_minutes(clock: Clock) -> None:
    far, (group,) = far_groups(clock, 1)
    for offset in range(130):
        group.commit({0: offset})
    assert len(states(far)) == 130
    clock.tick(KEPT_MS)
    for offset in range(130, 200):
        group.commit({0: offset})
        clock.tick(1_000)
    kept = [state.number for state in states(far)]
    assert kept == list(range(kept[0], 200))
    assert kept[0] in range(130 - KEPT, 130)  # state 129 was the newest until two minutes had gone


def test_state_that_was_the_newest_for_days_is_kept_for_two_minutes_more(clock: Clock) -> None:
    far, (group,) = far_groups(clock, 1)
    group.commit({0: 0})
    clock.tick(1_000_000_000)
    for offset in range(1, 100):
        group.commit({0: offset})
    assert states(far)[0].number == 0


@pytest.mark.parametrize("pause_ms", [0, 500, 5_000])
def test_writer_on_a_far_store_never_takes_a_number_twice(clock: Clock, pause_ms: int) -> None:
    """Others commit 100 times while it waits: it is fresh then, or its state is gone."""
    far, (slow, busy) = far_groups(clock, 2)
    slow.commit({0: 1})
    for offset in range(100):
        clock.tick(pause_ms)
        busy.commit({1: offset})
    assert slow.commit({0: 2}) == {0: 2, 1: 99}
    assert busy.positions() == {0: 2, 1: 99}
    assert states(far)[-1].number == 101


# --- of two with the same view one wins ----------------------------------------------------------


def test_one_of_two_commits_on_the_same_positions_wins(topic: Topic) -> None:
    one, other = topic.group("g"), topic.group("g")
    one.commit({0: 1})
    assert other.positions() == {0: 1}
    one.commit({0: 2})
    with pytest.raises(
        CommitConflictError, match=r"partition 0 of group 'g'.*position was 1 and is 2 now"
    ):
        other.commit({0: 3})
    with pytest.raises(CommitConflictError):  # as long as it has not looked
        other.commit({0: 3})
    assert other.positions() == {0: 2}
    assert other.commit({0: 3}) == {0: 3}


def test_one_of_two_first_commits_wins(topic: Topic) -> None:
    one, other = topic.group("g"), topic.group("g")
    assert one.positions() == other.positions() == {}
    one.commit({0: 1})
    with pytest.raises(CommitConflictError, match="position was none and is 1 now"):
        other.commit({0: 1})


def test_commits_of_other_partitions_do_not_conflict(topic: Topic, objects: MemoryStore) -> None:
    groups = [topic.group("g") for _ in range(3)]
    for group in groups:
        group.positions()
    for offset in range(3):
        for partition, group in enumerate(groups):
            assert group.commit({partition: offset})[partition] == offset
    assert topic.group("g").positions() == {0: 2, 1: 2, 2: 2}
    assert [state.number for state in states(objects)] == list(range(9))


def test_lag_and_describe_do_not_refresh_known_positions(topic: Topic) -> None:
    one, other = topic.group("g"), topic.group("g")
    one.commit({0: 1})
    other.positions()
    one.commit({0: 2})
    other.lag()
    other.describe()
    with pytest.raises(CommitConflictError):
        other.commit({0: 3})


def test_commit_of_several_partitions_is_atomic(topic: Topic) -> None:
    one, other = topic.group("g"), topic.group("g")
    one.commit({0: 0, 1: 0})
    other.positions()
    one.commit({1: 1})
    with pytest.raises(CommitConflictError, match="partition 1"):
        other.commit({0: 3, 1: 3})
    assert other.positions() == {0: 0, 1: 1}


def test_position_deleted_meanwhile_is_a_conflict(topic: Topic) -> None:
    one, other = topic.group("g"), topic.group("g")
    one.commit({0: 1})
    other.positions()
    one.delete()
    with pytest.raises(CommitConflictError, match="position was 1 and is none now"):
        other.commit({0: 2})


# --- cleaning up ---------------------------------------------------------------------------------


def test_old_states_are_removed_and_the_newest_stay(topic: Topic, objects: MemoryStore) -> None:
    group = topic.group("g")
    for offset in range(200):
        group.commit({0: offset})
        kept = [state.number for state in states(objects)]
        assert kept == list(range(kept[0], offset + 1))
        assert min(offset + 1, KEPT) <= len(kept) <= 2 * KEPT + 1
    assert topic.group("g").positions() == {0: 199}


def test_stale_writer_cannot_reuse_removed_state_numbers(
    topic: Topic, objects: MemoryStore
) -> None:
    stale, busy = topic.group("g"), topic.group("g")
    stale.commit({0: 1})
    busy.positions()
    for offset in range(100):
        busy.commit({1: offset})
    assert states(objects)[0].number > 2
    assert stale.commit({0: 2}) == {0: 2, 1: 99}  # nobody else moved its partition
    assert states(objects)[-1].positions[0].offset == 2
    busy.positions()
    for offset in range(100):
        busy.commit({0: offset})
    with pytest.raises(CommitConflictError, match="is 99 now"):
        stale.commit({0: 3})
    assert topic.group("g").positions() == {0: 99, 1: 99}
    numbers = [state.number for state in states(objects)]
    assert numbers == list(range(numbers[0], 202))


def test_stale_first_commit_cannot_reuse_number_0(topic: Topic, objects: MemoryStore) -> None:
    stale, busy = topic.group("g"), topic.group("g")
    assert stale.positions() == {}
    for offset in range(100):
        busy.commit({0: offset})
    with pytest.raises(CommitConflictError, match="position was none and is 99 now"):
        stale.commit({0: 5})
    assert stale.commit({1: 5}) == {0: 99, 1: 5}
    assert states(objects)[0].number > 0


def test_stray_state_below_the_newest_is_ignored(topic: Topic, objects: MemoryStore) -> None:
    """A stale writer leaves such a state if it dies between its put and its check."""
    stale, busy = topic.group("g"), topic.group("g")
    stale.commit({0: 1})
    before = states(objects)[0]
    busy.positions()
    for offset in range(100):
        busy.commit({1: offset})
    stray = GroupState(
        operation="commit", number=1, commit_id="stray", topic_id=topic.topic_id, committed_at_ms=1
    )
    objects.below("t").write(group_path("g", 1), encode(stray))
    assert before.number == 0
    assert stale.positions() == {0: 1, 1: 99}
    assert topic.group("g").positions() == {0: 1, 1: 99}
    for offset in range(64):
        busy.commit({1: offset})
    assert "stray" not in {state.commit_id for state in states(objects)}


def test_state_that_cannot_be_deleted_keeps_later_ones(objects: MemoryStore, clock: Clock) -> None:
    """Otherwise a writer that knows this state would take the next number for a free one."""
    stuck = group_path("g", 3)
    faulty = FaultyStore(
        objects,
        lambda verb, key: Fault.REFUSE if verb == "delete" and key.endswith(stuck) else None,
    )
    group = make_store(faulty, clock).create_topic("t").group("g")
    for offset in range(130):
        group.commit({0: offset})
    assert [state.number for state in states(objects)] == list(range(3, 130))


# --- deletion, expiry, topics that come and go ---------------------------------------------------


def test_state_numbers_continue_after_a_deletion(topic: Topic, objects: MemoryStore) -> None:
    group = topic.group("g")
    group.commit({0: 1})
    group.delete()
    assert topic.groups() == []
    assert group.positions() == topic.group("g").positions() == {}
    assert states(objects)[-1].deleted
    group.commit({1: 2})
    assert topic.group("g").positions() == {1: 2}
    assert [state.number for state in states(objects)] == [0, 1, 2]
    assert topic.groups() == ["g"]


def test_missing_group_cannot_be_deleted_or_described(topic: Topic) -> None:
    topic.group("other").commit({0: 0})
    with pytest.raises(InvalidRequestError, match="there is no group 'g'"):
        topic.group("g").delete()
    with pytest.raises(InvalidRequestError, match="no group 'g' in topic 't'; its groups: other"):
        topic.group("g").describe()


def test_group_expires_by_the_age_of_its_last_commit(topic: Topic, clock: Clock) -> None:
    topic.group("old").commit({0: 1})
    clock.tick(DAY - 1)
    topic.group("young").commit({0: 1})
    assert topic.expire_groups(timedelta(days=1)) == []
    clock.tick(1)
    assert topic.expire_groups(timedelta(days=1), dry_run=True) == ["old"]
    assert topic.groups() == ["old", "young"]
    assert topic.expire_groups(DAY) == ["old"]
    assert topic.groups() == ["young"]
    assert topic.expire_groups(DAY) == []


def test_group_with_members_expires_only_after_their_leases(topic: Topic, clock: Clock) -> None:
    with_member(topic, clock() + 10 * DAY)
    clock.tick(10 * DAY)
    assert topic.expire_groups(DAY) == []
    clock.tick(DAY)
    assert topic.expire_groups(DAY) == ["g"]


@pytest.mark.parametrize("age", [-1, timedelta(days=-1), "1d", None, True, 1.5])
def test_invalid_age_is_refused(topic: Topic, age: int) -> None:
    with pytest.raises(InvalidRequestError, match="is not an age"):
        topic.expire_groups(age)


def test_groups_are_deleted_with_their_topic(
    store: Store, topic: Topic, objects: MemoryStore
) -> None:
    group = topic.group("g")
    group.commit({0: 2})
    store.delete_topic("t")
    assert states(objects) == []
    for use in (group.positions, lambda: group.commit({0: 3}), group.lag, topic.groups):
        with pytest.raises(TopicNotFoundError):
            use()
    again = store.create_topic("t", partitions=3)
    assert again.groups() == []
    assert again.group("g").commit({0: 0}) == {0: 0}
    with pytest.raises(TopicNotFoundError, match="another one was created in its place"):
        group.commit({0: 3})


def test_states_of_an_earlier_topic_are_ignored(
    store: Store, topic: Topic, objects: MemoryStore
) -> None:
    topic.group("g").commit({0: 2})
    left = states(objects)[0]
    store.delete_topic("t")
    again = store.create_topic("t", partitions=3)
    below = objects.below("t")
    below.write(group_path("g", 0), encode(left))
    assert again.groups() == []
    group = again.group("g")
    assert group.positions() == {}
    assert group.commit({1: 1}) == {1: 1}
    assert [state.number for state in states(objects)] == [0, 1]
    # A late state of the old topic does not hide states of the new one.
    late = msgspec.structs.replace(left, number=2)
    below.write(group_path("g", 2), encode(late))
    assert again.group("g").positions() == group.positions() == {1: 1}
    assert group.commit({1: 2}) == {1: 2}
    assert [state.number for state in states(objects)] == [0, 1, 2, 3]


def test_vacuum_keeps_groups(topic: Topic, objects: MemoryStore, clock: Clock) -> None:
    topic.group("g").commit({0: 2})
    clock.tick(365 * DAY)
    topic.vacuum(dry_run=False, retention_ms=0, force=True)
    assert topic.group("g").positions() == {0: 2}


# --- groups with members -------------------------------------------------------------------------


def test_only_live_members_can_commit(topic: Topic, clock: Clock) -> None:
    group = topic.group("g")
    group.commit({0: 1})
    with_member(topic, clock() + 100)
    for use in (
        lambda: group.commit({0: 2}),
        lambda: group.reset("earliest"),
        lambda: group.reset("earliest", dry_run=True),
        group.delete,
    ):
        with pytest.raises(InvalidRequestError, match=r"has 1 active member\(s\) \(worker-a\)"):
            use()
    assert topic.group("g").positions() == {0: 1}
    rows = group.describe().rows
    assert [row.member for row in rows] == ["worker-a", None, "worker-a"]
    clock.tick(100)
    assert group.commit({0: 2}) == {0: 2}
    assert [row.member for row in group.describe()] == [None, None, None]


def test_commit_drops_members_whose_lease_ran_out(
    topic: Topic, objects: MemoryStore, clock: Clock
) -> None:
    with_member(topic, clock() + 100)
    clock.tick(100)
    topic.group("g").commit({0: 1})
    newest = states(objects)[-1]
    assert newest.members == {}
    assert newest.generation == 2


# --- the loop that changes a group: what consumers build on ---------------------------------------


def log_of(topic: Topic, group: str = "g") -> GroupLog:
    return GroupLog(topic._store, topic._log.runtime, group, topic.topic_id)


def test_plan_that_changes_nothing_has_seen_the_newest_state(topic: Topic) -> None:
    log = log_of(topic)
    assert log.change(lambda state, now_ms: None) is None
    topic.group("g").commit({0: 1})
    asked: list[GroupState | None] = []

    def plan(state: GroupState | None, now_ms: int) -> None:
        asked.append(state)

    after = log.change(plan)
    assert after is not None
    assert after.positions[0].offset == 1
    assert asked == [None, after]


def test_plan_that_raises_on_a_stale_state_is_retried(topic: Topic) -> None:
    log = log_of(topic)
    assert log.newest() is None
    topic.group("g").commit({0: 1})

    def plan(state: GroupState | None, now_ms: int) -> GroupChange:
        if state is None:
            raise InvalidRequestError("there is nothing yet")
        return GroupChange(operation="heartbeat", positions=state.positions, generation=7)

    after = log.change(plan)
    assert after is not None
    assert (after.number, after.generation, after.operation) == (1, 7, "heartbeat")
    with pytest.raises(InvalidRequestError, match="nothing yet"):
        log_of(topic, "other").change(plan)


def test_state_that_would_not_decode_is_never_written(topic: Topic, objects: MemoryStore) -> None:
    twice = GroupChange(
        operation="join",
        members={name: GroupMember(lease_until_ms=1, owned=(0,)) for name in "ab"},
    )
    with pytest.raises(InvalidRequestError, match="a partition has two owners"):
        log_of(topic).change(lambda state, now_ms: twice)
    assert states(objects) == []


def test_commit_times_of_a_group_do_not_go_back(
    topic: Topic, objects: MemoryStore, clock: Clock
) -> None:
    group = topic.group("g")
    group.commit({0: 1})
    clock.tick(-50)
    group.commit({0: 2})
    first, second = states(objects)
    assert second.committed_at_ms == first.committed_at_ms
    assert second.positions[0].committed_at_ms == first.committed_at_ms - 50


# --- several topics ------------------------------------------------------------------------------


@pytest.fixture
def two(store: Store, topic: Topic) -> Store:
    other = store.create_topic("u", partitions=1)
    other.append(kafka(["k"] * 4))
    topic.group("g").commit({0: 1})
    other.group("g").commit({0: 2})
    other.group("h").commit({0: 0})
    return store


def test_store_lists_groups_of_all_topics(two: Store) -> None:
    assert two.groups() == {"g": ["t", "u"], "h": ["u"]}
    group = two.group("g")
    assert group.topics() == ["t", "u"]
    assert [(r.topic, r.partition, r.current_offset) for r in group.describe()] == [
        ("t", 0, 1),
        ("t", 1, None),
        ("t", 2, None),
        ("u", 0, 2),
    ]
    lag = group.lag()
    assert {name: lag[name].records for name in lag} == {"t": 8, "u": 2}


def test_store_group_resets_all_or_some_topics(two: Store) -> None:
    group = two.group("g")
    dry = group.reset("latest", dry_run=True)
    assert [(report.topic, report.dry_run) for report in dry] == [("t", True), ("u", True)]
    assert two.topic("u").group("g").positions() == {0: 2}
    group.reset("latest", topics=["u"])
    assert two.topic("t").group("g").positions() == {0: 1}
    assert two.topic("u").group("g").positions() == {0: 4}
    group.reset("earliest")
    assert two.topic("t").group("g").positions() == {0: 0, 1: 0, 2: 0}


def test_store_group_reset_changes_nothing_if_one_topic_refuses(two: Store) -> None:
    with pytest.raises(InvalidRequestError, match="partition 1 has no position"):
        two.group("g").reset(shift_by=1)
    assert two.topic("t").group("g").positions() == {0: 1}
    assert two.topic("u").group("g").positions() == {0: 2}


def test_store_group_is_deleted_in_all_topics(two: Store) -> None:
    two.group("g").delete()
    assert two.groups() == {"h": ["u"]}
    with pytest.raises(InvalidRequestError, match="no topic of this store has a group 'g'"):
        two.group("g").describe()


def test_unreadable_topic_does_not_hide_other_groups(two: Store, objects: MemoryStore) -> None:
    objects.write("v/_manifest/00000000000000000000.json", b"{")
    assert two.topics() == ["t", "u", "v"]
    assert two.groups() == {"g": ["t", "u"], "h": ["u"]}


def test_group_results_are_shown_as_html(two: Store) -> None:
    topic = two.topic("t")
    group = topic.group("g")
    group.commit({0: 1}, metadata="<b>")
    assert "&lt;b&gt;" in group._repr_html_()
    assert "<td>\N{EN DASH}</td>" in group.lag()._repr_html_()
    assert "dry run" in group.reset("earliest", dry_run=True)._repr_html_()
    assert "<table>" in two.group("g")._repr_html_()
    assert repr(group).startswith("<Group 'g' of topic 't'")
    assert isinstance(group, Group)
    assert [row.group for row in two.topic("u").describe_groups()] == ["g", "h"]
