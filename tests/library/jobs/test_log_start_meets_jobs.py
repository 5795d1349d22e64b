"""A log start moves past what a job writes meanwhile: the job gives way, the topic is sound."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pylogtable import Store, Topic
from pylogtable.format.model import Change
from pylogtable.format.snapshot import Snapshot
from tests.builders import kafka


def meeting(topic: Topic, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """Before each of the job's attempts to commit, something else happens."""
    change = topic._log.change
    waiting: Iterator[Callable[[], object]] = iter(steps)

    def later(plan: Callable[[Snapshot], Change]) -> object:
        next(waiting, lambda: None)()
        return change(plan)

    monkeypatch.setattr(topic._log, "change", later)


def check(topic: Topic, records: int) -> None:
    assert topic.verify(data=True)
    assert topic.read().read_all().num_rows == topic.count() == records
    topic.delete_records({0: None})
    assert topic.verify(data=True)


def test_compaction_over_a_merge_gives_way_to_a_log_start(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"cleanup.policy": "compact,delete", "retention.ms": -1}
    topic = store.create_topic("t", config=config)
    topic.append(kafka(list("abcde"), list("11111")))
    topic.append(kafka(list("abcdef"), list("222222")))
    other = store.topic("t")
    meeting(topic, monkeypatch, other.merge, lambda: other.delete_records({0: 5}))
    assert topic.compact(force=True).skipped == 1
    check(store.topic("t"), 6)
