"""Reading segment files that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylogtable
from pylogtable import SegmentGoneError, Store
from pylogtable.storage.memory import MemoryStore
from tests.builders import IN_FILES, kafka, rows

pytestmark = pytest.mark.records_in("files")


def test_missing_segment_file_is_named_in_memory(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"]))
    (path,) = rows(topic.segments(), "path")
    objects.delete(f"t/{path}")
    with pytest.raises(SegmentGoneError, match=r"is gone: .*no such object") as caught:
        topic.read().read_all()
    assert caught.value.path == path


def test_missing_segment_file_is_named_on_disk(tmp_path: Path) -> None:
    topic = pylogtable.open(tmp_path).create_topic(
        "t", config={"cleanup.policy": "compact", **IN_FILES}
    )
    topic.append(kafka(["a", "a"]))
    (path,) = rows(topic.segments(), "path")
    (tmp_path / "t" / path).unlink()
    for use in (lambda: topic.read().read_all(), topic.latest, topic.compact):
        with pytest.raises(SegmentGoneError, match="No such file") as caught:
            use()
        assert caught.value.path == path
