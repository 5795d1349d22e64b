"""A publication with `publish.view=latest` that fails or meets others at any step: each entry shows
what `latest` finds at its version."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest

from pylogtable import LogTableError, Topic
from pylogtable.storage.local import LocalStore
from pylogtable.store import Store
from tests.builders import ints
from tests.depth import sample
from tests.faults.support import FakeTime, Plan
from tests.publish.latest_histories import expected
from tests.publish.plain_delta import entries, rows, shown_version
from tests.publish.plain_iceberg import numbers_of, open_table
from tests.publish.plain_iceberg import rows as iceberg_rows
from tests.publish.test_delta_faults import Meeting
from tests.publish.test_iceberg_faults import FAULTS, Folder
from tests.stores import Fault, SimulatedCrash

FORMATS = ["delta", "iceberg"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Tables that are behind: since then keys were written again, small files were merged, and a
    tombstone came. The vectors are too large for the log."""
    folder = Folder(tmp_path_factory.mktemp("faults"))
    config = {"cleanup.policy": "compact", "publish.view": "latest"}
    columns = {"id": pa.int64(), "v": pa.float64()}
    store = Store(LocalStore(folder.path), FakeTime().runtime())
    topic = store.create_topic("orders", 2, columns, "id", config=config)
    append(topic, list(range(2500)) * 2)
    append(topic, [1, 2, 3])
    topic.publish(FORMATS)
    append(topic, list(range(1, 2500, 3)))
    topic.merge()
    append(topic, [1, 2], None)
    folder.keep()
    return folder


def append(topic: Topic, ids: list[int], v: float | None = 1.0) -> None:
    topic.append(pa.table({"id": ids, "v": pa.array([v] * len(ids), pa.float64())}))


def publish(topic: Topic) -> None:
    topic.publish(FORMATS, threads=1)


def rewrite(topic: Topic) -> None:
    append(topic, [7, 8, 9, 1])


def move(topic: Topic) -> None:
    """The key is in a partition that it does not belong to."""
    partition = ints(0, 1)
    topic.append(pa.table({"id": [5, 5], "v": [1.0, 2.0], "partition": partition}))


def compact(topic: Topic) -> None:
    topic.compact(force=True, threads=1)


OTHERS = [publish, rewrite, move, compact]


def check(folder: Folder) -> None:
    """All versions are right; another publication brings the tables up to date."""
    topic = folder.topic()
    check_versions(topic, folder)
    publish(topic)
    check_versions(topic, folder)
    assert shown_version(entries(LocalStore(folder.table))[-1]) == topic.version
    tables = topic.publish(FORMATS, threads=1).tables
    assert [table.steps for table in tables] == [0, 0]
    assert tables[0].rows_hidden == tables[1].rows_hidden
    assert topic.verify(data=True)


def check_versions(topic: Topic, folder: Folder) -> None:
    store = LocalStore(folder.table)
    log = entries(store)
    for number, entry in enumerate(log):
        wanted = expected(topic, shown_version(entry), "latest")
        assert rows(store, log[: number + 1], wanted.schema) == wanted.to_pylist()
    for number in numbers_of(folder.table):
        table = open_table(folder.table, number)
        version = int(table.current_snapshot().summary["pylogtable.version"])  # type: ignore
        wanted = expected(topic, version, "latest")
        assert iceberg_rows(table.scan().to_arrow(), wanted.schema) == wanted.to_pylist()


def steps_of_a_publication(folder: Folder) -> int:
    folder.restore()
    plan = Plan(None, None)
    plan.armed = False
    topic = folder.topic(plan)
    plan.armed = True
    publish(topic)
    return len(plan.seen)


@pytest.mark.parametrize("fault", FAULTS)
def test_publication_that_fails_at_any_step_leaves_right_tables(
    folder: Folder, fault: Fault
) -> None:
    steps = steps_of_a_publication(folder)
    assert steps > 40
    for at in sample(range(steps), 40, first=FAULTS.index(fault)):
        folder.restore()
        plan = Plan(at, fault)
        plan.armed = False
        topic = folder.topic(plan)
        plan.armed = True
        with suppress(SimulatedCrash, LogTableError):
            publish(topic)
        check(folder)


@pytest.mark.parametrize("other", OTHERS)
def test_publication_that_meets_others_at_any_step_shows_right_versions(
    folder: Folder, other: Callable[[Topic], None]
) -> None:
    for at in sample(range(steps_of_a_publication(folder)), 40, first=OTHERS.index(other)):
        folder.restore()
        meeting = Meeting(at, lambda: other(folder.topic()))
        topic = folder.topic(meeting)  # type: ignore[arg-type]
        meeting.is_armed = True
        publish(topic)
        check(folder)
