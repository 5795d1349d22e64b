"""Which process looks after which topic."""

from __future__ import annotations

from collections import Counter

from pylogtable.run.share_plan import Beat, living, owner


def test_member_is_alive_within_the_lease_of_the_own_beat() -> None:
    beats = [Beat("a", 1_000), Beat("b", 1_001), Beat("c", 31_000), Beat("ghost", 99_000)]
    assert living(beats, 31_000, 30_000) == ["b", "c"]
    assert living([], 31_000, 30_000) == []


def test_every_topic_has_one_owner_and_all_members_get_topics() -> None:
    members = ["m1", "m2", "m3"]
    topics = [f"topic-{n}" for n in range(300)]
    owners = Counter(owner(topic, members) for topic in topics)
    assert set(owners) == set(members)
    assert min(owners.values()) > 60
    assert owner("t", []) is None


def test_topics_move_only_from_a_member_that_is_gone() -> None:
    topics = [f"topic-{n}" for n in range(300)]
    before = {topic: owner(topic, ["m1", "m2", "m3"]) for topic in topics}
    after = {topic: owner(topic, ["m1", "m3"]) for topic in topics}
    assert all(after[t] == before[t] for t in topics if before[t] != "m2")
