"""A published table of a compacted topic shows more than the newest records. Users are told, and
the query of the guide is right."""

from __future__ import annotations

import warnings
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pylogtable
from pylogtable import Store, Topic
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.compaction_plan import records_not_compacted
from tests.builders import kafka, limited
from tests.depth import rounds
from tests.publish.newest_query import customers, expected_rows, quoted_query, sorted_rows
from tests.publish.plain_delta import entries
from tests.publish.plain_iceberg import open_table

COMPACTED = {"cleanup.policy": "compact", "publish.formats": "delta"}
WARNING = "is compacted, but a published table"


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = store.create_topic("t", config=COMPACTED)
    topic.append(kafka([f"k{n}" for n in range(20)]))
    return topic


def told(action: object) -> list[str]:
    """The warnings of an action."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()  # type: ignore[operator]
    return [str(warning.message) for warning in caught]


# --- the query of the guide --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(rounds(3, deep=100)))
def test_query_of_the_guide_gives_what_latest_gives(tmp_path: Path, seed: int) -> None:
    topic = customers(pylogtable.open(tmp_path), seed)
    topic.publish(["delta", "iceberg"])
    folder = tmp_path / "customers"
    wanted = expected_rows(topic)
    delta = deltalake.DeltaTable(str(folder))
    by_delta_rs = deltalake.QueryBuilder().register("t", delta).execute(quoted_query("t"))
    assert sorted_rows(pa.table(by_delta_rs.read_all())) == wanted
    shown = open_table(folder).scan().to_arrow()
    assert sorted_rows(duckdb.sql(quoted_query("shown")).to_arrow_table()) == wanted
    # A plain sum is another one, and keys of the first partitions have moved.
    assert pc.sum(shown["credit"]).as_py() != sum(credit for _, credit in wanted)
    moved = duckdb.sql("SELECT customer_id FROM shown GROUP BY 1 HAVING min(partition) < "
                       "max(partition)")  # fmt: skip
    assert len(moved.fetchall()) > 0


# --- what the report says ----------------------------------------------------------------------


def test_report_counts_the_records_that_compaction_has_not_seen(topic: Topic) -> None:
    """The totals of the dashboard that showed 27,999 rows where `latest` had 19,999, in small."""
    topic.maintain()
    topic.compact(force=True)
    topic.append(kafka([f"k{n}" for n in range(8)]))
    report = topic.maintain()
    assert report.compaction is not None
    assert report.compaction.units == 0  # too little is dirty
    assert report.publication is not None
    (table,) = report.publication.tables
    assert (topic.count(), topic.latest().num_rows) == (28, 20)
    assert table.records_not_compacted == 8
    assert "8 records not compacted (a key may have several rows)" in str(report)
    topic.alter(config={"min.cleanable.dirty.ratio": "0"})
    report = topic.maintain()
    assert report.publication is not None
    (table,) = report.publication.tables
    assert (topic.count(), table.records_not_compacted) == (20, 0)
    assert "not compacted" not in str(report)


def test_report_of_another_topic_counts_nothing(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a", "a"]))
    (table,) = topic.publish().tables
    assert table.records_not_compacted is None
    assert "not compacted" not in str(table)


@pytest.mark.parametrize("seed", range(rounds(6, deep=100)))
def test_count_is_never_less_than_the_older_records(store: Store, seed: int) -> None:
    """Also where the entries of segments are in leaves, which are not loaded for it."""
    if seed % 2:
        store = limited(store, root_interval=4, tail_max=2)
    topic = customers(store, seed)
    snapshot: Snapshot = topic.at().snapshot
    records = topic.read(columns=["partition", "customer_id"]).read_all()
    newest = records.group_by(["partition", "customer_id"]).aggregate([])
    count = records_not_compacted(snapshot)
    assert records.num_rows - newest.num_rows <= count <= records.num_rows


# --- the warning -------------------------------------------------------------------------------


def test_publishing_a_compacted_topic_warns_once(topic: Topic) -> None:
    with pytest.warns(UserWarning, match=WARNING) as caught:
        topic.publish(["delta", "iceberg"])
    (warning,) = caught
    assert warning.filename == __file__
    topic.append(kafka(["a"]))
    assert told(topic.publish) == []


def test_warning_that_is_an_error_publishes_nothing(topic: Topic) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=WARNING):
            topic.publish()
        with pytest.raises(UserWarning, match=WARNING):
            topic.maintain()
    assert entries(topic._store) == []


def test_maintain_warns_when_it_makes_the_table_and_not_each_night(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    (warning,) = told(topic.maintain)
    assert WARNING in warning
    monkeypatch.setattr("pylogtable.publish.older_records._warned", set())  # another process
    topic.append(kafka(["a"]))
    assert told(topic.maintain) == []
    assert len(told(topic.publish)) == 1


def test_topic_that_is_not_compacted_gives_no_warning(store: Store) -> None:
    topic = store.create_topic("t", config={"publish.formats": "delta"})
    topic.append(kafka(["a", "a"]))
    assert told(topic.publish) == told(topic.maintain) == []
