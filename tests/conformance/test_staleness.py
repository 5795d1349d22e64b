"""How old a state or a data file may be when a writer commits on it [COMMIT-8]."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pylogtable.engine import plan_append
from pylogtable.errors import CommitConflictError
from pylogtable.format.config import MANIFEST_RETENTION_MS
from pylogtable.format.paths import HINT_PATH
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, make_store
from tests.stores import CountingStore

HALF = MANIFEST_RETENTION_MS // 2
ROWS = pa.table({"key": [b"k"], "value": [b"v"]})


def test_data_files_may_wait_half_the_retention_for_their_commit(clock: Clock) -> None:
    topic = make_store(MemoryStore(), clock).create_topic("t")
    staged = plan_append(topic).stage(ROWS)
    clock.tick(HALF)
    assert plan_append(topic, refresh=False).commit([staged]).records == 1


def test_data_files_that_waited_longer_are_refused(clock: Clock) -> None:
    objects = MemoryStore()
    topic = make_store(objects, clock).create_topic("t")
    staged = plan_append(topic).stage(ROWS)
    clock.tick(HALF + 1)
    with pytest.raises(CommitConflictError):
        plan_append(topic, refresh=False).commit([staged])
    assert topic.version == 0
    plan_append(topic, refresh=False).discard([staged])
    assert not list(objects.list("t/partition=0/"))


@pytest.mark.parametrize(("age_ms", "loads"), [(HALF, 0), (HALF + 1, 1)])
def test_a_state_older_than_half_the_retention_is_loaded_again(
    clock: Clock, age_ms: int, loads: int
) -> None:
    objects = CountingStore(MemoryStore())
    topic = make_store(objects, clock).create_topic("t")
    before = objects.by_key["read", f"t/{HINT_PATH}"]
    clock.tick(age_ms)
    topic.append(ROWS)
    assert objects.by_key["read", f"t/{HINT_PATH}"] - before == loads
