"""Groups that nobody uses any more are deleted, as `offsets.retention.minutes` says."""

from __future__ import annotations

from pylogtable import Store
from tests.builders import Clock, kafka

MINUTE_MS = 60_000


def test_maintain_deletes_groups_that_nobody_has_used_for_so_long(
    store: Store, clock: Clock
) -> None:
    topic = store.create_topic("t", config={"offsets.retention.minutes": 10})
    topic.append(kafka(["a"]))
    topic.group("old").commit({0: 1})
    clock.tick(5 * MINUTE_MS)
    topic.group("new").commit({0: 1})
    clock.tick(5 * MINUTE_MS + 1)
    foreseen = topic.maintain(dry_run=True)
    assert foreseen.group_expiry is not None
    assert foreseen.group_expiry.groups == ("old",)
    assert "would delete 1 group" in str(foreseen)
    assert topic.groups() == ["new", "old"]
    report = topic.maintain()
    assert report.group_expiry is not None
    assert str(report.group_expiry).startswith("deleted 1 group: old; ")
    assert topic.groups() == ["new"]


def test_protected_group_stays(store: Store, clock: Clock) -> None:
    """Without it, its unread records would not be protected any more."""
    topic = store.create_topic("t", config={"offsets.retention.minutes": 10})
    topic.append(kafka(["a"]))
    for name in ("slow", "old"):
        topic.group(name).commit({0: 0})
    clock.tick(11 * MINUTE_MS)
    topic.maintain(protect_groups=["slow"])
    assert topic.groups() == ["slow"]


def test_groups_stay_for_ever_without_the_setting(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"]))
    topic.group("old").commit({0: 1})
    clock.tick(400 * 24 * 60 * MINUTE_MS)
    assert topic.maintain().group_expiry is None
    assert topic.groups() == ["old"]
