"""Engines that others wrote read a published table: delta-rs and Polars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pylogtable
from pylogtable import Topic
from pylogtable.storage.local import LocalStore
from tests.builders import IN_FILES
from tests.depth import rounds
from tests.publish.histories import OPERATIONS, History
from tests.publish.plain_delta import entries, shown_version

ORDER = [("partition", "ascending"), ("offset", "ascending")]
NARROW = [operation for operation in OPERATIONS if operation != "widen"]


def sorted_rows(table: pa.Table, schema: pa.Schema) -> list[dict[str, Any]]:
    assert table.column_names == schema.names
    plain = pa.schema([(field.name, field.type) for field in schema])
    return table.cast(plain).sort_by(ORDER).to_pylist()


def by_delta_rs(path: Path, version: int | None = None) -> pa.Table:
    table = deltalake.DeltaTable(str(path), version=version)
    query = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t")
    return pa.table(query.read_all())


@pytest.mark.parametrize("seed", range(rounds(4, deep=60)))
def test_engines_read_a_table_after_a_random_history(tmp_path: Path, seed: int) -> None:
    history = History(pylogtable.open(str(tmp_path)), seed)
    steps = history.rng.choices(NARROW, k=25)
    for operation in ("publish", *steps, "publish"):
        history.do(operation)
    topic, folder = history.topic, tmp_path / "orders"
    expected = topic.read(version=_shown(folder)).read_all()
    rows = sorted_rows(expected, expected.schema)
    assert sorted_rows(by_delta_rs(folder), expected.schema) == rows
    lazy = polars.scan_delta(str(folder))
    assert sorted_rows(lazy.collect().to_arrow(), expected.schema) == rows
    middle = pc.approximate_median(expected["offset"]).as_py() or 0
    some = lazy.filter((polars.col("offset") >= middle) & (polars.col("partition") == 1))
    wanted = expected.filter((pc.field("offset") >= middle) & (pc.field("partition") == 1))
    found = some.collect().to_arrow()
    assert sorted_rows(found, expected.schema) == sorted_rows(wanted, expected.schema)


def _shown(folder: Path) -> int:
    return int(deltalake.DeltaTable(str(folder)).transaction_version("pylogtable") or 0)


@pytest.fixture
def orders(tmp_path: Path) -> Topic:
    schema = {"id": pa.int64(), "amount": pa.float64()}
    topic = pylogtable.open(str(tmp_path)).create_topic("orders", 2, schema, "id")
    topic.append(pa.table({"id": [1, 2, 3, 4], "amount": [1.0, 2.0, 3.0, None]}))
    topic.publish()
    return topic


def test_renamed_and_dropped_columns_follow(orders: Topic, tmp_path: Path) -> None:
    orders.alter(rename_columns={"amount": "total"}, add_columns={"amount": pa.string()})
    orders.append(pa.table({"id": [5], "total": [5.0], "amount": ["five"]}))
    orders.publish()
    expected = orders.read().read_all()
    rows = sorted_rows(expected, expected.schema)
    assert sorted_rows(by_delta_rs(tmp_path / "orders"), expected.schema) == rows


def test_engine_that_cannot_rename_refuses_instead_of_showing_nulls(
    orders: Topic, tmp_path: Path
) -> None:
    orders.alter(rename_columns={"amount": "total"})
    orders.publish()
    with pytest.raises(Exception, match="columnMapping"):
        polars.scan_delta(str(tmp_path / "orders")).collect()
    with pytest.raises(Exception, match="columnMapping"):
        deltalake.DeltaTable(str(tmp_path / "orders")).to_pyarrow_table()


def test_every_version_of_the_table_can_be_read_through_checkpoints(
    orders: Topic, tmp_path: Path
) -> None:
    folder = tmp_path / "orders"
    for number in range(25):
        orders.append(pa.table({"id": [number], "amount": [1.0]}))
        if number % 6 == 5:
            orders.merge()
        orders.publish()
    log = entries(LocalStore(folder))
    assert len(log) > 25
    assert (folder / "_delta_log" / f"{20:020d}.checkpoint.parquet").exists()
    for at in (0, 9, 10, 11, 20, len(log) - 1):
        expected = orders.read(version=shown_version(log[at])).read_all()
        rows = sorted_rows(expected, expected.schema)
        assert sorted_rows(by_delta_rs(folder, at), expected.schema) == rows


def test_nobody_else_can_write_the_table(orders: Topic, tmp_path: Path) -> None:
    folder = str(tmp_path / "orders")
    rows = by_delta_rs(tmp_path / "orders")
    table = deltalake.DeltaTable(folder)
    with pytest.raises(Exception, match="pylogtable"):
        deltalake.write_deltalake(folder, rows, mode="append")
    with pytest.raises(Exception, match="pylogtable"):
        table.delete()
    with pytest.raises(Exception, match="pylogtable"):
        table.optimize.compact()
    assert orders.verify(data=True)
    assert by_delta_rs(tmp_path / "orders").num_rows == 4


def test_statistics_are_those_of_the_files(orders: Topic, tmp_path: Path) -> None:
    table = deltalake.DeltaTable(str(tmp_path / "orders"))
    actions = pa.table(table.get_add_actions(flatten=True))
    for row in actions.to_pylist():
        found = orders.read(int(row["partition.partition"])).read_all()
        assert row["num_records"] == found.num_rows
        for name in ("offset", "id"):
            bounds = pc.min_max(found[name]).as_py()
            assert (row[f"min.{name}"], row[f"max.{name}"]) == (bounds["min"], bounds["max"])
            assert row[f"null_count.{name}"] == 0
        times = pc.min_max(found["timestamp"]).as_py()
        assert row["min.timestamp"] <= times["min"]
        assert times["max"] <= row["max.timestamp"]


@pytest.mark.parametrize("by", ["setting", "table"])
def test_widening_warns_of_engines_that_then_refuse_the_table(tmp_path: Path, by: str) -> None:
    """If delta-rs reads such a table one day, the warning names the wrong engines."""
    topic = pylogtable.open(str(tmp_path)).create_topic(
        "t", schema={"n": pa.int32()}, config=IN_FILES
    )
    topic.append(pa.table({"n": pa.array([1], pa.int32())}))
    if by == "setting":
        topic.alter(config={"publish.formats": "delta"})
    else:
        topic.publish(["delta"])
    with pytest.warns(UserWarning, match="Delta table, and n becomes wider") as told:
        topic.alter(widen_columns={"n": pa.int64()})
    assert told[0].filename == __file__
    topic.publish(["delta"])
    for read in (by_delta_rs, lambda path: polars.scan_delta(str(path)).collect()):
        with pytest.raises(Exception, match=r"(?i)type ?widening|unsupported|not supported"):
            read(tmp_path / "t")
