"""A published table shows exactly one version of the topic, whatever has happened to it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pylogtable.storage.memory import MemoryStore
from tests.builders import make_store
from tests.depth import rounds
from tests.publish.histories import MAPPED, History
from tests.publish.plain_delta import actions, check_table, places


@settings(max_examples=rounds(15, deep=1000))
@given(
    seed=st.integers(0, 2**32),
    operations=st.lists(st.sampled_from(MAPPED), min_size=3, max_size=25),
)
def test_every_entry_shows_one_version_and_streams_see_each_record_once(
    seed: int, operations: list[str]
) -> None:
    objects = MemoryStore()
    history = History(make_store(objects), seed)
    for operation in ("publish", *operations, "publish"):
        history.do(operation)
    topic, folder = history.topic, objects.below("orders")
    log = check_table(topic, folder)
    streamed: list[tuple[int, int]] = []
    for entry in log:
        # A stream skips entries that remove data, as with `skipChangeCommits`.
        if not any(gone["dataChange"] for gone in actions(entry, "remove")):
            new = [add["path"] for add in actions(entry, "add") if add["dataChange"]]
            streamed += places(folder, new)
    ends = topic.end_offsets()
    assert sorted(streamed) == [(number, at) for number in ends for at in range(ends[number])]
    assert topic.verify(data=True)
