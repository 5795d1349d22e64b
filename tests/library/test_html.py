"""What notebooks show: text of users is escaped wherever it can be."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pyarrow as pa
import pytest

from pylogtable import Store
from pylogtable.format.group_model import GroupMember, GroupState
from pylogtable.format.json_codec import encode
from pylogtable.format.paths import group_path
from pylogtable.report.report_html import report_html
from pylogtable.storage.memory import MemoryStore

HOSTILE = "<script>alert(1)</script>\"'&"


@pytest.fixture
def hostile(store: Store, objects: MemoryStore) -> Store:
    """A topic with HOSTILE as column, key, app id, metadata and member."""
    topic = store.create_topic("t", 1, {HOSTILE: pa.string(), "n": pa.int64()}, key=HOSTILE)
    topic.append(pa.table({HOSTILE: [HOSTILE], "n": [1]}), txn=(HOSTILE, 1))
    topic.group("g").commit({0: 0}, metadata=HOSTILE)
    state = GroupState(
        operation=HOSTILE,
        members={HOSTILE: GroupMember(lease_until_ms=2**62, owned=(0,))},
        number=0,
        commit_id=HOSTILE,
        topic_id=topic.topic_id,
        committed_at_ms=0,
    )
    objects.write(f"t/{group_path('m', 0)}", encode(state))
    return store


def reset(store: Store) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return store.topic("t").group("g").reset(7)._repr_html_()


@pytest.mark.parametrize(
    "show",
    [
        lambda store: store._repr_html_(),
        lambda store: store.topic("t")._repr_html_(),
        lambda store: store.topic("t").group("g")._repr_html_(),
        lambda store: store.topic("t").group("m")._repr_html_(),
        lambda store: store.topic("t").group("g").lag()._repr_html_(),
        lambda store: store.topic("t").describe_groups()._repr_html_(),
        lambda store: store.group("g")._repr_html_(),
        lambda store: store.topic("t").compare(store.create_topic("u"))._repr_html_(),
        reset,
        report_html,
    ],
)
def test_text_of_users_is_escaped(hostile: Store, show: Callable[[Store], str]) -> None:
    html = show(hostile)
    assert html.startswith("<")
    assert "<script" not in html


def test_the_text_is_shown(hostile: Store) -> None:
    assert "&lt;script&gt;" in hostile.topic("t")._repr_html_()
    assert "&lt;script&gt;" in report_html(hostile)
