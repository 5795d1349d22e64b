"""Members offer commits to each other, on a store that is far away [GRP-16]."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pylogtable import CommitConflictError, Consumer, Topic
from pylogtable.format.group_model import GroupOffer, GroupState
from pylogtable.format.group_offer import MAX_NAME, decode_offer, name_of
from pylogtable.format.paths import group_offer_path
from pylogtable.groups.dynamic_member import DynamicMember
from pylogtable.groups.membership_plan import plan_offer
from pylogtable.log.group_log import GroupLog
from pylogtable.log.group_objects import GroupObjects, GroupTip, Sight
from pylogtable.log.offers_plan import is_open
from tests.builders import Clock, make_store
from tests.library.groups.test_consumer import fill
from tests.stores import FarStore

LEASE, GROUP = 30_000, "g"


@pytest.fixture
def far(clock: Clock) -> FarStore:
    return FarStore(clock)


@pytest.fixture
def topic(far: FarStore, clock: Clock) -> Topic:
    topic = make_store(far, clock).create_topic("t", partitions=2)
    fill(topic, 5, 5)
    return topic


@pytest.fixture
def pair(topic: Topic, clock: Clock) -> tuple[Consumer, Consumer]:
    """Two members, each with a partition, which have polled two records."""
    both = topic.consumer(GROUP, "a", lease_ms=LEASE), topic.consumer(GROUP, "b", lease_ms=LEASE)
    for _ in range(3):
        for consumer in both:
            clock.tick(LEASE // 10)
            consumer.assignment()
    assert [len(consumer.assignment()) for consumer in both] == [1, 1]
    for consumer in both:
        consumer.poll(max_records=2)
        # It has met the other one in its last change, so it looks first.
        log_of(consumer)._has_company = True
    clock.tick(10)
    return both


def log_of(consumer: Consumer) -> GroupLog:
    member = consumer._member
    assert isinstance(member, DynamicMember)
    return member._group._group_log


def member_of(consumer: Consumer) -> tuple[str, GroupState]:
    member = consumer._member
    assert isinstance(member, DynamicMember)
    assert member.member_id is not None
    assert member._state is not None
    return member.member_id, member._state


def offer_for(consumer: Consumer, clock: Clock, offset: int) -> GroupOffer:
    name, state = member_of(consumer)
    return plan_offer(state, name, clock(), LEASE, {consumer.assignment()[0]: offset}, "")


def put(far: FarStore, offer: GroupOffer) -> str:
    name = name_of(offer)
    assert name is not None
    path = group_offer_path(GROUP, name)
    far.below("t").write(path, b"{}")
    return path


def offers_in(far: FarStore) -> list[str]:
    return [info.key for info in far.below("t").list(f"_groups/{GROUP}/offers/")]


def test_commit_takes_the_offer_of_another_member_along(
    topic: Topic, far: FarStore, clock: Clock, pair: tuple[Consumer, Consumer]
) -> None:
    one, other = pair
    mine, theirs = one.assignment()[0], other.assignment()[0]
    put(far, offer_for(other, clock, 2))
    before = topic.group(GROUP)._group_log.newest()
    one.commit()
    after = topic.group(GROUP)._group_log.newest()
    assert before is not None
    assert after is not None
    assert after.number == before.number + 1
    assert topic.group(GROUP).positions() == {mine: 2, theirs: 2}
    name, _ = member_of(other)
    assert after.members[name].owned == before.members[name].owned
    assert after.members[name].lease_until_ms > before.members[name].lease_until_ms
    other.poll(max_records=1)
    other.commit()
    assert topic.group(GROUP).positions() == {mine: 2, theirs: 3}


def test_offer_is_void_after_a_later_commit_of_its_member(
    topic: Topic, far: FarStore, clock: Clock, pair: tuple[Consumer, Consumer]
) -> None:
    """Also if the clock was set back, so that the lease could stay as it is."""
    one, other = pair
    member = other._member
    assert isinstance(member, DynamicMember)
    offer = offer_for(other, clock, 1)
    member._offered_on_ms = offer.lease_before_ms
    clock.tick(-LEASE // 2)
    other.commit()
    put(far, offer)
    one.poll(max_records=1)
    one.commit()
    assert topic.group(GROUP).positions()[other.assignment()[0]] == 2


def test_offer_of_a_removed_member_is_left_alone(
    topic: Topic, far: FarStore, clock: Clock, pair: tuple[Consumer, Consumer]
) -> None:
    one, other = pair
    put(far, offer_for(other, clock, 2))
    topic.group(GROUP).remove_member("b")
    one.commit()
    assert topic.group(GROUP).positions() == {one.assignment()[0]: 2}
    with pytest.raises(CommitConflictError, match="no longer in the group"):
        other.commit()


@pytest.mark.parametrize("is_taken", [True, False])
def test_member_that_slept_after_its_look_tells_the_truth(
    topic: Topic,
    clock: Clock,
    pair: tuple[Consumer, Consumer],
    monkeypatch: pytest.MonkeyPatch,
    is_taken: bool,
) -> None:
    """Its lease runs out meanwhile. Others may have taken its offer along before."""
    one, other = pair
    mine = other.assignment()[0]
    slept: list[int] = []
    log = log_of(other)
    log._is_crowded = True
    look = log._objects.look

    def look_and_sleep(known: GroupTip, **how: Any) -> Sight:
        sight = look(known, **how)
        if not slept:
            slept.append(1)
            if is_taken:
                one.commit()
            clock.tick(LEASE * 2)
        return sight

    monkeypatch.setattr(log._objects, "look", look_and_sleep)
    if is_taken:
        other.commit()
        assert topic.group(GROUP).positions()[mine] == 2
        return
    offer = offer_for(other, clock, 2)
    with pytest.raises(CommitConflictError, match="Nothing was committed"):
        other.commit()
    # Somebody whose clock is slow would take it.
    state = topic.group(GROUP)._group_log.newest()
    assert not is_open(offer, state, offer.committed_at_ms)
    assert mine not in topic.group(GROUP).positions()


def test_what_is_no_offer_stops_nobody(
    topic: Topic, far: FarStore, clock: Clock, pair: tuple[Consumer, Consumer]
) -> None:
    one, other = pair
    for name in ("x", f"{7:020d}-e30", f"{7:020d}-!!", f"{7:020d}-{'A' * 99}", "deep/er"):
        far.below("t").write(f"_groups/{GROUP}/offers/{name}", b"")
    strange = offer_for(other, clock, 2)
    put(far, GroupOffer(**{**_fields(strange), "member": "nobody"}))
    put(far, GroupOffer(**{**_fields(strange), "offsets": {0: 9, 1: 9}}))
    one.commit()
    assert topic.group(GROUP).positions() == {one.assignment()[0]: 2}
    assert topic.groups() == [GROUP]
    assert topic.verify()


def test_offers_of_the_dead_are_removed_with_old_states(
    topic: Topic, far: FarStore, clock: Clock, pair: tuple[Consumer, Consumer]
) -> None:
    objects = GroupObjects(far.below("t"), GROUP, topic._log.known.topic_id)
    path = put(far, offer_for(pair[1], clock, 2))
    objects.clean(100)
    assert offers_in(far) == [path]
    clock.tick(120_000)
    pair[0].poll(max_records=1)
    objects.clean(100)
    assert offers_in(far) == []


def test_name_of_an_offer_says_everything_or_is_not_used() -> None:
    offer = GroupOffer(
        member="w\N{WHITE SMILING FACE}/..",
        lease_before_ms=1,
        lease_until_ms=2,
        committed_at_ms=3,
        offsets=dict.fromkeys(range(10), 2**62),
        metadata="m",
    )
    name = name_of(offer)
    assert name is not None
    assert decode_offer(name) == offer
    assert max(map(len, name.split("/"))) <= 255
    assert len(name) <= MAX_NAME
    assert name_of(GroupOffer(**{**_fields(offer), "metadata": "m" * 500})) is None


def test_crowd_of_members_commits_everything(far: FarStore, clock: Clock) -> None:
    members, times = 6, 5
    topic = make_store(far, clock).create_topic("crowd", partitions=members)
    fill(topic, *[times] * members)
    stores = [make_store(FarStore(clock, far._name), clock) for _ in range(members)]
    crowd = [s.topic("crowd").consumer(GROUP, f"m{n}") for n, s in enumerate(stores)]
    while [len(consumer.assignment()) for consumer in crowd] != [1] * members:
        clock.tick(LEASE // 10)

    def work(consumer: Consumer) -> None:
        for _ in range(times):
            assert consumer.poll(max_records=1).num_rows == 1
            consumer.commit()

    with ThreadPoolExecutor(members) as pool:
        list(pool.map(work, crowd))
    assert topic.group(GROUP).positions() == dict.fromkeys(range(members), times)


def _fields(offer: GroupOffer) -> dict[str, object]:
    return {name: getattr(offer, name) for name in offer.__struct_fields__}
