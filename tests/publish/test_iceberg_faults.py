"""A publication that crashes, fails or meets another one at any step leaves an Iceberg table that
shows a version of the topic, and the next publication goes on from there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from pylogtable import Topic
from pylogtable.engine import plan_append
from pylogtable.errors import LogTableError
from pylogtable.storage.local import LocalStore
from pylogtable.store import Store
from tests.depth import sample
from tests.faults.support import FakeTime, Plan
from tests.publish.plain_iceberg import expected_rows, numbers_of, open_table, rows
from tests.stores import Fault, FaultyStore, SimulatedCrash

FAULTS = [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOSE_REPLY, Fault.REFUSE, Fault.SELF_RETRY]


class Folder:
    """A folder that can be brought back to the state in which it was kept. It stays in its place,
    because an Iceberg table has absolute addresses."""

    def __init__(self, path: Path) -> None:
        self.path = path / "store"
        self._kept = path / "kept"

    def keep(self) -> None:
        shutil.copytree(self.path, self._kept)

    def restore(self) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self._kept, self.path)

    @property
    def table(self) -> Path:
        return self.path / "orders"

    def metadata_files(self) -> list[Path]:
        return sorted((self.table / "metadata").glob("*.metadata.json"))

    def topic(self, decide: Callable[[str, str], Fault | None] = lambda verb, key: None) -> Topic:
        store = FaultyStore(LocalStore(self.path), decide)
        return Store(store, FakeTime().runtime()).topic("orders")


def _batch(start: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + count)), "n": pa.array([start] * count)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A topic that was published, and then changed in all ways: the next publication takes several
    steps, with shifted segments, merged files and removed records."""
    folder = Folder(tmp_path_factory.mktemp("faults"))
    schema = {"id": pa.int64(), "n": pa.int64()}
    store = Store(LocalStore(folder.path), FakeTime().runtime())
    topic = store.create_topic("orders", 2, schema, "id")
    topic.append(_batch(0, 20))
    topic.append(_batch(20, 20))
    topic.publish(["iceberg"])
    topic.merge()
    staged = [plan_append(topic).stage(_batch(40 + 10 * n, 10)) for n in range(2)]
    for one in staged:
        plan_append(topic).commit([one])
    topic.alter(add_columns={"more": pa.string()})
    topic.delete_records({0: 7})
    topic.append(_batch(60, 5).append_column("more", pa.array(["x"] * 5)))
    folder.keep()
    return folder


def check_table(folder: Folder) -> int:
    """The newest metadata file shows one version of the topic, complete. Returns that version."""
    table = open_table(folder.table, numbers_of(folder.table)[-1])
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    version = int(snapshot.summary["pylogtable.version"] or 0)
    schema, expected = expected_rows(folder.topic(), version)
    assert rows(table.scan().to_arrow(), schema) == expected
    return version


def check_newest(folder: Folder, version: int) -> None:
    """The table shows this version of the topic. Its newest entry may name an older one, if no
    record has changed since."""
    shown = check_table(folder)
    topic = folder.topic()
    assert shown >= version or topic.read(version=shown).read_all() == (
        topic.read(version=version).read_all()
    )


def check_chain(folder: Folder) -> None:
    """No publication was lost: each snapshot follows the one before."""
    numbers = numbers_of(folder.table)
    assert numbers == list(range(1, numbers[-1] + 1))
    snapshots = open_table(folder.table, numbers[-1]).snapshots()
    assert [s.sequence_number for s in snapshots] == list(range(1, len(snapshots) + 1))
    assert [s.parent_snapshot_id for s in snapshots[1:]] == [s.snapshot_id for s in snapshots[:-1]]
    versions = [int(s.summary["pylogtable.version"] or 0) for s in snapshots if s.summary]
    assert versions == sorted(versions)


def operations_of_a_publication(folder: Folder) -> list[tuple[str, str]]:
    folder.restore()
    plan = Plan(None, None)
    plan.armed = False
    topic = folder.topic(plan)
    plan.armed = True
    report = topic.publish(["iceberg"])
    assert report.tables[0].steps > 2
    return plan.seen


@pytest.mark.parametrize("fault", FAULTS)
def test_failure_at_any_step_leaves_a_right_table_and_the_next_publication_heals_it(
    folder: Folder, fault: Fault
) -> None:
    steps = len(operations_of_a_publication(folder))
    for at in sample(range(steps), 16, first=FAULTS.index(fault)):
        folder.restore()
        plan = Plan(at, fault)
        plan.armed = False
        topic = folder.topic(plan)
        plan.armed = True
        with suppress(SimulatedCrash, LogTableError):
            topic.publish(["iceberg"])
        assert plan.hit, at
        check_table(folder)
        healthy = folder.topic()
        newest = healthy.version
        healthy.publish(["iceberg"])
        check_newest(folder, newest)
        check_chain(folder)
        assert healthy.verify(data=True)


def test_publication_lands_if_the_hint_cannot_be_written(folder: Folder) -> None:
    folder.restore()
    refused: list[str] = []

    def refuse_hint(verb: str, key: str) -> Fault | None:
        if verb == "write" and key.endswith("version-hint.text"):
            refused.append(key)
            return Fault.REFUSE
        return None

    (table,) = folder.topic(refuse_hint).publish(["iceberg"]).tables
    assert refused
    newest = open_table(folder.table, numbers_of(folder.table)[-1])
    schema, expected = expected_rows(folder.topic(), table.version)
    assert rows(newest.scan().to_arrow(), schema) == expected
    _publish(folder)
    check_chain(folder)


def _publish(folder: Folder) -> None:
    folder.topic().publish(["iceberg"])


def _append_and_publish(folder: Folder) -> None:
    topic = folder.topic()
    topic.append(_batch(100, 3).append_column("more", pa.nulls(3, pa.string())))
    topic.publish(["iceberg"])


@pytest.mark.parametrize("other", [_publish, _append_and_publish])
def test_another_publication_at_any_step_loses_nothing(
    folder: Folder, other: Callable[[Folder], None]
) -> None:
    steps = len(operations_of_a_publication(folder))
    for at in sample(range(steps), 12, first=0 if other is _publish else 6):
        folder.restore()
        seen: list[str] = []
        landed: dict[Path, bytes] = {}

        def decide(
            verb: str,
            key: str,
            at: int = at,
            seen: list[str] = seen,
            landed: dict[Path, bytes] = landed,
        ) -> Fault | None:
            seen.append(verb)
            if len(seen) == at + 1:
                other(folder)
                landed.update({path: path.read_bytes() for path in folder.metadata_files()})
            return None

        topic = folder.topic(decide)
        seen.clear()
        report = topic.publish(["iceberg"])
        assert landed
        assert {path: path.read_bytes() for path in landed} == landed
        check_newest(folder, report.tables[0].version)
        check_chain(folder)
        _publish(folder)
        check_table(folder)
        assert folder.topic().verify(data=True)
